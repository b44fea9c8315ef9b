"""Compute a convolution with a filter of one tap as a plain GEMM.

With stride 1 and no padding, pixels are rows and channels are columns of a matrix. Kernels with `explicit_gemm` use
this, and reject every other convolution.
"""

import ml_dtypes
import numpy as np

import tilewright as tw

config = tw.grouped_conv.config(
    direction="forward", ndim=1, dtype="bf16", block=(32, 128, 16), waves=(2, 2, 1),
    mma=(16, 16, 16), pipeline="compv6", scheduler="intrawave", epilogue="cshuffle",
    vector=(8, 8, 8), specialization="filter1x1_stride1_pad0", explicit_gemm=True,
)  # fmt: skip
registry = tw.build([config], arch="gfx950")
sizes = {"direction": "forward", "n": 2, "c": 64, "k": 128, "input_size": (48,), "dtype": "bf16"}
problem = tw.grouped_conv.Problem(filter_size=1, **sizes)
m, n, k = tw.grouped_conv.compute_gemm_sizes(problem)
rng = np.random.default_rng(0)
signals = rng.integers(-2, 3, (2, 48, 1, 64)).astype(ml_dtypes.bfloat16)  # n, w, g, c/g
weight = rng.integers(-1, 2, (1, 128, 1, 64)).astype(ml_dtypes.bfloat16)  # g, k/g, x, c/g
output = registry.run(problem, signals, weight, device="emulated:gfx950")

expected = signals.astype(np.float32).reshape(m, k) @ weight.astype(np.float32).reshape(n, k).T
assert (output.astype(np.float32).reshape(m, n) == expected).all()
print(f"a GEMM of {m} × {n} × {k}: the same result")
for reason in tw.fits(config, tw.grouped_conv.Problem(filter_size=3, pad=1, **sizes), "gfx950"):
    print("three taps:", reason)
