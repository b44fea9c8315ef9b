"""Compute the gradient of a convolution with respect to its input.

The arguments are those of the forward call, with the gradient of the output and the size of the input.
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
images = torch.from_numpy(rng.integers(-2, 3, (2, 16, 9, 9)).astype(np.float64)).requires_grad_()
weight = torch.from_numpy(rng.integers(-2, 3, (16, 16, 3, 3)).astype(np.float64))
output = torch.nn.functional.conv2d(images, weight, stride=2, padding=1)
gradient = torch.from_numpy(rng.integers(-2, 3, tuple(output.shape)).astype(np.float64))
(expected,) = torch.autograd.grad(output, images, gradient)

with tw.options(device="emulated:gfx942", pool=[kernel]):
    found = tw.conv_input_gradient(gradient.half(), weight.half(), (9, 9), stride=2, padding=1)

assert torch.equal(found.double(), expected)
print("the gradient", tuple(found.shape), "is equal to torch's")
