"""Compute the gradient of a convolution with respect to its weights, in one part or in several.

It is a long sum over all pixels, with a small result. `split=4` adds four parts of the sum in parallel.
"""

import numpy as np
import torch

import tilewright as tw

kernel = tw.grouped_conv.config(
    direction="backward_weight", ndim=2, dtype="fp16", block=(32, 64, 32),
    waves=(2, 2, 1), mma=(16, 16, 16), pipeline="compv3", scheduler="intrawave",
    epilogue="cshuffle", vector=(4, 8, 8), split_k=True,
)  # fmt: skip
rng = np.random.default_rng(0)
images = torch.from_numpy(rng.integers(-1, 2, (2, 16, 10, 10)).astype(np.float64))
weight = torch.zeros(16, 16, 3, 3, dtype=torch.float64, requires_grad=True)
output = torch.nn.functional.conv2d(images, weight, padding=1)
gradient = torch.from_numpy(rng.integers(-1, 2, tuple(output.shape)).astype(np.float64))
(expected,) = torch.autograd.grad(output, weight, gradient)

device = tw.Device("emulated:gfx942")
with tw.options(device=device, pool=[kernel]):
    for split in (1, 4):
        with device.recording() as launches:
            found = tw.conv_weight_gradient(images.half(), gradient.half(), 3, padding=1, split=split)
        assert torch.equal(found.double(), expected)
        grid = launches[-1].grid
        print(f"split {split}: {grid.x * grid.y * grid.z} work-groups, the same result")
