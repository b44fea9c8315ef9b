"""Enlarge images with a transposed convolution.

It is the gradient of a plain convolution with respect to its input: the two channel counts are swapped, and the size of
the result is an argument, because several sizes have the same gradient.
"""

import numpy as np
import torch

import tilewright as tw

kernel = tw.grouped_conv.config(
    direction="backward_data", ndim=2, dtype="fp16", block=(64, 64, 32),
    waves=(2, 2, 1), mma=(16, 16, 16), pipeline="compv3", scheduler="intrawave",
    epilogue="cshuffle", vector=(4, 8, 8),
)  # fmt: skip
rng = np.random.default_rng(0)
images = torch.from_numpy(rng.integers(-2, 3, (1, 16, 5, 5)).astype(np.float16))
weight = torch.from_numpy(rng.integers(-2, 3, (16, 8, 3, 3)).astype(np.float16))

with tw.options(device="emulated:gfx942", pool=[kernel]):
    larger = tw.conv_input_gradient(images, weight, (10, 10), stride=2, padding=1)

torchs = torch.nn.functional.conv_transpose2d
expected = torchs(images.double(), weight.double(), stride=2, padding=1, output_padding=1)
assert torch.equal(larger.double(), expected)
print("from", tuple(images.shape), "to", tuple(larger.shape), "as torch computes it")
