"""Run the layers of an existing model on Tilewright's kernels.

`replace_modules` exchanges linear layers and convolutions in place. Parameters stay the same objects, so optimizers and
checkpoints do not change.
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
model = torch.nn.Sequential(
    torch.nn.Linear(20, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 4, bias=False)
)
x = torch.randn(8, 20)
parameters = list(model.parameters())
expected = model(x)

replaced = twt.replace_modules(model)
with tw.options(pool=kernels), twt.emulate("gfx942"):
    found = model(x)

print("replaced:", ", ".join(f"{name} is {type(model.get_submodule(name)).__name__}" for name in replaced))
print("the result differs by rounding only")
assert all(one is other for one, other in zip(parameters, model.parameters(), strict=True))
torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
