"""Multiply PyTorch tensors with a registry.

Tensors in, a tensor out. Tensors in host memory are copied to the emulated device; on a GPU nothing is copied.
"""

import torch

import tilewright as tw

kernels = tw.gemm.space(
    variant="standard", dtype="bf16", layout="rrr", block=[(64, 64, 32)],
    waves=[(2, 2, 1)], mma=[(16, 16, 16)], pipeline="compv3", scheduler="intrawave",
    epilogue="default", pad_m=True, pad_n=True, pad_k=True,
)  # fmt: skip
registry = tw.build(kernels, arch="gfx942")
torch.manual_seed(0)
a, b = torch.rand(100, 72).bfloat16(), torch.rand(72, 88).bfloat16()
problem = tw.gemm.Problem(m=100, n=88, k=72, dtype="bf16", layout="rrr")
with tw.Device("emulated:gfx942"):
    print(registry.plan(problem).describe())
    c = registry.run(problem, a, b)
assert isinstance(c, torch.Tensor) and c.dtype == torch.bfloat16
torch.testing.assert_close(c.double(), a.double() @ b.double(), rtol=2**-7, atol=0)
print(f"{c.dtype}, largest value {c.max().item():.2f}")
