"""Kernels of RDNA whose lanes have negative offsets in registers, which those of the instructions make positive."""

from __future__ import annotations

import pytest
from on_device import device_of

from built_kernels import built
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.block_gemm.types import expand_dtype
from tilewright.ops.grouped_conv import Problem

pytestmark = [pytest.mark.compile, pytest.mark.slow]

CONV = find_op("grouped_conv")
CONFIG = {
    "direction": "backward_data",
    "ndim": 1,
    **expand_dtype("bf16"),
    "block": (64, 128, 16),
    "waves": (1, 8, 1),
    "mma": (16, 16, 16),
    "pipeline": "mem",
    "vector": (4, 8, 8),
}
BASE = {"direction": "backward_data", "n": 2, "c": 64, "dtype": "bf16"}


def test_filters_with_more_steps_than_are_prefetched() -> None:
    """At the left edge of the first image; a filter of one tap, or few steps, has no such lanes."""
    kernel = CONV.make_kernel(CONV.make_example(CONFIG), "gfx1100")
    shapes = [(64, 3, 0), (64, 3, 1), (128, 3, 0), (32, 5, 2), (64, 1, 0)]
    problems = [Problem(**BASE, k=k, input_size=(17,), filter_size=(f,), pad=(p,)) for k, f, p in shapes]
    found = verify(kernel, built([kernel])[0], device_of(kernel), problems, mode=Mode.STRICT)
    assert [(check.problem, check.message) for check in found if not check.ok] == []
