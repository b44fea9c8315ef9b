"""Use one kernel for sequences of any length.

Lengths are run-time values. The kernel computes whole tiles and masks their edges, so work grows in steps.
"""

import numpy as np

import tilewright as tw


def attend(q, k, v, seen=True):
    """The expected result, in float64."""
    scores = np.einsum("bqhd,bkhd->bhqk", q.astype(float), k.astype(float)) / np.sqrt(q.shape[-1])
    weights = np.exp(np.where(seen, scores, -np.inf))
    return np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v.astype(float))


rng = np.random.default_rng(0)
device = tw.Device("emulated:gfx942")
for tokens in (5, 17, 64, 65, 130):
    q, k, v = (rng.standard_normal((1, tokens, 2, 32)).astype(np.float16) for _ in range(3))
    with device.recording() as launches:
        out = tw.attention(q, k, v, causal=True, device=device)
    error = np.abs(out - attend(q, k, v, np.tri(tokens, dtype=bool))).max()
    counters = launches[-1].counters
    print(f"{tokens:3} tokens: {counters.waves:2} waves, {counters.matrix_flops:9,} matrix FLOP, error {error:.4f}")
    assert error < 0.005
