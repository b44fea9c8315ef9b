"""Divide the channels into groups.

Each group of output channels reads only its own input channels: a quarter of the weights, and a quarter of the work.
"""

import numpy as np

import tilewright as tw

rng = np.random.default_rng(0)
images = rng.integers(-2, 3, (2, 32, 8, 8)).astype(np.float16)
weight = rng.integers(-2, 3, (32, 8, 3, 3)).astype(np.float16)  # 32 outputs, each of 8 of the 32 inputs

with tw.options(device="emulated:gfx942"):
    grouped = tw.conv(images, weight, padding=1, groups=4)
    parts = [tw.conv(images[:, part], weight[part], padding=1) for part in (slice(g, g + 8) for g in range(0, 32, 8))]

assert (grouped == np.concatenate(parts, axis=1)).all()
problem = tw.grouped_conv.Problem(
    direction="forward", n=2, g=4, c=32, k=32, input_size=(8, 8), filter_size=3, pad=1, dtype="fp16"
)
print(f"4 groups of {problem.group_channels} channels, {problem.flops:,} operations: equal to 4 convolutions")
