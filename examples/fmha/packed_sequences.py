"""Compute sequences of different lengths without padding.

Sequences are packed one after the other, and `cu_seqlens` has the first token of each. Kernels of mode `group` take
them in one launch.
"""

import numpy as np

import tilewright as tw

kernel = tw.fmha.config(
    family="forward", mode="group", dtype="fp16", pipeline="qr", pads="lengths",
    mask_form="any", lse=True, tile="64x64x32x64x32x64/4x1x1x4x1x1/16x16x16x16x16x16",
)  # fmt: skip
lengths = (5, 70, 33)
starts = np.cumsum((0, *lengths)).astype(np.int32)
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((starts[-1], 2, 64)).astype(np.float16) for _ in range(3))

with tw.options(device="emulated:gfx942", pool=[kernel]):
    packed = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_seqlen_q": 70, "max_seqlen_k": 70}
    out, _ = tw.attention(q, k, v, causal=True, return_lse=True, **packed)

for start, length in zip(starts, lengths, strict=False):
    part = slice(start, start + length)
    scores = np.einsum("qhd,khd->hqk", q[part].astype(float), k[part].astype(float)) / 8
    weights = np.exp(np.where(np.tri(length), scores, -np.inf))
    weights /= weights.sum(-1, keepdims=True)
    error = np.abs(out[part] - np.einsum("hqk,khd->qhd", weights, v[part].astype(float))).max()
    print(f"tokens {start:3} to {start + length:3}: largest error {error:.4f}")
    assert error < 0.005
