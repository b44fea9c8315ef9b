"""Multiply 8-bit integers without any rounding.

Products are added up in int32 and stored as int32: the result is exact.
"""

import numpy as np

import tilewright as tw

kernel = tw.gemm.config(
    variant="standard", dtype="int8", layout="rrr", block=(128, 64, 32),
    waves=(8, 2, 1), mma=(16, 16, 32), pipeline="compv4", scheduler="intrawave",
    epilogue="cshuffle", pad_n=True, split_k=True,
)  # fmt: skip
registry = tw.build([kernel], arch="gfx950")
problem = tw.gemm.Problem(m=128, n=80, k=256, dtype="int8", layout="rrr")
rng = np.random.default_rng(0)
a, b = rng.integers(-128, 128, (128, 256), np.int8), rng.integers(-128, 128, (256, 80), np.int8)

c = registry.run(problem, a, b, device="emulated:gfx950")

expected = a.astype(np.int32) @ b.astype(np.int32)
print(f"{a.dtype} · {b.dtype} = {c.dtype}, from {c.min():,} to {c.max():,}")
assert c.dtype == np.int32 and (c == expected).all()
print("equal to NumPy's result in every element")
