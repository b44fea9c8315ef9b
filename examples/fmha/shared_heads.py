"""Share keys and values between heads: grouped-query attention.

Keys and values may have fewer heads than queries. Eight query heads read two key heads here, so a cache is a quarter as
large. No array is repeated in memory.
"""

import numpy as np

import tilewright as tw


def attend(q, k, v, seen=True):
    """The expected result, in float64."""
    scores = np.einsum("bqhd,bkhd->bhqk", q.astype(float), k.astype(float)) / np.sqrt(q.shape[-1])
    weights = np.exp(np.where(seen, scores, -np.inf))
    return np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v.astype(float))


rng = np.random.default_rng(0)
q = rng.standard_normal((1, 48, 8, 32)).astype(np.float16)
k, v = (rng.standard_normal((1, 48, 2, 32)).astype(np.float16) for _ in range(2))

out = tw.attention(q, k, v, causal=True, device="emulated:gfx942")

expected = attend(q, k.repeat(4, axis=2), v.repeat(4, axis=2), np.tri(48, dtype=bool))
error = np.abs(out - expected).max()
print(f"{q.shape[2]} heads share {k.shape[2]}: keys have {k.nbytes:,} bytes instead of {q.nbytes:,}, error {error:.4f}")
assert error < 0.005
