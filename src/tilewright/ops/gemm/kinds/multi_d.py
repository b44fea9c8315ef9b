"""GEMM with D tensors: an element-wise operation combines them with the product."""

from __future__ import annotations

from tilewright.ops.gemm.kind import GemmKind
from tilewright.ops.gemm.source import make_context

MULTI_D = GemmKind(
    name="multi_d",
    doc="an element-wise operation with D tensors is applied to the product",
    fields=("pad_m", "pad_n", "pad_k", "persistent", "elementwise", "num_d", "vector", "wave_groups", "blocks_per_cu"),
    context=make_context,
    kernel_template="GemmKernelMultiD",
)
