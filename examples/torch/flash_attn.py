"""Call attention with the signature of flash-attn.

`flash_attn_func`, `flash_attn_varlen_func` and `flash_attn_with_kvcache` take the arguments of flash-attn 2.8, so an
import is all that you change.
"""

import torch

import tilewright as tw
from tilewright.torch import emulate, flash_attn_func

kernel = tw.fmha.config(
    family="forward", mode="batch", dtype="fp16", pipeline="qr", pads="lengths",
    mask_form="any", lse=True, tile="64x64x16x32x16x32/4x1x1x4x1x1/16x16x16x16x16x16",
)  # fmt: skip
generator = torch.Generator().manual_seed(0)
q, k, v = (torch.randn(1, 40, heads, 32, generator=generator).half() for heads in (4, 2, 2))

with tw.options(pool=[kernel]), emulate("gfx942"):
    out = flash_attn_func(q, k, v, causal=True)
    local = flash_attn_func(q, k, v, causal=True, window_size=(8, 0))

heads_first = [each.double().transpose(1, 2) for each in (q, k.repeat_interleave(2, 2), v.repeat_interleave(2, 2))]
expected = torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=True).transpose(1, 2)
error = (out.double() - expected).abs().max().item()
print(f"{tuple(out.shape)} {out.dtype}, largest error {error:.4f}")
assert error < 0.005
assert torch.allclose(local[:, :9], out[:, :9], atol=1e-3) and not torch.allclose(local[:, 20:], out[:, 20:], atol=1e-3)
