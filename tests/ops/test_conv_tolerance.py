"""The tolerance of convolutions holds for every way a kernel may compute, and for not much more.

A kernel is simulated: single products summed in fp32 in random orders, cut off or rounded, stored, and split into parts
that are added in the type stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from played import Played
from simulated_sums import F, rounding_of, shares_of, stored

import tilewright as tw
from tilewright import arch as archs
from tilewright.arch.number_formats import compute_spacing, is_representable
from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.ops.block_gemm.types import expand_dtype
from tilewright.ops.fields import read_config
from tilewright.ops.grouped_conv.config import BACKWARD_WEIGHT, DIRECTIONS, Config
from tilewright.ops.grouped_conv.implicit_gemm import compute_gemm_sizes
from tilewright.ops.grouped_conv.inputs import make_inputs
from tilewright.ops.grouped_conv.problem import Problem
from tilewright.ops.grouped_conv.reference import compute_convolution, compute_reference, compute_tolerance
from tilewright.ops.grouped_conv.tensors import list_tensors

GFX942, GFX90A = archs.load("gfx942"), archs.load("gfx90a")
MMA_K = 8
FLOATS = [("fp16", ""), ("bf16", ""), ("fp16", "fp32"), ("fp8", ""), ("fp32", "")]


def subject(direction: str, dtype: str = "fp16", dtype_c: str = "", **values: Any) -> tuple[Config, Problem]:
    """A config and a problem that go together."""
    two_stage = values.pop("two_stage", False)
    usual = {"n": 2, "g": 2, "c": 6, "k": 4, "input_size": (5, 6), "filter_size": (3, 2), "stride": (1, 2)}
    pads = {"left_pad": (1, 0), "right_pad": (0, 2)}
    problem = Problem(direction=direction, dtype=dtype, dtype_c=dtype_c, **{**usual, **pads, **values})
    config = read_config(
        Config,
        {
            **expand_dtype(dtype), "dtype_c": problem.dtype_c, "direction": direction, "ndim": problem.ndim,
            "block": (64, 64, 32), "waves": (2, 2, 1), "mma": (32, 32, MMA_K), "pipeline": "compv3",
            "scheduler": "intrawave", "epilogue": "cshuffle", "vector": (1, 1, 2),
            "split_k": direction == BACKWARD_WEIGHT, "two_stage": two_stage,
        },
    )  # fmt: skip
    assert isinstance(config, Config)
    return config, problem


def products(problem: Problem, a: Any, b: Any) -> Iterator[Any]:
    """Arrays of single products, of which each element of the result is the sum, in the order of the GEMM's K."""
    if problem.direction == BACKWARD_WEIGHT:
        rows = a.reshape(-1, *a.shape[-2:])
        for position in range(len(rows)):
            one = np.zeros_like(rows)
            one[position] = rows[position]
            yield compute_convolution(problem, one.reshape(a.shape), b)
        return
    # Weights of one tap and one of the channels that are summed.
    summed = b.shape[-1] if problem.direction == "forward" else b.shape[1]
    for tap in np.ndindex(*problem.filter_size):
        for channel in range(summed):
            index = (slice(None), slice(None), *tap, channel)
            if problem.direction != "forward":
                index = (slice(None), channel, *tap, slice(None))
            one = np.zeros_like(b)
            one[index] = b[index]
            yield compute_convolution(problem, a, one)


def added_up(terms: list[Any], rng: Any, rounding: Any) -> Any:
    """A sum in fp32 in a random order: chunks that are summed on their own, then together."""
    order = rng.permutation(len(terms))
    totals = []
    for chunk in np.array_split(order, rng.integers(1, 5)):
        total = np.zeros(terms[0].shape, F)
        for i in chunk:
            total = rounding(total.astype(float) + terms[i])
        totals.append(total)
    total = totals[0]
    for part in totals[1:]:
        total = rounding(total.astype(float) + part)
    return total


