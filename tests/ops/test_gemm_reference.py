"""The reference of GEMM against sums written out, and the inputs it is tried with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright import arch as archs
from tilewright.arch.number_formats import compute_spacing, find_format, is_representable, to_numpy_dtype
from tilewright.base.errors import InvalidValueError
from tilewright.ops.gemm.config import ELEMENTWISE
from tilewright.ops.gemm.reference import compute_reference, make_inputs

GFX942, GFX950 = archs.load("gfx942"), archs.load("gfx950")
TYPES = ("fp32", "fp16", "bf16", "fp8", "bf8", "fp8*bf8", "bf8*fp8", "int8")


def problem(**values: Any) -> Any:
    return tw.gemm.Problem(**{"m": 5, "n": 4, "k": 6, "dtype": "fp16", "layout": "rcr", **values})


# Each operation in its textbook form; FastGelu is CK Tile's polynomial inside tanh.
FORMULAS: dict[str, Callable[[float, list[float]], float]] = {
    "PassThrough": lambda c, ds: c,
    "MultiDAdd": lambda c, ds: c + sum(ds),
    "MultiDMultiply": lambda c, ds: c * math.prod(ds),
    "Relu": lambda c, ds: max(c + sum(ds), 0.0),
    "Gelu": lambda c, ds: (x := c + sum(ds)) * (1 - math.erfc(x / math.sqrt(2)) / 2),
    "FastGelu": lambda c, ds: 0.5 * (x := c + sum(ds)) * (1 + math.tanh(x * (0.797885 + 0.035677 * x * x))),
    "Silu": lambda c, ds: (x := c + sum(ds)) * (1 + math.tanh(x / 2)) / 2,
    "Sigmoid": lambda c, ds: (1 + math.tanh((c + sum(ds)) / 2)) / 2,
    "Tanh": lambda c, ds: -math.expm1(-2 * (c + sum(ds))) / (1 + math.exp(-2 * (c + sum(ds)))),
}


def loops(made: Any, given: dict[str, Any]) -> np.ndarray[Any, Any]:
    """C with sums and operations written out, element by element."""
    formula = FORMULAS[made.elementwise]
    shape = (made.batch, made.m, made.n)
    c = np.zeros(shape)
    arrays = {name: np.broadcast_to(array, (made.batch, *array.shape[-2:])) for name, array in given.items()}
    for i, row, column in np.ndindex(shape):
        total = math.fsum(float(arrays["a"][i, row, x]) * float(arrays["b"][i, x, column]) for x in range(made.k))
        ds = [float(arrays[f"d{x}"][i, row, column]) for x in range(made.num_d)]
        c[i, row, column] = formula(total, ds)
    return c if made.batch > 1 else c[0]


def test_all_operations_have_a_formula() -> None:
    assert set(FORMULAS) == set(ELEMENTWISE)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("batch", [1, 3])
def test_products_of_all_types(dtype: str, batch: int) -> None:
    made = problem(dtype=dtype, batch=batch)
    given = make_inputs(made, 7, GFX942)
    c = compute_reference(made, given, GFX942)["c"]
    assert c.shape == ((3, 5, 4) if batch > 1 else (5, 4))
    assert c.dtype == (np.int64 if dtype == "int8" else np.float64)
    np.testing.assert_allclose(c, loops(made, given), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("elementwise", ELEMENTWISE)
@pytest.mark.parametrize("num_d", [1, 2])
@pytest.mark.parametrize("dtype", ["fp16", "int8"])
def test_element_wise_operations(elementwise: str, num_d: int, dtype: str) -> None:
    made = problem(elementwise=elementwise, num_d=num_d, dtype=dtype)
    given = make_inputs(made, 3, GFX942)
    if dtype == "int8":  # sums on which the functions are not flat
        given["a"] = np.clip(given["a"], -1, 1)
        given["b"] = np.clip(given["b"], -1, 1)
    c = compute_reference(made, given, GFX942)["c"]
    # The constants of CK Tile are rounded to fp32: 2e-8 of the argument.
    np.testing.assert_allclose(c, loops(made, given), rtol=2e-6, atol=2e-7)


def test_memory_layout_does_not_matter() -> None:
    made = problem()
    given = make_inputs(made, 1, GFX942)
    turned = {name: np.asfortranarray(array) for name, array in given.items()}
    strided = {name: np.repeat(array, 2, axis=1)[:, ::2] for name, array in given.items()}
    expected = compute_reference(made, given, GFX942)["c"]
    assert np.array_equal(compute_reference(made, turned, GFX942)["c"], expected)
    assert np.array_equal(compute_reference(made, strided, GFX942)["c"], expected)


def test_large_integers_are_exact() -> None:
    made = problem(dtype="int8", k=3000)
    given = {"a": np.full((5, 3000), -128, np.int8), "b": np.full((3000, 4), -128, np.int8)}
    assert compute_reference(made, given, GFX942)["c"].tolist() == [[3000 * 16384] * 4] * 5


def test_eight_bit_floats_are_encoded_as_the_gpu_does() -> None:
    made = problem(dtype="fp8*bf8")
    fnuz, ocp = make_inputs(made, 5, GFX942), make_inputs(made, 5, GFX950)
    assert (fnuz["a"].dtype, fnuz["b"].dtype) == (ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz)
    assert (ocp["a"].dtype, ocp["b"].dtype) == (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
    # One bit pattern, two meanings: the biases differ by one.
    bits = np.array([0x40], np.uint8)
    assert float(bits.view(fnuz["a"].dtype)[0]) == 1.0 and float(bits.view(ocp["a"].dtype)[0]) == 2.0


def test_packed_types_have_no_arrays() -> None:
    with pytest.raises(InvalidValueError, match="packs two values per byte"):
        to_numpy_dtype("pk_fp4", GFX950)


@pytest.mark.parametrize("dtype", TYPES)
def test_seed_0_gives_whole_numbers_with_exact_sums(dtype: str) -> None:
    made = problem(dtype=dtype, k=160, num_d=1, elementwise="MultiDAdd")
    given = make_inputs(made, 0, GFX942)
    for array in given.values():
        values = array.astype(np.float64)
        assert np.array_equal(values, np.rint(values)) and len(np.unique(values)) > 2
    magnitude = np.abs(given["a"].astype(float)) @ np.abs(given["b"].astype(float))
    assert magnitude.max() <= 2**24
    held = is_representable(compute_reference(made, given, GFX942)["c"], made.dtype_c, GFX942)
    assert held.mean() > 0.9


def test_inputs_depend_on_the_seed_only() -> None:
    made = problem()
    assert np.array_equal(make_inputs(made, 4, GFX942)["a"], make_inputs(made, 4, GFX942)["a"])
    assert not np.array_equal(make_inputs(made, 4, GFX942)["a"], make_inputs(made, 5, GFX942)["a"])


@pytest.mark.parametrize("arch", [GFX942, GFX950], ids=lambda a: str(a.name))
@pytest.mark.parametrize("name", ["fp64", "fp32", "fp16", "bf16", "fp8", "bf8"])
def test_spacing_is_that_of_the_real_type(name: str, arch: Any) -> None:
    kind = to_numpy_dtype(name, arch)
    finfo = np.finfo(kind) if name in ("fp64", "fp32", "fp16") else ml_dtypes.finfo(kind)
    stated = find_format(name, arch)
    assert float(finfo.smallest_normal) == stated.smallest_normal
    assert float(finfo.smallest_subnormal) == stated.smallest
    one = np.array([1.0])
    assert compute_spacing(one, name, arch)[0] == float(finfo.eps)
    for value in (1.0, 1.5, 3.0, stated.smallest_normal, stated.smallest):
        step = float(compute_spacing(np.array([value]), name, arch)[0])
        assert float(kind.type(value + step)) == value + step
        assert is_representable(np.array([value, value + step]), name, arch).all()
        if value + step / 2 != value:
            assert not is_representable(np.array([value + step / 2]), name, arch).any()
