"""Skip pixels with a stride, and spread the filter with a dilation.

Both are run-time values: one kernel computes all of these convolutions.
"""

import numpy as np
import torch

import tilewright as tw

rng = np.random.default_rng(0)
images = torch.from_numpy(rng.integers(-2, 3, (1, 16, 14, 14)).astype(np.float16))
weight = torch.from_numpy(rng.integers(-2, 3, (32, 16, 3, 3)).astype(np.float16))

with tw.options(device="emulated:gfx942"):
    for stride, dilation, padding in ((1, 1, 1), (2, 1, 1), (1, 2, 2), ((2, 1), (1, 3), (1, 3))):
        options = {"stride": stride, "dilation": dilation, "padding": padding}
        output = tw.conv(images, weight, **options)
        expected = torch.nn.functional.conv2d(images.double(), weight.double(), **options)
        assert torch.equal(output.double(), expected)
        print(f"stride {stride!s:7} dilation {dilation!s:7} padding {padding!s:7} gives {tuple(output.shape[2:])}")
