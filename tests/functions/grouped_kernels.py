"""The grouped GEMM kernels of these tests, and the one that quantises their rows, from CI's list."""

from __future__ import annotations

from typing import Any

from tilewright import grouped_gemm, norm
from tilewright.ops import kernel_of
from tilewright.ops.kernel import Kernel

ARCH = "gfx942"


def make_grouped(gpu: str = ARCH, **fields: Any) -> Kernel:
    """A small kernel for any M, and for N and K that are multiples of 8."""
    values: dict[str, Any] = {
        **{"dtype": "bf16", "layout": "rcr", "block": (32, 32, 32), "waves": (2, 2, 1), "mma": (16, 16, 16)},
        **{"pipeline": "compv3", "scheduler": "intrawave", "epilogue": "cshuffle"},
    }
    return kernel_of(grouped_gemm.config(**{**values, "pad_m": True, "pad_n": True, "pad_k": True, **fields}), gpu)


def make_scaled(gpu: str = ARCH, **fields: Any) -> Kernel:
    """A small kernel with scales, for any M, and for N and K that are multiples of 8."""
    values: dict[str, Any] = {"dtype": "fp8", "dtype_c": "bf16", "block": (32, 32, 64), "mma": (16, 16, 32)}
    return make_grouped(gpu, **{**values, "pad_m": False, **fields})


def make_quantizer(gpu: str = ARCH) -> Kernel:
    """A kernel that quantises rows of up to 512 elements of bf16."""
    values: dict[str, Any] = {"kind": "smoothquant", "dtype": "bf16", "dtype_y": "fp8", "quant": "smooth"}
    return kernel_of(norm.config(**values, rows=4, columns=512, threads=64, vector=1, pad=True), gpu)


# Groups of rows; of terms; of columns.
ROWS, TERMS, COLUMNS = make_grouped(), make_grouped(layout="crr", pipeline="mem"), make_grouped(epilogue="default")
POOL = (ROWS, TERMS, COLUMNS)
SCALED, QUANTIZER = make_scaled(), make_quantizer()
