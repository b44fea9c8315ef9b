"""Choose the type of a product with autocast.

Inside `torch.autocast`, operators convert their inputs, and a kernel of that type is selected.
"""

import torch

import tilewright as tw
import tilewright.torch as twt

same = {
    "variant": "standard", "layout": "rrr", "waves": (2, 2, 1), "mma": (16, 16, 16),
    "pipeline": "compv3", "scheduler": "intrawave", "epilogue": "default",
    "pad_m": True, "pad_n": True, "pad_k": True,
}  # fmt: skip
kernels = [
    tw.gemm.config(dtype="fp32", block=(32, 32, 16), **same),
    tw.gemm.config(dtype="bf16", block=(64, 64, 32), **same),
]
torch.manual_seed(0)
a, b = torch.randn(40, 64), torch.randn(64, 24)
expected = a.double() @ b.double()

with tw.options(pool=kernels), twt.emulate("gfx942"):
    single = twt.mm(a, b)
    with torch.autocast("cpu", torch.bfloat16):
        half = twt.mm(a, b)

for found in (single, half):
    print(f"{found.dtype}: largest error {(found.double() - expected).abs().max().item():.0e}")
assert (single.dtype, half.dtype) == (torch.float32, torch.bfloat16)
torch.testing.assert_close(half.double(), expected, rtol=0.05, atol=0.2)
