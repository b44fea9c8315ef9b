"""Verify kernels of a preselected set: edge sizes, strict mode, every element held against a reference."""

from itertools import islice

import tilewright as tw
from tilewright.emulator import Mode

GPU = "gfx942"
kernels = list(islice(tw.sets()["fp16_rcr_latency"].kernels(GPU), 2))
registry = tw.build(kernels)
device = tw.Device(f"emulated:{GPU}")
checks = []
for kernel in kernels:
    problems = tw.gemm.OP.execution.trials(kernel.config, device.arch)[:4]
    checks += tw.verify(kernel, registry.artifact(kernel), device, problems, mode=Mode.STRICT)
for check in checks:
    problem, counters = check.problem, check.counters
    print(
        f"{check.kernel.digest} {problem.m:4} × {problem.n:4} × {problem.k:4}: {check.verdict}, "
        f"{check.error_ulps:.2f} ulps, {counters.bank_conflict_cycles} cycles of bank conflicts"
    )
assert all(check.ok for check in checks)
print("all right")
