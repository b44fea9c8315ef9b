"""Declare a kernel, build it, and run it on an emulated MI300X."""

import numpy as np

import tilewright as tw

kernels = tw.gemm.space(
    variant="standard", dtype="fp16", layout="rcr", block=[(64, 64, 32)],
    waves=[(2, 2, 1)], mma=[(16, 16, 16)], pipeline="compv3", scheduler="intrawave",
    epilogue="cshuffle",
)  # fmt: skip
registry = tw.build(kernels, arch="gfx942")
problem = tw.gemm.Problem(m=128, n=192, k=256, dtype="fp16", layout="rcr")
rng = np.random.default_rng(0)
a, b = (rng.uniform(-1, 1, shape).astype(np.float16) for shape in ((128, 256), (256, 192)))
c = registry.run(problem, a, b, device="emulated:gfx942")
error = np.abs(c - a.astype(float) @ b.astype(float)).max()
print(f"C is {c.shape[0]} × {c.shape[1]}, largest error {error:.4f}")
assert error < 0.01
