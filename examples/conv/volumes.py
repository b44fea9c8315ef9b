"""Convolve in three dimensions, in fp32.

Stride, padding and dilation have one number for all dimensions, or one for each.
"""

import numpy as np
import torch

import tilewright as tw

kernel = tw.grouped_conv.config(
    direction="forward", ndim=3, dtype="fp32", block=(32, 64, 16), waves=(1, 4, 1),
    mma=(16, 16, 16), pipeline="compv3", scheduler="intrawave", epilogue="cshuffle",
    vector=(2, 2, 1),
)  # fmt: skip
rng = np.random.default_rng(0)
volumes = torch.from_numpy(rng.standard_normal((2, 4, 5, 4, 6)).astype(np.float32))  # n, c, depth, height, width
weight = torch.from_numpy(rng.standard_normal((6, 4, 3, 1, 2)).astype(np.float32))
options = {"stride": (1, 2, 1), "padding": (1, 0, 1)}

with tw.options(device="emulated:gfx90a", pool=[kernel]):
    output = tw.conv(volumes, weight, **options)

expected = torch.nn.functional.conv3d(volumes.double(), weight.double(), **options)
error = (output.double() - expected).abs().max().item()
print("from", tuple(volumes.shape[2:]), "to", tuple(output.shape[2:]), f"largest error {error:.1e}")
assert error < 1e-5
