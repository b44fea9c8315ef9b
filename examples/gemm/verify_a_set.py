"""Verify kernels of a preselected set.

Each kernel runs on problems at its edges, in strict mode, and every element is compared with a reference. The tolerance
follows from types and sizes.
"""

import tilewright as tw
from tilewright.emulator import Mode

device = tw.Device("emulated:gfx942")
kernels = list(tw.sets()["fp16_rcr_latency"].kernels("gfx942"))[:2]
registry = tw.build(kernels)
for kernel in registry:
    problems = tw.gemm.OP.execution.trials(kernel.config, device.arch)[-3:]
    for check in tw.verify(kernel, registry.artifact(kernel), device, problems, mode=Mode.STRICT):
        problem, counters = check.problem, check.counters
        print(
            f"block {kernel.config.block!s:10} {problem.m:4} × {problem.n:4} × {problem.k:4}: {check.verdict}, "
            f"{check.error_ulps:.2f} ulps, {counters.bank_conflict_cycles} cycles of bank conflicts"
        )
        assert check.ok
