"""Standard GEMM: one product of two matrices."""

from __future__ import annotations

from tilewright.ops.gemm.kind import GemmKind
from tilewright.ops.gemm.source import make_context

STANDARD = GemmKind(
    name="standard",
    doc="one product",
    fields=("pad_m", "pad_n", "pad_k", "persistent", "split_k", "vector", "wave_groups", "blocks_per_cu"),
    context=make_context,
    kernel_template="GemmKernel",
)
