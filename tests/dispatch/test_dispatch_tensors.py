"""Tensors of other libraries as views: NumPy, ml_dtypes, DLPack, torch where it is installed."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.arch.number_formats import find_array_dtype
from tilewright.base.errors import TensorError
from tilewright.dispatch.run_tensors import (
    apply_strides,
    check_shapes_and_types,
    is_on_host,
    match_tensors,
    to_tensor_bytes,
)
from tilewright.dispatch.tensors import (
    View,
    compute_packed_strides,
    compute_span,
    find_array_type,
    get_spec,
    parse_dlpack_type,
    parse_dtype_name,
    to_view,
)
from tilewright.ops.execution import Preparation, Tensor


class OnlyDlpack:
    """What a library that NumPy does not know would give: nothing but the protocol."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **asked: Any) -> Any:
        return self.array.__dlpack__(**asked)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_a_numpy_array_with_any_strides() -> None:
    array = np.arange(48, dtype=np.float32).reshape(6, 8)
    view = to_view(array[::-1, 1::2])

    assert (view.shape, view.strides, view.dtype, view.on_host) == ((6, 4), (-8, 2), "fp32", True)
    assert view.address == array.ctypes.data + (5 * 8 + 1) * 4
    assert view.form is to_view(array[::-1, ::2]).form, "equal forms are one object"
    assert view.form is not to_view(array[:, ::2]).form


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (np.float64, "fp64"),
        (np.float16, "fp16"),
        (np.int8, "int8"),
        (np.int32, "int32"),
        (ml_dtypes.bfloat16, "bf16"),
        (ml_dtypes.float8_e4m3fn, "fp8_ocp"),
        (ml_dtypes.float8_e4m3fnuz, "fp8_fnuz"),
        (ml_dtypes.float8_e5m2, "bf8_ocp"),
        (ml_dtypes.float8_e5m2fnuz, "bf8_fnuz"),
    ],
)
def test_element_types(dtype: Any, name: str) -> None:
    assert to_view(np.zeros(3, dtype)).dtype == name
    assert find_array_dtype(name) == np.dtype(dtype)


def test_which_8_bit_float_a_gpu_takes() -> None:
    assert [find_array_type("fp8", tw.load(gpu)) for gpu in ("gfx942", "gfx950", "gfx1201")] == [
        "fp8_fnuz",
        "fp8_ocp",
        "fp8_ocp",
    ]
    tensor = Tensor("a", "bf8", (4,), (1,))
    wrong = to_view(np.zeros(4, ml_dtypes.float8_e5m2))
    check_shapes_and_types([tensor], [wrong], tw.load("gfx950"))
    with pytest.raises(TensorError, match="a is of type bf8_ocp, must be bf8, which is bf8_fnuz on gfx942"):
        check_shapes_and_types([tensor], [wrong], tw.load("gfx942"))
    with pytest.raises(TensorError, match="pk_fp4 packs two values per byte"):
        find_array_type("pk_fp4", tw.load("gfx950"))


def test_arrays_that_cannot_be_passed() -> None:
    with pytest.raises(TensorError, match=r"do not support arrays of uint16\. Known: float64"):
        to_view(np.zeros(3, np.uint16))
    with pytest.raises(TensorError, match="does not have the native byte order"):
        to_view(np.zeros(3, ">f4"))
    odd = np.zeros(4, [("flag", "i1"), ("value", "f4")])["value"]
    with pytest.raises(TensorError, match="not multiples of its 4 bytes"):
        to_view(odd)
    with pytest.raises(TensorError, match=r"builtins\.list is not a tensor"):
        to_view([1.0])


def test_a_dlpack_tensor_is_read_in_place() -> None:
    array = np.arange(24, dtype=np.float64).reshape(4, 6)[::-1, ::3]
    held = OnlyDlpack(array)
    view = to_view(held)

    assert (view.shape, view.strides, view.dtype, view.library) == ((4, 2), (-6, 3), "fp64", "dlpack")
    np.testing.assert_array_equal(view.to_array(), array)
    view.to_array()[0, 0] = 99
    assert array[0, 0] == 99
    assert view.tensor is held


