"""Convolve in one dimension.

The number of spatial dimensions follows from the arrays: one for sound or text, two for images, three for volumes. A
kernel computes one of them.
"""

import numpy as np
import torch

import tilewright as tw

kernel = tw.grouped_conv.config(
    direction="forward", ndim=1, dtype="fp16", block=(64, 64, 32), waves=(2, 2, 1),
    mma=(16, 16, 16), pipeline="mem", scheduler="intrawave", epilogue="cshuffle",
    vector=(1, 1, 1),
)  # fmt: skip
rng = np.random.default_rng(0)
lines = torch.from_numpy(rng.integers(-2, 3, (2, 6, 30)).astype(np.float16))
weight = torch.from_numpy(rng.integers(-2, 3, (9, 6, 5)).astype(np.float16))

with tw.options(device="emulated:gfx942", pool=[kernel]):
    output = tw.conv(lines, weight, stride=2, padding=3, dilation=2)

expected = torch.nn.functional.conv1d(lines.double(), weight.double(), stride=2, padding=3, dilation=2)
assert torch.equal(output.double(), expected)
print("from", tuple(lines.shape), "to", tuple(output.shape), "as torch computes it")
