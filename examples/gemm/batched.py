"""Multiply a batch of matrices in one launch.

Leading dimensions are a batch, as in `numpy.matmul`. The option `pool` replaces the kernels to select from: here it has
one kernel of the variant `batched`.
"""

import numpy as np

import tilewright as tw

kernel = tw.gemm.config(
    variant="batched", dtype="fp32", layout="rrr", block=(32, 32, 16), waves=(2, 2, 1),
    mma=(16, 16, 16), pipeline="compv3", scheduler="intrawave", epilogue="default",
    pad_m=True, pad_n=True, pad_k=True,
)  # fmt: skip
rng = np.random.default_rng(0)
a, b = rng.integers(-4, 5, (3, 40, 24)).astype("float32"), rng.integers(-4, 5, (3, 24, 20)).astype("float32")

device = tw.Device("emulated:gfx942")
with tw.options(device=device, pool=[kernel]), device.recording() as launches:
    c = tw.matmul(a, b)

print(f"{len(a)} products of {a.shape[1:]} and {b.shape[1:]} in {len(launches)} launch")
assert (c == a @ b).all()  # sums of small integers are exact