def test_a_dlpack_tensor_lives_as_long_as_its_view() -> None:
    class Noticed(np.ndarray[Any, Any]):
        pass

    array = np.arange(1000, dtype=np.float32).view(Noticed)
    gone = weakref.ref(array)
    view = to_view(OnlyDlpack(array))
    del array
    gc.collect()
    assert gone() is not None
    assert view.to_array()[999] == 999
    del view
    gc.collect()
    assert gone() is None, "the capsule gave the tensor back"


def test_dlpack_that_is_refused() -> None:
    class Elsewhere(OnlyDlpack):
        def __dlpack_device__(self) -> Any:
            return (2, 0)

    class Odd(OnlyDlpack):
        def __dlpack__(self, **asked: Any) -> Any:
            return object()

    with pytest.raises(TensorError, match="DLPack device of type 2"):
        to_view(Elsewhere(np.zeros(3)))
    with pytest.raises(TensorError, match="is not an unused capsule"):
        to_view(Odd(np.zeros(3)))
    with pytest.raises(TensorError, match="type 1/32 with 1 lanes"):
        to_view(OnlyDlpack(np.zeros(3, np.uint32)))
    with pytest.raises(TensorError, match="type 2/32 with 4 lanes"):
        parse_dlpack_type(2, 32, 4)


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(24, dtype=torch.bfloat16).reshape(4, 6).t()
    view = to_view(tensor)
    assert (view.shape, view.strides, view.dtype, view.library) == ((6, 4), (1, 6), "bf16", "torch")
    np.testing.assert_array_equal(view.to_array().astype(np.float32), tensor.float().numpy())
    assert view.tensor is tensor
    with pytest.raises(TensorError, match="detach"):
        to_view(torch.zeros(3, requires_grad=True))
    with pytest.raises(TensorError, match=r"kernels do not support arrays of torch\.complex64"):
        to_view(torch.zeros(3, dtype=torch.complex64))
    assert to_view(OnlyDlpack(torch.zeros(3, dtype=torch.bfloat16))).dtype == "bf16"


def test_names_of_torch_types() -> None:
    assert [parse_dtype_name(name) for name in ("torch.float32", "torch.float8_e4m3fnuz")] == ["fp32", "fp8_fnuz"]


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3).flatmap(
        lambda shape: st.tuples(st.just(tuple(shape)), st.permutations(range(len(shape))), st.integers(0, 3))
    )
)
def test_arrays_are_laid_out_as_a_tensor_wants(drawn: tuple[tuple[int, ...], list[int], int]) -> None:
    shape, order, gap = drawn
    strides = [0] * len(shape)
    step = 1
    for axis in order:
        strides[axis] = step
        step = step * shape[axis] + gap
    tensor = Tensor("a", "fp32", shape, tuple(strides))
    array = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)

    for given_array in (array, np.asfortranarray(array), np.repeat(array, 2, axis=0)[::2]):
        memory = to_tensor_bytes(given_array, tensor).view(np.float32)
        assert memory.size == compute_span(shape, strides)
        for index in np.ndindex(shape):
            assert memory[sum(i * s for i, s in zip(index, strides, strict=True))] == array[index]


SMALL = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz)


@pytest.mark.parametrize("dtype", [*SMALL, ml_dtypes.bfloat16])
def test_types_that_numpy_lacks_are_laid_out(dtype: Any) -> None:
    array = np.arange(-6, 6).astype(dtype).reshape(3, 4)
    packed, with_gaps = Tensor("a", "any", (3, 4), (4, 1)), Tensor("a", "any", (3, 4), (1, 5))
    assert np.shares_memory(to_tensor_bytes(array, packed), array), "what fits is not copied"
    np.testing.assert_array_equal(to_tensor_bytes(array, packed).view(dtype), array.ravel())
    memory = to_tensor_bytes(np.repeat(array, 2, axis=1)[:, ::2], with_gaps).view(dtype)
    for row, column in np.ndindex(3, 4):
        assert memory[row + 5 * column] == array[row, column]
    apart = np.zeros(18, dtype)
    lines = apart[:18].reshape(3, 6)[:, :4]
    lines[...] = array
    octets = to_tensor_bytes(lines, Tensor("a", "any", (3, 4), (6, 1)))
    assert np.shares_memory(octets, apart) and octets.size == 16 * np.dtype(dtype).itemsize


