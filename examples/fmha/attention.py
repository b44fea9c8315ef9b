"""Compute causal attention with one call.

Queries, keys and values are (batch, tokens, heads, size). `causal=True` hides later keys: the last query is aligned
with the last key, so that new queries see all tokens of a longer cache.
"""

import numpy as np

import tilewright as tw


def attend(q, k, v, seen=True):
    """The expected result, in float64."""
    scores = np.einsum("bqhd,bkhd->bhqk", q.astype(float), k.astype(float)) / np.sqrt(q.shape[-1])
    weights = np.exp(np.where(seen, scores, -np.inf))
    return np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v.astype(float))


rng = np.random.default_rng(0)
q = rng.standard_normal((2, 40, 4, 32)).astype(np.float16)
k, v = (rng.standard_normal((2, 64, 4, 32)).astype(np.float16) for _ in range(2))

out = tw.attention(q, k, v, causal=True, device="emulated:gfx942")

seen = np.arange(64) <= np.arange(40)[:, None] + 64 - 40
error = np.abs(out - attend(q, k, v, seen)).max()
print(f"{out.shape[1]} queries, {k.shape[1]} keys: largest error {error:.4f}")
assert error < 0.005
