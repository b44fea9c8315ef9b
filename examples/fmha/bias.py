"""Add a bias to the scores.

A bias is broadcast to (batch, heads, queries, keys). Here it depends on the distance of query and key, as a learned
relative position would.
"""

import numpy as np

import tilewright as tw

kernel = tw.fmha.config(
    family="forward", mode="batch", dtype="fp32", pipeline="qr_async",
    bias="elementwise", tile="32x64x16x32x32x32/2x1x1x2x1x1/16x16x16x16x16x16",
    pad_q=True, pad_hdim_q=8, pad_hdim_v=8,
)  # fmt: skip
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((1, 64, 3, 32)).astype(np.float32) for _ in range(3))
by_distance = rng.standard_normal(127).astype(np.float32)
bias = by_distance[np.arange(64) - np.arange(64)[:, None] + 63]  # (64, 64): the same for all heads

with tw.options(device="emulated:gfx90a", pool=[kernel]):
    out = tw.attention(q, k, v, bias=bias)

scores = np.einsum("bqhd,bkhd->bhqk", q.astype(float), k.astype(float)) / np.sqrt(32) + bias
weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
error = np.abs(out - np.einsum("bhqk,bkhd->bqhd", weights, v.astype(float))).max()
print(f"bias {bias.shape} for {q.shape[2]} heads: largest error {error:.1e}")
assert error < 1e-4
