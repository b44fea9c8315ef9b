"""Multiply two matrices with one call.

`matmul` takes the problem from the arrays, selects a kernel, compiles it on the first call, and runs it: here on an
emulated MI300X. On a GPU you leave the device out.
"""

import numpy as np

import tilewright as tw

rng = np.random.default_rng(0)
a, b = (rng.uniform(-1, 1, (64, 64)).astype(np.float16) for _ in range(2))

c = tw.matmul(a, b, device="emulated:gfx942")

error = np.abs(c - a.astype(float) @ b.astype(float)).max()
print(f"{c.dtype} {c.shape}, largest error {error:.4f}")
assert error < 0.01
