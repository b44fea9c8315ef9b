"""The top-k and sorting kernels of these tests, from CI's list."""

from __future__ import annotations

from typing import Any

from tilewright import moe_sorting, topk
from tilewright.ops import kernel_of
from tilewright.ops.kernel import Kernel

ARCH = "gfx942"


def make_topk(gpu: str = ARCH, **fields: Any) -> Kernel:
    """A kernel for up to 64 experts."""
    values = {"activation": "softmax", "dtype": "fp32", "experts": 64, "rows": 1, "threads": 64, "vector": 1}
    return kernel_of(topk.config(**{**values, **fields}), gpu)


SOFTMAX = make_topk()


def make_sorting(gpu: str = ARCH, **fields: Any) -> Kernel:
    """A kernel for up to 1637 experts."""
    return kernel_of(moe_sorting.config(**{"tile": 1, **fields}), gpu)


SORTING = make_sorting()
