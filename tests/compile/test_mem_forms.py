"""Every form of the pipeline mem, which prefetches up to 8 steps: the trials of a kernel have 5 steps at the most.

A form is a tail of so many steps, with a loop before it or without. CK Tile compiles an instance for each.
"""

from __future__ import annotations

import pytest
from on_device import device_of

from built_kernels import built
from tilewright import arch as archs
from tilewright.building.compile_job import CODE_OBJECT
from tilewright.building.inspect import inspect_object
from tilewright.building.toolchain import find_toolchain
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op

pytestmark = pytest.mark.compile

PREFETCHED = 8  # steps of 64x64x16 in fp16 that make up 32 KB (PrefetchStages in gemm_pipeline_ag_bg_cr_mem.hpp)
TILE = {"block": (64, 64, 16), "mma": (16, 16, 16), "pipeline": "mem"}


def test_every_number_of_prefetched_steps() -> None:
    gemm = find_op("gemm")
    kernel = gemm.make_kernel(gemm.make_example(TILE), "gfx942")
    (artifact,) = built([kernel])
    problems = [
        gemm.problem_type(m=64, n=64, k=16 * steps, dtype="fp16", layout="rcr")
        for steps in range(1, 2 * PREFETCHED + 1)
    ]
    device = device_of(kernel)
    with device.recording() as launches:
        checks = verify(kernel, artifact, device, problems, mode=Mode.STRICT)
    assert [(check.problem.k, check.message) for check in checks if not check.ok] == []
    code = inspect_object(artifact.verify_file(CODE_OBJECT), archs.load(kernel.arch), find_toolchain())
    compiled = {each.name for each in code if each.is_op}
    assert len(compiled) == 2 * PREFETCHED
    assert {launch.kernel for launch in launches} == compiled
