"""Use weights in the order in which matrix instructions read them.

Kernels of the variant `preshuffle` need B reordered once. The plan names this preparation; `run` does it for arrays in
host memory. For weights on a device, prepare them once and pass `prepared=["b"]`.
"""

import numpy as np

import tilewright as tw

kernel = tw.gemm.config(
    variant="preshuffle", dtype="fp16", layout="rcr", block=(16, 128, 64),
    waves=(1, 2, 1), mma=(16, 16, 32), pipeline="preshufflev2", scheduler="default",
    epilogue="default",
)  # fmt: skip
registry = tw.build([kernel], arch="gfx942")
problem = tw.gemm.Problem(m=32, n=128, k=256, dtype="fp16", layout="rcr")
rng = np.random.default_rng(0)
a, b = (rng.uniform(-1, 1, shape).astype(np.float16) for shape in ((32, 256), (256, 128)))

with tw.Device("emulated:gfx942"):
    for preparation in registry.plan(problem).preparations:
        print(f"{preparation.tensor}: {preparation.what}")
    c = registry.run(problem, a, b)

error = np.abs(c - a.astype(float) @ b.astype(float)).max()
print(f"largest error {error:.4f}")
assert error < 0.01
