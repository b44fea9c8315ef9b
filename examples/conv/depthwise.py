"""Give each channel its own filter: a depthwise convolution.

It is a convolution with as many groups as channels, here over time. A group has one channel, so the kernel must read
single elements: its vectors are 1 × 1 × 1.
"""

import numpy as np

import tilewright as tw

kernel = tw.grouped_conv.config(
    direction="forward", ndim=1, dtype="fp16", block=(64, 64, 32), waves=(2, 2, 1),
    mma=(16, 16, 16), pipeline="mem", scheduler="intrawave", epilogue="cshuffle",
    vector=(1, 1, 1),
)  # fmt: skip
rng = np.random.default_rng(0)
signals = rng.integers(-2, 3, (2, 6, 50)).astype(np.float16)  # n, channels, time
weight = rng.integers(-2, 3, (6, 1, 5)).astype(np.float16)

with tw.options(device="emulated:gfx942", pool=[kernel]):
    output = tw.conv(signals, weight, padding="same", groups=6)

padded = np.pad(signals, [(0, 0), (0, 0), (2, 2)])
expected = sum(padded[:, :, tap : tap + 50] * weight[:, 0, tap, None] for tap in range(5))
assert (output == expected).all()
print(f"{signals.shape[1]} channels with {weight.shape[2]} taps each: {output.shape}")
