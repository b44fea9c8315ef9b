"""Convolve images with one call.

`conv` follows `torch.nn.functional.conv2d`. Kernels work on channels that are last in memory, so arrays with the
channels first are copied; with `layout="channels_last"` nothing is.
"""

import numpy as np

import tilewright as tw

rng = np.random.default_rng(0)
images = rng.integers(-2, 3, (2, 16, 14, 14)).astype(np.float16)  # n, c, h, w
weight = rng.integers(-2, 3, (32, 16, 3, 3)).astype(np.float16)  # k, c, y, x

with tw.options(device="emulated:gfx942"):
    output = tw.conv(images, weight, padding=1)
    last = tw.conv(images.transpose(0, 2, 3, 1), weight.transpose(0, 2, 3, 1), padding=1, layout="channels_last")

padded = np.pad(images.astype(float), [(0, 0), (0, 0), (1, 1), (1, 1)])
taps = ((y, x, padded[:, :, y : y + 14, x : x + 14]) for y, x in np.ndindex(3, 3))
expected = sum(np.einsum("nchw,kc->nkhw", seen, weight[:, :, y, x]) for y, x, seen in taps)
assert (output == expected).all() and (last.transpose(0, 3, 1, 2) == expected).all()  # small integers are exact
print("channels first", output.shape, "and last", last.shape, "are equal and right")
