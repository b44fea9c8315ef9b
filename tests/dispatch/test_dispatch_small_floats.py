"""GEMMs of 8-bit floats, from arrays of ml_dtypes with any strides."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from built_kernels import built
from tilewright.base.errors import TensorError

pytestmark = pytest.mark.compile

DEVICE = tw.Device("emulated:gfx942")
PROBLEM = tw.gemm.Problem(m=64, n=128, k=128, dtype_a="fp8", dtype_b="bf8", dtype_c="fp16", layout="rcr")


@pytest.fixture(scope="module")
def gemms() -> tw.Registry:
    config = tw.gemm.config(
        variant="standard", dtype_a="fp8", dtype_b="bf8", dtype_acc="fp32", dtype_c="fp16", layout="rcr",
        block=(64, 64, 64), waves=(2, 2, 1), mma=(32, 32, 16), pipeline="compv4", scheduler="intrawave",
        epilogue="default",
    )  # fmt: skip
    kernel = tw.kernel_of(config, "gfx942")
    return tw.Registry((kernel,), dict(zip((kernel,), built([kernel]), strict=True)))


def values(rows: int, columns: int, dtype: type, seed: int) -> np.ndarray:
    """Small whole numbers, which all 8-bit floats hold."""
    return np.random.default_rng(seed).integers(-3, 4, (rows, columns)).astype(dtype)


def test_arrays_with_any_strides(gemms: tw.Registry) -> None:
    a = values(64, 128, ml_dtypes.float8_e4m3fnuz, 1)
    b = values(128, 128, ml_dtypes.float8_e5m2fnuz, 2)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(gemms.run(PROBLEM, a, b, device=DEVICE), expected, "a row by row, b must be turned")
    np.testing.assert_array_equal(gemms.run(PROBLEM, a, np.asfortranarray(b), device=DEVICE), expected)
    backwards, apart = a[::-1].copy()[::-1], np.repeat(b, 3, axis=1)[:, ::3]
    out = np.full((64, 256), np.nan, np.float16)
    gemms.run(PROBLEM, backwards, apart, out=out[:, ::2], device=DEVICE)
    np.testing.assert_array_equal(out[:, ::2], expected)
    assert np.isnan(out[:, 1::2]).all()


def test_the_other_encoding_is_refused(gemms: tw.Registry) -> None:
    a = values(64, 128, ml_dtypes.float8_e4m3fn, 1)
    b = values(128, 128, ml_dtypes.float8_e5m2fnuz, 2)
    with pytest.raises(TensorError, match="a is of type fp8_ocp, must be fp8, which is fp8_fnuz on gfx942"):
        gemms.run(PROBLEM, a, b, device=DEVICE)
