"""Compute the gradients of attention.

The forward call returns the logarithms that the gradient needs. Three kernels compute it, one after another; the plan
owns the memory between them.
"""

import torch

import tilewright as tw

same = {"mode": "batch", "dtype": "fp16"}
tile = "16x64x64x16x64x16x32x64x64/1x4x1x4x1x1x1x4x1/16x16x32x16x16x16x16x16x32"
kernels = [
    tw.fmha.config(
        family="forward", pipeline="qr", pads="lengths", lse=True,
        tile="64x64x16x32x16x32/4x1x1x4x1x1/16x16x16x16x16x16", **same,
    ),
    tw.fmha.config(family="dot_do_o", pipeline="dot_do_o", block="64x128", pad_q=True, pad_hdim_v=1, **same),
    tw.fmha.config(family="dq_dk_dv", pipeline="kr_ktr_vr_iglp", tile=tile, pad_hdim_q=8, pad_hdim_v=8, **same),
    tw.fmha.config(family="convert_dq", pipeline="convert_dq", block="128x32x64x128", pad_q=True, pad_hdim_q=1, **same),
]  # fmt: skip
generator = torch.Generator().manual_seed(0)
q, k, v, d_out = (torch.randn(1, 50, 2, 32, generator=generator).half() for _ in range(4))

with tw.options(device="emulated:gfx942", pool=kernels):
    out, lse = tw.attention(q, k, v, return_lse=True)
    gradients = tw.attention_gradient(d_out, q, k, v, out, lse)

leaves = [tensor.double().transpose(1, 2).requires_grad_() for tensor in (q, k, v)]
torch.nn.functional.scaled_dot_product_attention(*leaves).backward(d_out.double().transpose(1, 2))
for name, found, leaf in zip(("dq", "dk", "dv"), gradients, leaves, strict=True):
    error = (found.double() - leaf.grad.transpose(1, 2)).abs().max().item()
    print(f"{name}: largest error {error:.4f} of values up to {leaf.grad.abs().max():.2f}")
    assert error < 0.01
