"""Train a linear layer.

`tilewright.torch.Linear` takes the place of `torch.nn.Linear`: the product, both gradients and the sum of the bias run
on Tilewright's kernels. Tensors in host memory are computed by an emulated GPU inside `emulate`.
"""

import torch

import tilewright as tw
import tilewright.torch as twt

same = {
    "dtype": "fp32", "block": (32, 32, 16), "waves": (2, 2, 1), "mma": (16, 16, 16),
    "pipeline": "compv3", "scheduler": "intrawave", "epilogue": "default",
    "pad_m": True, "pad_n": True, "pad_k": True,
}  # fmt: skip
kernels = [
    tw.gemm.space(variant="standard", layout=["rcr", "rrr", "crr"], **same),
    tw.gemm.config(variant="multi_d", layout="rcr", num_d=1, elementwise="MultiDAdd", **same),
]
torch.manual_seed(0)
x, wanted = torch.randn(64, 20), torch.randn(20, 8)
layer = twt.Linear(20, 8)
optimizer = torch.optim.SGD(layer.parameters(), lr=2.0)

losses = []
with tw.options(pool=kernels), twt.emulate("gfx942"):
    for _ in range(6):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(layer(x), x @ wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
print("loss", ", ".join(f"{loss:.3f}" for loss in losses))
assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0] / 2
