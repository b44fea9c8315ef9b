"""The launches of `matmul` for arrays of any shapes and strides. Pure planning: no kernel is built or run."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError, TensorError, UnknownValueError
from tilewright.ops.array_plan import ZEROS, ArrayPlan, ArraySpec
from tilewright.ops.gemm.functions import plan_matmul

ARCH = archs.load("gfx942")


def spec_of(array: np.ndarray, argument: int, name: str) -> ArraySpec:
    strides = tuple(step // array.itemsize for step in array.strides)
    return ArraySpec(argument, name, "fp16", array.shape, strides)


def plan(
    a: np.ndarray,
    b: np.ndarray,
    bias: np.ndarray | None = None,
    out: np.ndarray | None = None,
    activation: str | None = None,
) -> ArrayPlan:
    optional = [(bias, 2, "bias"), (out, 3, "out")]
    specs = [None if array is None else spec_of(array, place, name) for array, place, name in optional]
    return plan_matmul(ARCH, spec_of(a, 0, "a"), spec_of(b, 1, "b"), *specs, activation)


def make(*shape: int) -> np.ndarray:
    size = int(np.prod(shape))
    return (np.arange(size, dtype=np.float16) % 7).reshape(shape)


def view_of(spec: ArraySpec, arrays: list[np.ndarray]) -> np.ndarray:
    """The elements that a spec describes, in the memory of the arguments."""
    if spec.argument == ZEROS:
        return np.zeros(spec.shape)
    whole = arrays[min(spec.argument, len(arrays) - 1)]
    whole = np.ascontiguousarray(whole) if spec.packed else whole
    size = whole.itemsize
    address = whole.__array_interface__["data"][0] + spec.offset * size
    source = {"shape": spec.shape, "strides": tuple(s * size for s in spec.strides), "typestr": whole.dtype.str}
    holder = type(
        "Holder", (), {"__array_interface__": {"version": 3, "data": (address, False), **source}, "of": whole}
    )
    return np.asarray(holder())


def compute(found: ArrayPlan, arrays: list[np.ndarray], result: np.ndarray) -> np.ndarray:
    """Carry out a plan with NumPy, with exactly the views, layouts and strides of its problems."""
    for launch in found.launches:
        views = [view_of(spec, [*arrays, result]) for spec in launch.inputs]
        value = views[0].astype(np.float64) @ views[1].astype(np.float64)
        for d in views[2:]:
            value = value + d
        view_of(launch.outputs[0], [*arrays, result])[...] = value
    return result


CASES = {
    "matrices": (make(5, 4), make(4, 3)),
    "transposed b": (make(5, 4), make(3, 4).T),
    "transposed a": (make(4, 5).T, make(4, 3)),
    "both transposed": (make(4, 5).T, make(3, 4).T),
    "columns of a wider array": (make(5, 8)[:, :4], make(4, 6)[:, :3]),
    "every second column": (make(5, 8)[:, ::2], make(4, 3)),
    "reversed rows": (make(5, 4)[::-1], make(4, 3)),
    "vector by matrix": (make(4), make(4, 3)),
    "matrix by vector": (make(5, 4), make(4)),
    "strided vector": (make(8)[::2], make(4, 3)),
    "one B for a batch": (make(2, 5, 4), make(4, 3)),
    "one B for two leading dimensions": (make(2, 3, 5, 4), make(3, 4).T),
    "batch": (make(2, 5, 4), make(2, 4, 3)),
    "batch of transposed": (make(2, 5, 4), make(2, 3, 4).transpose(0, 2, 1)),
    "broadcast a": (make(5, 4), make(2, 4, 3)),
    "broadcast both": (make(2, 1, 5, 4), make(1, 3, 4, 3)),
    "batch last": (make(5, 4, 2).transpose(2, 0, 1), make(2, 4, 3)),
    "one row": (make(1, 4), make(4, 3)),
    "one column": (make(5, 4), make(4, 1)),
    "k of one": (make(5, 1), make(1, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_plans_compute_numpys_product(name: str) -> None:
    a, b = CASES[name]
    found = plan(a, b)
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    assert found.results[0].shape == wanted.shape
    result = np.full(wanted.shape, np.nan)
    np.testing.assert_array_equal(compute(found, [a, b], result), wanted)


@pytest.mark.parametrize("name", CASES)
def test_problems_have_the_layout_and_strides_of_their_views(name: str) -> None:
    from tilewright.ops.gemm.tensors import list_tensors

    for launch in plan(*CASES[name]).launches:
        tensors = list_tensors(launch.problem)
        for tensor, spec in zip(tensors, (*launch.inputs, *launch.outputs), strict=True):
            assert tensor.shape == spec.shape
            pairs = zip(tensor.shape, tensor.strides, spec.strides, strict=True)
            assert all(extent == 1 or mine == real for extent, mine, real in pairs), tensor


@pytest.mark.parametrize(
    ("name", "launches"), [("one B for two leading dimensions", 1), ("batch", 1), ("broadcast both", 6)]
)
def test_a_batch_takes_one_launch_where_memory_allows_it(name: str, launches: int) -> None:
    assert len(plan(*CASES[name]).launches) == launches


@pytest.mark.parametrize("name", ["columns of a wider array", "transposed b", "both transposed", "batch of transposed"])
def test_usable_strides_are_not_copied(name: str) -> None:
    assert not any(spec.packed for launch in plan(*CASES[name]).launches for spec in launch.inputs)


def test_a_bias_vector_is_one_row() -> None:
    (launch,) = plan(make(5, 4), make(4, 3), bias=make(3)).launches
    assert (launch.problem.elementwise, launch.problem.num_d, launch.problem.num_row_d) == ("MultiDAdd", 1, 1)
    assert launch.inputs[2].shape == (3,)


def test_a_bias_of_the_results_shape_is_cut_for_each_product() -> None:
    a, b, bias = make(2, 1, 5, 4), make(1, 3, 4, 3), make(2, 3, 5, 3)
    found = plan(a, b, bias=bias)
    result = np.full((2, 3, 5, 3), np.nan)
    wanted = a.astype(np.float64) @ b.astype(np.float64) + bias
    np.testing.assert_array_equal(compute(found, [a, b, bias], result), wanted)


def test_an_activation_without_bias_gets_a_row_of_zeros() -> None:
    (launch,) = plan(make(5, 4), make(4, 3), activation="silu").launches
    assert launch.problem.elementwise == "Silu"
    assert launch.inputs[2].argument == ZEROS


@pytest.mark.parametrize(("a", "b"), [((0, 4), (4, 3)), ((5, 4), (4, 0)), ((5, 0), (0, 3)), ((0, 5, 4), (4, 3))])
def test_empty_products_need_no_launch(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    found = plan(make(*a), make(*b))
    assert not found.launches
    assert found.zeros
    assert found.results[0].shape == (np.zeros(a) @ np.zeros(b)).shape


def test_an_output_with_gaps_between_rows_is_used_as_it_is() -> None:
    (launch,) = plan(make(5, 4), make(4, 3), out=make(5, 8)[:, :3]).launches
    assert launch.problem.stride_c == 8


def test_an_output_in_another_order_is_copied() -> None:
    found = plan(make(5, 4), make(4, 3), out=make(3, 5).T)
    assert found.results[0].packed


def test_wrong_uses_are_one_error_each() -> None:
    with pytest.raises(TensorError, match="4 columns of a need 4 rows of b"):
        plan(make(5, 4), make(3, 4))
    with pytest.raises(TensorError, match="leading dimensions cannot be broadcast"):
        plan(make(2, 5, 4), make(3, 4, 3))
    with pytest.raises(TensorError, match="must be a vector of 3 elements"):
        plan(make(5, 4), make(4, 3), bias=make(5))
    with pytest.raises(TensorError, match="a and b are vectors"):
        plan(make(4), make(4))
    with pytest.raises(TensorError, match="must be 5×3"):
        plan(make(5, 4), make(4, 3), out=make(5, 4))
    with pytest.raises(UnknownValueError, match="activation"):
        plan(make(5, 4), make(4, 3), activation="swish")
    with pytest.raises(InvalidValueError, match="k is 0"):
        plan(make(5, 0), make(0, 3), bias=make(3))
