"""Multiply 8-bit floating-point numbers: fp8 times bf8.

fp8 has more digits, bf8 a larger range. GPUs differ in their encoding, so ask for the NumPy type of yours. The product
is added up in fp32 and stored as fp16.
"""

import numpy as np

import tilewright as tw
from tilewright.arch.number_formats import to_numpy_dtype

gpu = tw.load("gfx942")
fp8, bf8 = (to_numpy_dtype(name, gpu) for name in ("fp8", "bf8"))
kernel = tw.gemm.config(
    variant="standard", dtype="fp8*bf8", layout="rcr", block=(64, 64, 64),
    waves=(2, 2, 1), mma=(32, 32, 16), pipeline="compv4", scheduler="intrawave",
    epilogue="default",
)  # fmt: skip
registry = tw.build([kernel], arch="gfx942")

problem = tw.gemm.Problem(m=64, n=64, k=256, dtype="fp8*bf8", layout="rcr")
rng = np.random.default_rng(0)
a, b = rng.standard_normal((64, 256)).astype(fp8), rng.standard_normal((256, 64)).astype(bf8)
c = registry.run(problem, a, b, device="emulated:gfx942")

rounded = np.abs(c - a.astype(float) @ b.astype(float)).max()
print(f"{fp8} · {bf8} = {c.dtype}, largest error {rounded:.4f} after the inputs are rounded")
assert rounded < 0.02
