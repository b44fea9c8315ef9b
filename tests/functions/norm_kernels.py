"""The norm kernels of these tests, from CI's list."""

from __future__ import annotations

from tilewright import norm
from tilewright.ops import kernel_of
from tilewright.ops.kernel import Kernel

ARCH = "gfx942"


def make_norm(kind: str, dtype: str = "fp32", dtype_y: str = "", **fields: object) -> Kernel:
    """A kernel for rows of any length up to 512."""
    values = {"kind": kind, "dtype": dtype, "dtype_y": dtype_y or dtype, "rows": 4, "columns": 512, "threads": 64}
    return kernel_of(norm.config(**{**values, "vector": 1, "pad": True, **fields}), ARCH)  # type: ignore[arg-type]


RMS, LAYER, HALF_RMS = make_norm("rms"), make_norm("layer"), make_norm("rms", "fp16")
# Two waves share a row.
WAVES = {"rows": 1, "columns": 1024, "threads": 128, "vector": 8}
QUANTIZED = make_norm("rms", "fp16", "int8", residual="store", quant="dynamic", **WAVES)
POOL = (RMS, LAYER, QUANTIZED)
