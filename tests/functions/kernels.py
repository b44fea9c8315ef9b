"""The kernels of these tests: small blocks for any sizes, from CI's list."""

from __future__ import annotations

from tilewright import gemm
from tilewright.ops import kernel_of
from tilewright.ops.kernel import Kernel

ARCH = "gfx942"


def make_gemm(dtype: str, layout: str, **fields: object) -> Kernel:
    """A kernel of 32×32 blocks with pads."""
    values = {
        **{"variant": "standard", "dtype": dtype, "layout": layout, "block": "32x32x16", "waves": "2x2x1"},
        **{"mma": "16x16x16", "pipeline": "compv3", "scheduler": "intrawave", "epilogue": "default"},
        **{"pad_m": True, "pad_n": True, "pad_k": True, **fields},
    }
    return kernel_of(gemm.config(**values), ARCH)  # type: ignore[arg-type]


PRODUCTS = tuple(make_gemm("fp32", layout) for layout in ("rcr", "rrr", "crr", "ccr"))
BATCHED = tuple(make_gemm("fp32", layout, variant="batched") for layout in ("rcr", "rrr", "crr"))
OPERATIONS = tuple(
    make_gemm("fp32", "rcr", variant="multi_d", num_d=1, elementwise=operation)
    for operation in ("MultiDAdd", "Silu", "Relu")
)
HALF = (
    make_gemm("fp16", "rcr", block="64x64x32", epilogue="cshuffle"),
    make_gemm("bf16", "rrr", block="64x64x32"),
)
POOL = (*PRODUCTS, *BATCHED, *OPERATIONS, *HALF)
