"""Pad channels that the vectors of a kernel do not divide.

A registry runs a convolution with stride 2 and groups of 12 and 20 channels. The plan shows what it pads.
"""

import numpy as np

import tilewright as tw
from tilewright import grouped_conv

kernels = grouped_conv.space(
    direction="forward", ndim=2, dtype="fp16", block=[(64, 64, 32)], waves=[(2, 2, 1)],
    mma=[(16, 16, 32)], pipeline="compv3", scheduler="intrawave", epilogue="cshuffle",
    vector=[(8, 8, 8)],
)  # fmt: skip
registry = tw.build(kernels, arch="gfx942")

# Two images of 15 × 15 pixels, two groups, each from 12 channels to 20.
problem = grouped_conv.Problem(
    direction="forward", n=2, g=2, c=24, k=40, input_size=(15, 15), filter_size=3, stride=2, pad=1, dtype="fp16"
)
rng = np.random.default_rng(0)
image = rng.uniform(-1, 1, (2, 15, 15, 2, 12)).astype(np.float16)  # n, h, w, g, c/g
weight = rng.uniform(-1, 1, (2, 20, 3, 3, 12)).astype(np.float16)  # g, k/g, y, x, c/g

with tw.Device("emulated:gfx942"):
    print(registry.plan(problem, pad=True).describe())
    output = registry.run(problem, image, weight, pad=True)

# The expected result: each tap of the filter sees every second pixel, and multiplies it with a matrix of weights.
padded = np.pad(image.astype(float), [(0, 0), (1, 1), (1, 1), (0, 0), (0, 0)])
expected = np.zeros((2, 8, 8, 2, 20))  # n, h, w, g, k/g
for y, x in np.ndindex(3, 3):
    seen = padded[:, y : y + 15 : 2, x : x + 15 : 2]
    expected += np.einsum("nhwgc,gkc->nhwgk", seen, weight[:, :, y, x].astype(float))

error = np.abs(output - expected).max()
assert output.shape == expected.shape and error < 0.01
print(f"output is {' × '.join(map(str, output.shape))}, largest error {error:.4f}")
