"""Split the gradient of weights into four parts, added in fp32.

The gradient is a sum over all pixels. The parts are added atomically, as fp32 in a workspace (two_stage); then a second
kernel converts them to fp16.
"""

import numpy as np

import tilewright as tw
from tilewright import grouped_conv

kernels = grouped_conv.space(
    direction="backward_weight", ndim=2, dtype="fp16", block=[(64, 64, 32)],
    waves=[(2, 2, 1)], mma=[(16, 16, 32)], pipeline="compv3", scheduler="intrawave",
    epilogue="cshuffle", vector=[(8, 8, 4)], split_k=True, two_stage=True,
)  # fmt: skip
registry = tw.build(kernels, arch="gfx942")

# Two images of 15 × 15 pixels, two groups, each from 16 channels to 24. Pads on one side only, as in a causal filter.
problem = grouped_conv.Problem(
    direction="backward_weight",
    n=2,
    g=2,
    c=32,
    k=48,
    input_size=(15, 15),
    filter_size=3,
    left_pad=2,
    dtype="fp16",
    k_batch=4,
)
rng = np.random.default_rng(0)
grad_output = rng.uniform(-1, 1, (2, 15, 15, 2, 24)).astype(np.float16)  # n, h, w, g, k/g
image = rng.uniform(-1, 1, (2, 15, 15, 2, 16)).astype(np.float16)  # n, h, w, g, c/g

with tw.Device("emulated:gfx942"):
    print(registry.plan(problem).describe())
    grad_weight = registry.run(problem, grad_output, image)

# The expected result: each tap's weights meet what it saw, at all pixels, with the gradient of the output there.
padded = np.pad(image.astype(float), [(0, 0), (2, 0), (2, 0), (0, 0), (0, 0)])
expected = np.zeros((2, 24, 3, 3, 16))  # g, k/g, y, x, c/g
for y, x in np.ndindex(3, 3):
    seen = padded[:, y : y + 15, x : x + 15]
    expected[:, :, y, x] = np.einsum("nhwgk,nhwgc->gkc", grad_output.astype(float), seen)

error = np.abs(grad_weight - expected).max()
assert grad_weight.shape == expected.shape and error < 0.02
print(f"grad_weight is {' × '.join(map(str, grad_weight.shape))}, largest error {error:.4f}")