@pytest.mark.parametrize("dtype", SMALL)
def test_a_view_as_an_array_of_a_type_that_numpy_lacks(dtype: Any) -> None:
    array = np.arange(-6, 6).astype(dtype).reshape(3, 4)
    view = View(array[::-1, ::2].ctypes.data, (3, 2), (-4, 2), to_view(array).dtype, None, array, "dlpack")
    again = view.to_array()
    assert again.dtype == array.dtype
    np.testing.assert_array_equal(again, array[::-1, ::2])
    again[0, 1] = 7
    assert array[2, 2] == 7, "it is the same memory"


def test_padding_and_preparation_at_upload() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = Tensor("b", "fp32", (3, 4), (1, 3))
    padded = to_tensor_bytes(array, tensor).view(np.float32).reshape(4, 3).T
    np.testing.assert_array_equal(padded, [[0, 1, 2, 0], [3, 4, 5, 0], [0, 0, 0, 0]])
    turned = [Preparation("b", "b is turned round", lambda b: b[::-1]), Preparation("x", "other", lambda x: x / 0)]
    prepared = to_tensor_bytes(array, tensor, turned).view(np.float32).reshape(4, 3).T
    np.testing.assert_array_equal(prepared, padded[::-1], "padded first, then prepared")


def test_tensors_that_do_not_fit_their_problem() -> None:
    tensors = [Tensor("x", "fp32", (4, 2), (2, 1)), Tensor("y", "fp32", (4,), (1,), output=True)]
    x = to_view(np.zeros((4, 2), np.float32))
    there = View(4096, (4,), (1,), "fp32", 0, None)

    assert match_tensors(tensors, [x], [None]) == [x, None]
    with pytest.raises(TensorError, match=r"has 1 inputs \(x\), and 2 were passed"):
        match_tensors(tensors, [x, x], [None])
    with pytest.raises(TensorError, match=r"has 1 outputs \(y\), and 2 were passed"):
        match_tensors(tensors, [x], [None, None])
    with pytest.raises(TensorError, match="x is 2×4, must be 4×2"):
        check_shapes_and_types(tensors, [to_view(np.zeros((2, 4), np.float32)), None], tw.load("gfx942"))
    with pytest.raises(TensorError, match="x is of type fp64, must be fp32"):
        check_shapes_and_types(tensors, [to_view(np.zeros((4, 2))), None], tw.load("gfx942"))
    with pytest.raises(TensorError, match="x in host memory and y on a device"):
        is_on_host(tensors, [x, there])
    assert is_on_host(tensors, [x, None]) and not is_on_host(tensors, [None, there])


def test_strides_of_device_tensors_enter_the_problem() -> None:
    problem = tw.gemm.Problem(m=4, n=8, k=1, dtype="fp16", layout="rcr")
    execution = tw.gemm.OP.execution
    assert execution is not None
    tensors = execution.tensors(problem)

    def on_gpu(shape: tuple[int, ...], strides: tuple[int, ...]) -> View:
        return View(4096, shape, strides, "fp16", 0, None)

    packed = [on_gpu((4, 1), (77, 5)), on_gpu((1, 8), (99, 1)), on_gpu((4, 8), (8, 1))]
    assert apply_strides(execution, problem, tensors, packed).stride_a == 77
    wide = [*packed[:2], on_gpu((4, 8), (24, 1))]
    assert apply_strides(execution, problem, tensors, wide).stride_c == 24
    with pytest.raises(ValueError, match="c of shape"):
        apply_strides(execution, problem, tensors, [*packed[:2], on_gpu((4, 8), (1, 4))])


def test_forms_are_forgotten_with_their_tensors() -> None:
    form = weakref.ref(get_spec((3, 1234567), (1, 3), "fp32", None))
    gc.collect()
    assert form() is None
    assert compute_packed_strides((2, 3, 4)) == (12, 4, 1)
