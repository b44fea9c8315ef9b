"""Compare the precision of fp32, fp16 and bf16.

The type of the arrays selects the kernel. All three add up in fp32: inputs and the result lose the digits.
"""

import ml_dtypes
import numpy as np

import tilewright as tw

any_size = {"pad_m": True, "pad_n": True, "pad_k": True}
same = {"variant": "standard", "layout": "rrr", "scheduler": "intrawave", **any_size}
small = {"waves": (2, 2, 1), "mma": (16, 16, 16), "pipeline": "compv3", "epilogue": "default", **same}
kernels = [
    tw.gemm.config(dtype="fp32", block=(32, 32, 16), **small),
    tw.gemm.config(dtype="bf16", block=(64, 64, 32), **small),
    tw.gemm.config(
        dtype="fp16", block=(16, 64, 64), waves=(1, 4, 1), mma=(16, 16, 32), pipeline="mem", epilogue="cshuffle", **same
    ),
]
rng = np.random.default_rng(0)
a, b = rng.uniform(-1, 1, (48, 100)), rng.uniform(-1, 1, (100, 40))

errors = []
with tw.options(device="emulated:gfx942", pool=kernels):
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        c = tw.matmul(a.astype(dtype), b.astype(dtype))
        errors.append(np.abs(c.astype(float) - a @ b).max())
        print(f"{c.dtype!s:9} largest error {errors[-1]:.1e}")
assert errors == sorted(errors) and errors[0] < 1e-5
