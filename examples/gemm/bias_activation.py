"""Add a bias and apply an activation in the same kernel.

A linear layer keeps its weights as (outputs, inputs). `w.T` is a view, and no copy is made: the kernel reads B column
by column. Bias and activation are part of the kernel, so the result is written once.
"""

import numpy as np

import tilewright as tw

rng = np.random.default_rng(0)
x = rng.standard_normal((16, 256)).astype(np.float16)
w = (rng.standard_normal((64, 256)) / 16).astype(np.float16)
bias = rng.standard_normal(64).astype(np.float16)

y = tw.matmul(x, w.T, bias=bias, activation="silu", device="emulated:gfx942")

total = x.astype(float) @ w.T.astype(float) + bias.astype(float)
error = np.abs(y - total / (1 + np.exp(-total))).max()
print(f"silu(x @ w.T + bias) is {y.shape[0]} × {y.shape[1]}, largest error {error:.4f}")
assert error < 0.01
