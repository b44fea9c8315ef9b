"""Run the gradient of a dilated convolution with respect to its input, with a registry.

The taps of the filter are two pixels apart. Tensors have a dimension for the groups: n, h, w, g, c/g.
"""

import numpy as np

import tilewright as tw
from tilewright import grouped_conv

kernels = grouped_conv.space(
    direction="backward_data", ndim=2, dtype="fp16", block=[(64, 64, 32)],
    waves=[(2, 2, 1)], mma=[(16, 16, 16)], pipeline="compv3", scheduler="intrawave",
    epilogue="cshuffle", vector=[(4, 8, 8)],
)  # fmt: skip
registry = tw.build(kernels, arch="gfx942")

# Two images of 12 × 12 pixels, two groups, each from 16 channels to 24. The filter reaches over 5 × 5 pixels.
problem = grouped_conv.Problem(
    direction="backward_data", n=2, g=2, c=32, k=48, input_size=(12, 12), filter_size=3, dilation=2, pad=2, dtype="fp16"
)
rng = np.random.default_rng(0)
grad_output = rng.uniform(-1, 1, (2, 12, 12, 2, 24)).astype(np.float16)  # n, h, w, g, k/g
weight = rng.uniform(-1, 1, (2, 24, 3, 3, 16)).astype(np.float16)  # g, k/g, y, x, c/g

with tw.Device("emulated:gfx942"):
    print(registry.plan(problem).describe())
    grad_input = registry.run(problem, grad_output, weight)

# The expected result: each tap gives the gradient of an output back to the pixel that it saw.
padded = np.zeros((2, 16, 16, 2, 16))
for y, x in np.ndindex(3, 3):
    seen = padded[:, 2 * y : 2 * y + 12, 2 * x : 2 * x + 12]
    seen += np.einsum("nhwgk,gkc->nhwgc", grad_output.astype(float), weight[:, :, y, x].astype(float))
expected = padded[:, 2:-2, 2:-2]  # n, h, w, g, c/g

error = np.abs(grad_input - expected).max()
assert grad_input.shape == expected.shape and error < 0.02
print(f"grad_input is {' × '.join(map(str, grad_input.shape))}, largest error {error:.4f}")
