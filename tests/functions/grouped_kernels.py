"""The grouped GEMM kernels of these tests, from CI's list."""

from __future__ import annotations

from typing import Any

from tilewright import grouped_gemm
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


# Groups of rows; of terms; of columns.
ROWS, TERMS, COLUMNS = make_grouped(), make_grouped(layout="crr", pipeline="mem"), make_grouped(epilogue="default")
POOL = (ROWS, TERMS, COLUMNS)
