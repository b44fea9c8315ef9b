"""Train a convolution: forward, and both gradients.

`tilewright.torch.Conv2d` takes the place of `torch.nn.Conv2d`. Tensors in the memory format channels_last are not
copied.
"""

import torch

import tilewright as tw
import tilewright.torch as twt

same = {
    "ndim": 2, "dtype": "fp16", "waves": (2, 2, 1), "pipeline": "compv3",
    "scheduler": "intrawave", "epilogue": "cshuffle",
}  # fmt: skip
config = tw.grouped_conv.config
kernels = [
    config(direction="forward", block=(64, 64, 32), mma=(16, 16, 32), vector=(8, 8, 8), **same),
    config(direction="backward_data", block=(64, 64, 32), mma=(16, 16, 16), vector=(4, 8, 8), **same),
    config(direction="backward_weight", block=(32, 64, 32), mma=(16, 16, 16), vector=(4, 8, 8), split_k=True, **same),
]
torch.manual_seed(0)
layer = twt.Conv2d(16, 16, 3, padding=1, bias=False, dtype=torch.float16)
reference = torch.nn.Conv2d(16, 16, 3, padding=1, bias=False, dtype=torch.float64)
reference.weight.data.copy_(layer.weight)
images = torch.randn(2, 16, 8, 8).half().to(memory_format=torch.channels_last).requires_grad_()
wide = images.detach().double().requires_grad_()

with tw.options(pool=kernels), twt.emulate("gfx942"):
    output = layer(images)
    (output.float() ** 2).mean().backward()
(reference(wide) ** 2).mean().backward()

pairs = {"images": (images.grad, wide.grad), "weights": (layer.weight.grad, reference.weight.grad)}
for name, (found, expected) in pairs.items():
    error = ((found.double() - expected).norm() / expected.norm()).item()
    print(f"gradient of {name}: {tuple(found.shape)}, relative error {error:.4f}")
    assert error < 0.01
