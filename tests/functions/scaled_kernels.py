"""The kernels with scales of these tests, from CI's list."""

from __future__ import annotations

from typing import Any

from tilewright import gemm_quant
from tilewright.ops import kernel_of
from tilewright.ops.kernel import Kernel

ARCH = "gfx942"


def make_scaled(quant: str, gpu: str = ARCH, **fields: Any) -> Kernel:
    """A kernel for any M, for N that are multiples of 8, and K that are multiples of 16."""
    values: dict[str, Any] = {
        **{"quant": quant, "dtype": "fp8", "dtype_c": "bf16", "layout": "rcr", "block": (64, 64, 64)},
        **{"waves": (2, 2, 1), "mma": (16, 16, 32), "pipeline": "compv3", "scheduler": "intrawave"},
    }
    return kernel_of(gemm_quant.config(**{**values, "pad_n": True, "pad_k": True, **fields}), gpu)


ROWCOL, TENSOR = make_scaled("rowcol"), make_scaled("tensor")
# A small block compiles fast; two groups of columns need 256 of them.
GROUPS = make_scaled("b128x128", block=(16, 128, 128), waves=(1, 4, 1), pad_m=True)
COLUMNS = make_scaled("b1x128", block=(32, 32, 128), pad_m=True)
# A wave has two mma tiles along M: the scales of the second one are those that CK Tile could take from wrong rows.
ROWS = make_scaled("a1x128", block=(32, 32, 128), waves=(1, 2, 1), pad_m=True)
# With CK Tile's headers of 2026-06 only.
BOTH = make_scaled("a1x128_b128x128", block=(32, 128, 128), waves=(1, 4, 1), pad_m=True)
POOL = (ROWCOL, TENSOR, GROUPS, COLUMNS, ROWS)
