"""Count what a kernel does: instructions, bytes, bank conflicts.

The emulated device counts every launch exactly. Two kernels that give the same result can be compared without a GPU, by
what they ask of it; there are no times.
"""

import numpy as np

import tilewright as tw

same = {
    "variant": "standard", "dtype": "fp16", "layout": "rcr", "waves": (2, 2, 1),
    "mma": (16, 16, 16), "scheduler": "intrawave", "epilogue": "cshuffle",
}  # fmt: skip
kernels = [
    tw.gemm.config(block=(64, 64, 32), pipeline="compv3", **same),
    tw.gemm.config(block=(64, 64, 16), pipeline="mem", **same),
]
registry = tw.build(kernels, arch="gfx942")
problem = tw.gemm.Problem(m=128, n=128, k=256, dtype="fp16", layout="rcr")
rng = np.random.default_rng(0)
a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((128, 256), (256, 128)))

device = tw.Device("emulated:gfx942")
for kernel in registry:
    with device, device.emulating(detailed=True), device.recording() as launches:
        c = registry.run(problem, a, b, kernel=kernel)
    assert (c == a @ b).all()
    counters = launches[-1].counters
    assert counters.matrix_flops == problem.flops
    print(f"{kernel.config.pipeline}, block {kernel.config.block}")
    print(f"  instructions {dict(sorted(counters.instructions.items(), key=lambda each: -each[1]))}")
    print(f"  {counters.barriers} barriers, {counters.cache_lines} cache lines")
    print(f"  {counters.bank_conflict_cycles} cycles of bank conflicts")
