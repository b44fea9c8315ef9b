"""GEMM's kinds of kernels: its variants, one file for each."""

from __future__ import annotations

from tilewright.ops.gemm.kinds.batched import BATCHED
from tilewright.ops.gemm.kinds.multi_d import MULTI_D
from tilewright.ops.gemm.kinds.preshuffle import PRESHUFFLE
from tilewright.ops.gemm.kinds.standard import STANDARD

KINDS = (STANDARD, PRESHUFFLE, MULTI_D, BATCHED)
