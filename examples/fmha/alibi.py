"""Prefer near keys with ALiBi.

Each head subtracts its slope times the distance of query and key from the scores. The kernel computes it from one
number per head: no bias is stored.
"""

import numpy as np

import tilewright as tw

kernel = tw.fmha.config(
    family="forward", mode="batch", dtype="fp16", pipeline="qr", pads="lengths",
    bias="alibi", tile="64x64x16x32x16x32/4x1x1x4x1x1/16x16x16x16x16x16",
)  # fmt: skip
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((1, 50, 4, 32)).astype(np.float16) for _ in range(3))
slopes = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)

with tw.options(device="emulated:gfx942", pool=[kernel]):
    out = tw.attention(q, k, v, alibi_slopes=slopes)

distance = np.abs(np.arange(50) - np.arange(50)[:, None])
scores = np.einsum("bqhd,bkhd->bhqk", q.astype(float), k.astype(float)) / np.sqrt(32)
weights = np.exp(scores - slopes[:, None, None] * distance)
weights /= weights.sum(-1, keepdims=True)
error = np.abs(out - np.einsum("bhqk,bkhd->bqhd", weights, v.astype(float))).max()
mean = (weights * distance).sum(-1).mean((0, 2))
print("mean distance of keys, by head:", ", ".join(f"{each:.1f}" for each in mean), f"largest error {error:.4f}")
assert error < 0.005 and (np.diff(mean) > 0).all()
