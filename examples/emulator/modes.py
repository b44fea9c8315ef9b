"""Run a kernel in fast and in strict mode.

Fast mode applies every effect at once. Strict mode delays loads and runs waves one after another, so that a missing
wait or barrier gives a wrong result. A correct kernel computes the same in all modes.
"""

import numpy as np

import tilewright as tw
from tilewright.emulator import Mode

kernel = tw.gemm.config(
    variant="standard", dtype="fp16", layout="rcr", block=(64, 64, 32), waves=(2, 2, 1),
    mma=(16, 16, 16), pipeline="compv3", scheduler="intrawave", epilogue="cshuffle",
)  # fmt: skip
registry = tw.build([kernel], arch="gfx942")
problem = tw.gemm.Problem(m=64, n=128, k=96, dtype="fp16", layout="rcr")
rng = np.random.default_rng(0)
a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((64, 96), (96, 128)))

device = tw.Device("emulated:gfx942")
results = {}
for name, settings in {
    "fast": {"mode": Mode.FAST},
    "strict": {"mode": Mode.STRICT},
    "strict, waves in the other order": {"mode": Mode.STRICT, "turned": True},
}.items():
    with device, device.emulating(**settings), device.recording() as launches:
        results[name] = registry.run(problem, a, b)
    executed = sum(launches[-1].counters.instructions.values())
    print(f"{name}: {executed:,} instructions")
assert all((each == results["fast"]).all() for each in results.values())
print("all results are equal, bit by bit")
