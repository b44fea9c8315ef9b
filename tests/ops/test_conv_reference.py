"""The reference of convolutions against a loop, against torch, and its directions against each other."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilewright import arch as archs
from tilewright.arch.number_formats import is_representable, to_numpy_dtype
from tilewright.base.errors import InvalidValueError
from tilewright.ops.grouped_conv.config import DIRECTIONS
from tilewright.ops.grouped_conv.implicit_gemm import compute_gemm_sizes
from tilewright.ops.grouped_conv.inputs import make_inputs
from tilewright.ops.grouped_conv.problem import Problem
from tilewright.ops.grouped_conv.reference import compute_convolution, compute_reference
from tilewright.ops.grouped_conv.tensors import list_tensors

GFX942 = archs.load("gfx942")


def problem(direction: str = "forward", **values: Any) -> Problem:
    usual = {"n": 2, "g": 2, "c": 6, "k": 4, "input_size": (5, 7), "filter_size": 3, "dtype": "fp32"}
    return Problem(direction=direction, **{**usual, **values})


def arrays(made: Problem, seed: int = 1) -> dict[str, Any]:
    """Input, weights and a gradient of the output, in float64."""
    rng = np.random.default_rng(seed)
    shapes = {t.name: t.shape for direction in DIRECTIONS for t in list_tensors(turned(made, direction))}
    return {name: rng.standard_normal(shapes[name]) for name in ("input", "weight", "grad_output")}


def turned(made: Problem, direction: str) -> Problem:
    fields = ("n", "g", "c", "k", "input_size", "filter_size", "stride", "dilation", "left_pad", "right_pad")
    return Problem(direction=direction, dtype="fp32", **{name: getattr(made, name) for name in fields})


def loop(made: Problem, image: Any, weight: Any) -> Any:
    """The forward convolution, element by element, without a padded copy."""
    c, k = made.group_channels
    output = np.zeros((made.n, *made.output_size, made.g, k))
    for index in np.ndindex(output.shape):
        n, *place, g, out = index
        for tap in np.ndindex(*made.filter_size):
            steps = zip(place, tap, made.stride, made.dilation, made.left_pad, strict=True)
            at = [p * stride + t * dilation - left for p, t, stride, dilation, left in steps]
            if all(0 <= x < size for x, size in zip(at, made.input_size, strict=True)):
                output[index] += math.fsum(image[(n, *at, g, x)] * weight[(g, out, *tap, x)] for x in range(c))
    return output


# Every kind of thing at once, in each number of dimensions.
HARD: tuple[dict[str, Any], ...] = (
    {"input_size": (9,), "stride": 2, "dilation": 2, "left_pad": 3, "right_pad": 1, "g": 2},
    {"input_size": (5, 6), "filter_size": (3, 2), "stride": (2, 1), "dilation": (1, 2), "left_pad": (1, 0)},
    {"input_size": (4, 5), "filter_size": (2, 3), "stride": (1, 3), "right_pad": (2, 3), "left_pad": (0, 4)},
    {"input_size": (4, 3, 5), "filter_size": (2, 1, 3), "stride": (1, 2, 2), "left_pad": (1, 0, 2), "g": 1},
)


@pytest.mark.parametrize("values", HARD, ids=lambda v: "x".join(map(str, v["input_size"])))
def test_forward_is_the_loop(values: dict[str, Any]) -> None:
    made = problem(**values)
    given = arrays(made)
    found = compute_convolution(made, given["input"], given["weight"])
    np.testing.assert_allclose(found, loop(made, given["input"], given["weight"]), rtol=1e-12, atol=1e-12)


@st.composite
def problems(draw: Any, directions: tuple[str, ...] = ("forward",)) -> Problem:
    ndim = draw(st.integers(1, 3))

    def each(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(least, most), min_size=ndim, max_size=ndim)))

    g = draw(st.integers(1, 3))
    try:
        return Problem(
            direction=draw(st.sampled_from(directions)), dtype="fp32", n=draw(st.integers(1, 3)), g=g,
            c=g * draw(st.integers(1, 4)), k=g * draw(st.integers(1, 4)),
            input_size=each(1, 7), filter_size=each(1, 4), stride=each(1, 3), dilation=each(1, 3),
            left_pad=each(0, 4), right_pad=each(0, 4),
        )  # fmt: skip
    except InvalidValueError:  # the filter reaches beyond the input
        assume(False)
        raise


@given(made=problems(), seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_all_directions_are_those_of_torch(made: Problem, seed: int) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)  # on such small problems several only wait for each other
    given = arrays(made, seed)
    # Torch has channels first, pads around, and one filter of all groups.
    image = torch.tensor(np.moveaxis(given["input"].reshape(made.n, *made.input_size, made.c), -1, 1).copy())
    weight = torch.tensor(np.moveaxis(given["weight"].reshape(made.k, *made.filter_size, -1), -1, 1).copy())
    for tensor in (image, weight):
        tensor.requires_grad_()
    sides = itertools.chain(*reversed(list(zip(made.left_pad, made.right_pad, strict=True))))
    function = getattr(torch.nn.functional, f"conv{made.ndim}d")
    output = function(
        torch.nn.functional.pad(image, list(sides)),
        weight,
        stride=made.stride,
        dilation=made.dilation,
        groups=made.g,
    )
    grad = np.moveaxis(given["grad_output"].reshape(made.n, *made.output_size, made.k), -1, 1)
    output.backward(torch.tensor(grad.copy()))

    def logical(tensor: Any, shape: tuple[int, ...]) -> Any:
        return np.moveaxis(tensor.detach().numpy(), 1, -1).reshape(shape)

    for direction, (first, second, theirs) in {
        "forward": ("input", "weight", output),
        "backward_data": ("grad_output", "weight", image.grad),
        "backward_weight": ("grad_output", "input", weight.grad),
    }.items():
        asked = turned(made, direction)
        found = compute_convolution(asked, given[first], given[second])
        assert found.shape == list_tensors(asked)[-1].shape
        np.testing.assert_allclose(found, logical(theirs, found.shape), rtol=1e-10, atol=1e-11)


@given(made=problems(), seed=st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_gradients_are_adjoint_to_the_convolution(made: Problem, seed: int) -> None:
    given = arrays(made, seed)
    image, weight, grad = given["input"], given["weight"], given["grad_output"]
    forward = np.sum(grad * compute_convolution(turned(made, "forward"), image, weight))
    by_data = np.sum(image * compute_convolution(turned(made, "backward_data"), grad, weight))
    by_weight = np.sum(weight * compute_convolution(turned(made, "backward_weight"), grad, image))
    magnitude = np.sum(np.abs(grad) * compute_convolution(turned(made, "forward"), np.abs(image), np.abs(weight)))
    assert abs(forward - by_data) <= 1e-13 * magnitude
    assert abs(forward - by_weight) <= 1e-13 * magnitude


def test_inputs_that_no_filter_reads_have_no_gradient() -> None:
    made = problem("backward_data", input_size=(6, 6), filter_size=1, stride=2)
    given = make_inputs(made, 3, GFX942)
    found = compute_reference(made, given, GFX942)["grad_input"]
    assert found[:, ::2, ::2].all() and not found[:, 1::2].any() and not found[:, :, 1::2].any()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp8"])
def test_seed_0_gives_whole_numbers_with_exact_sums(direction: str, dtype: str) -> None:
    made = problem(direction, dtype=dtype, n=4, c=32, k=32, input_size=(8, 9), left_pad=1, right_pad=1)
    given = make_inputs(made, 0, GFX942)
    for tensor in list_tensors(made)[:2]:
        values = given[tensor.name].astype(float)
        assert given[tensor.name].dtype == to_numpy_dtype(tensor.dtype, GFX942) and values.shape == tensor.shape
        assert np.array_equal(values, np.rint(values)) and len(np.unique(values)) > 2
    absolute = {name: np.abs(array.astype(float)) for name, array in given.items()}
    name = list_tensors(made)[-1].name
    assert compute_reference(made, absolute, GFX942)[name].max() <= 2**24
    assert is_representable(compute_reference(made, given, GFX942)[name], made.dtype_c, GFX942).mean() > 0.9


def test_inputs_depend_on_the_seed_only() -> None:
    made = problem()
    assert np.array_equal(make_inputs(made, 4, GFX942)["input"], make_inputs(made, 4, GFX942)["input"])
    assert not np.array_equal(make_inputs(made, 4, GFX942)["input"], make_inputs(made, 5, GFX942)["input"])


@given(made=problems(DIRECTIONS))
def test_sizes_of_the_gemm_are_those_of_the_sums(made: Problem) -> None:
    """With ones everywhere, an element is the number of products that are not in the padding."""
    ones = [np.ones(t.shape) for t in list_tensors(made)[:2]]
    found = compute_convolution(made, *ones)
    sizes = compute_gemm_sizes(made)
    assert found.size == made.g * sizes.m * sizes.n
    assert found.max() <= sizes.k
    if not any(made.left_pad) and not any(made.right_pad) and made.direction != "backward_data":
        assert found.min() == found.max() == sizes.k


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_hundred_million_products_take_seconds(direction: str) -> None:
    made = problem(direction, n=2, g=1, c=64, k=64, input_size=(37, 37), left_pad=1, right_pad=1)
    assert made.flops > 2 * 99_000_000
    given = arrays(made)
    first, second, _ = (t.name for t in list_tensors(made))
    began = time.perf_counter()
    compute_convolution(made, given[first], given[second])
    assert time.perf_counter() - began < 10  # 0.1 to 0.7 s on two busy cores