def in_parts(terms: list[Any], count: int, rng: Any) -> list[list[Any]]:
    """Contiguous parts of whole mma steps, some of them empty perhaps."""
    cuts = np.sort(rng.integers(0, len(terms) // MMA_K + 1, count - 1)) * MMA_K
    ends = [0, *(int(cut) for cut in cuts), len(terms)]
    return [terms[first:last] for first, last in itertools.pairwise(ends)]


def computed(config: Config, problem: Problem, given: dict[str, Any], seed: int, arch: Arch) -> Any:
    """The result as a kernel might compute it."""
    rng, rounding = np.random.default_rng(seed), rounding_of(seed)
    a, b = (given[t.name].astype(float) for t in list_tensors(problem)[:2])
    terms = list(products(problem, a, b))
    assert len(terms) == compute_gemm_sizes(problem).k
    if problem.k_batch == 1:
        return stored(added_up(terms, rng, rounding), problem.dtype_c, arch)
    kept = "fp32" if config.two_stage else problem.dtype_c
    total = stored(np.zeros(terms[0].shape), kept, arch)
    parts = in_parts(terms, problem.k_batch, rng)
    for i in rng.permutation(len(parts)):
        if parts[i]:
            part = stored(added_up(parts[i], rng, rounding), kept, arch)
            total = stored(total.astype(F) + part.astype(F), kept, arch)
    return stored(total.astype(F), problem.dtype_c, arch)


def allowed_to(config: Config, problem: Problem, given: dict[str, Any], arch: Arch = GFX942) -> tuple[Any, Any]:
    """The exact result and what it may be off."""
    exact = compute_reference(problem, given, arch)
    allowed = compute_tolerance(config, problem, given, exact, arch)
    (name,) = exact
    assert list(allowed) == [name] and allowed[name].limit.shape == exact[name].shape
    return exact[name], allowed[name].limit


def shares(config: Config, problem: Problem, seed: int, arch: Arch = GFX942) -> Any:
    """Error over tolerance, element by element."""
    given = make_inputs(problem, seed, arch)
    exact, allowed = allowed_to(config, problem, given, arch)
    return shares_of(np.abs(computed(config, problem, given, seed, arch).astype(float) - exact), allowed)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("dtype", "dtype_c"), FLOATS)
def test_sums_in_any_order_stay_within(direction: str, dtype: str, dtype_c: str) -> None:
    config, problem = subject(direction, dtype, dtype_c)
    for seed in range(8):
        assert shares(config, problem, seed).max() <= 1


@pytest.mark.parametrize("two_stage", [False, True])
@pytest.mark.parametrize(("dtype", "dtype_c"), FLOATS)
@given(seed=st.integers(0, 2**32), k_batch=st.integers(2, 5))
@settings(max_examples=8)
def test_parts_in_any_order_stay_within(dtype: str, dtype_c: str, two_stage: bool, seed: int, k_batch: int) -> None:
    values = {"n": 3, "c": 2, "k": 2, "two_stage": two_stage, "k_batch": k_batch}
    config, problem = subject(BACKWARD_WEIGHT, dtype, dtype_c, **values)
    assert shares(config, problem, seed).max() <= 1


@pytest.mark.parametrize(("direction", "k_batch"), [*((each, 1) for each in DIRECTIONS), (BACKWARD_WEIGHT, 3)])
@pytest.mark.parametrize(("dtype", "dtype_c"), FLOATS)
def test_a_right_kernel_has_room(dtype: str, dtype_c: str, direction: str, k_batch: int) -> None:
    """Also by the root mean square of its errors."""
    config, problem = subject(direction, dtype, dtype_c, k_batch=k_batch)
    (output,) = [tensor.name for tensor in list_tensors(problem) if tensor.output]
    played = Played(tw.kernel_of(config, "gfx942"), problem, GFX942, seeds=(0, 1, 2, 3))
    assert played.share(lambda given, seed: {output: computed(config, problem, dict(given), seed, GFX942)}) < 0.7


def test_parts_that_cancel_stay_within() -> None:
    """Large parts of opposite signs: what is stored of each is far coarser than the result."""
    config, problem = subject(BACKWARD_WEIGHT, "fp16", n=2, g=1, c=1, k=1, input_size=(1, 64), filter_size=1,
                              stride=1, left_pad=0, right_pad=0, k_batch=2)  # fmt: skip
    rng = np.random.default_rng(4)
    grad = np.abs(rng.standard_normal((2, 1, 64, 1, 1))).astype(np.float16)
    grad[1] = -grad[0]
    given = {"grad_output": grad, "input": np.abs(rng.standard_normal(grad.shape)).astype(np.float16)}
    exact, allowed = allowed_to(config, problem, given)
    errors = [np.abs(computed(config, problem, given, seed, GFX942).astype(float) - exact) for seed in range(60)]
    assert max(float(error.max()) for error in errors) > float(compute_spacing(exact, "fp16", GFX942).max())
    assert all(np.all(error <= allowed) for error in errors)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("dtype", "dtype_c"), FLOATS)
def test_whole_numbers_are_exact_where_c_holds_them(direction: str, dtype: str, dtype_c: str) -> None:
    config, problem = subject(direction, dtype, dtype_c)
    exact, allowed = allowed_to(config, problem, make_inputs(problem, 0, GFX942))
    assert np.mean(allowed == 0) > 0.8
    assert is_representable(exact[allowed == 0], problem.dtype_c, GFX942).all()


@pytest.mark.parametrize("k_batch", [2, 3])
@pytest.mark.parametrize(("dtype", "dtype_c"), FLOATS)
def test_parts_of_whole_numbers_are_exact(dtype: str, dtype_c: str, k_batch: int) -> None:
    config, problem = subject(BACKWARD_WEIGHT, dtype, dtype_c, n=16, k_batch=k_batch)
    given = make_inputs(problem, 0, GFX942)
    exact, allowed = allowed_to(config, problem, given)
    assert np.mean(allowed == 0) > 0.8
    for seed in range(4):
        found = computed(config, problem, given, seed, GFX942).astype(float)
        assert np.array_equal(found[allowed == 0], exact[allowed == 0])


