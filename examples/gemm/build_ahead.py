"""Compile before the first call.

`warm` selects the kernels for a list of problems and compiles them in parallel, without a device. With `build="never"`
a call then takes kernels from the store only: without one, it fails at once instead of compiling for seconds.
"""

import numpy as np

import tilewright as tw

problems = [tw.gemm.Problem(m=m, n=64, k=64, dtype="fp16", layout="rrr") for m in (16, 64, 100)]
kernels = tw.warm(problems, "gfx942")
print(f"{len(problems)} problems need {len(kernels)} kernel, {kernels[0].config.block} {kernels[0].config.pipeline}")

with tw.options(device="emulated:gfx942", build="never"):
    a, b = np.ones((100, 64), np.float16), np.ones((64, 64), np.float16)
    assert (tw.matmul(a, b) == 64).all()