# 32 products of ±33 · 33 in two parts, by hand. fp16 holds whole numbers up to 2048; its ulps from 16384 are 16, from
# 32768 they are 32.
@pytest.mark.parametrize(
    ("signs", "two_stage", "off"),
    [
        # The sum 34848 is held, but not every part is: two are stored with half an ulp of 32, and added once.
        ([1] * 32, False, 16 + 16 + 16),
        # Sums reach 17424 and fall to 0: parts of up to 17424, which together are up to 34848.
        ([1] * 16 + [-1] * 16, False, 8 + 8 + 16),
        # fp32 holds every part; only the sum 26136 is stored as fp16, which lacks it.
        ([1] * 24 + [0] * 8, True, 8),
        ([1] * 32, True, 0),
    ],
)
def test_parts_of_large_whole_numbers_by_hand(signs: list[int], two_stage: bool, off: float) -> None:
    config, problem = subject(BACKWARD_WEIGHT, n=1, g=1, c=1, k=1, input_size=(1, 32), filter_size=1, stride=1,
                              left_pad=0, right_pad=0, k_batch=2, two_stage=two_stage)  # fmt: skip
    factors = np.array(signs, np.float16).reshape(1, 1, 32, 1, 1)
    given = {"grad_output": factors * np.float16(33), "input": np.full(factors.shape, 33, np.float16)}
    exact, allowed = allowed_to(config, problem, given)
    assert allowed.tolist() == [[[[[off]]]]]
    for seed in range(20):
        assert np.all(np.abs(computed(config, problem, given, seed, GFX942).astype(float) - exact) <= allowed)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("dtype", "dtype_c"), FLOATS)
def test_the_bound_is_not_much_wider_than_needed(direction: str, dtype: str, dtype_c: str) -> None:
    """One rounding of the result, and what as many roundings as terms can cost in fp32."""
    config, problem = subject(direction, dtype, dtype_c)
    given = make_inputs(problem, 5, GFX942)
    exact, allowed = allowed_to(config, problem, given)
    magnitude = compute_convolution(problem, *(np.abs(given[t.name].astype(float)) for t in list_tensors(problem)[:2]))
    terms = compute_gemm_sizes(problem).k
    store = (1.0 if problem.dtype_c == "bf16" else 0.5) * compute_spacing(
        np.abs(exact) * 1.001, problem.dtype_c, GFX942
    )
    assert np.all(allowed <= 2 * store + (terms + 1) * 2.0**-23 * magnitude + 1e-30)


# Shares of results in which a missing product of usual size is seen: nearly all without a split. Parts stored in bf16
# are coarse, by 2⁻⁷ each of their size.
@pytest.mark.parametrize(
    ("values", "least"),
    [
        *(({"direction": direction, "dtype": dtype}, 0.9) for direction in DIRECTIONS for dtype in ("fp16", "bf16")),
        *(({"direction": direction, "dtype": "fp32"}, 0.99) for direction in DIRECTIONS),
        ({"direction": BACKWARD_WEIGHT, "dtype": "fp16", "k_batch": 3}, 0.9),
        ({"direction": BACKWARD_WEIGHT, "dtype": "bf16", "k_batch": 3, "two_stage": True}, 0.9),
        ({"direction": BACKWARD_WEIGHT, "dtype": "bf16", "k_batch": 3}, 0.5),
    ],
    ids=str,
)
def test_a_missing_product_is_noticed(values: dict[str, Any], least: float) -> None:
    config, problem = subject(**values)
    given = make_inputs(problem, 5, GFX942)
    exact, allowed = allowed_to(config, problem, given)
    a, b = (given[t.name].astype(float) for t in list_tensors(problem)[:2])
    seen = []
    for product in products(problem, a, b):
        usual = np.abs(product) > 0.25
        seen.append((np.abs(product) > allowed)[usual])
        assert exact.shape == product.shape
    assert np.mean(np.concatenate(seen)) > least


def test_a_split_of_sums_over_positions_only() -> None:
    config, problem = subject("forward", k_batch=2)
    with pytest.raises(InvalidValueError, match="k_batch is 2, but only sums of backward_weight are split"):
        allowed_to(config, problem, make_inputs(problem, 1, GFX942))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_gfx90a_may_take_subnormal_inputs_for_zero(direction: str) -> None:
    config, problem = subject(direction, dtype_c="fp32")
    given = make_inputs(problem, 5, GFX90A)
    first = list_tensors(problem)[0].name
    given[first] = (given[first].astype(float) * 2.0**-15).astype(np.float16)
    flushed = {**given, first: np.where(np.abs(given[first]) < 2.0**-14, np.float16(0), given[first])}
    (exact,) = compute_reference(problem, given, GFX90A).values()
    (found,) = compute_reference(problem, flushed, GFX90A).values()
    assert np.all(np.abs(found - exact) <= allowed_to(config, problem, given, GFX90A)[1])
    assert np.any(np.abs(found - exact) > allowed_to(config, problem, given, GFX942)[1])
