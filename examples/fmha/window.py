"""Limit attention to a sliding window.

`window=(left, right)` is the number of visible keys before and after a query; -1 means all. Work outside the window is
skipped: the counters of the emulated device show it.
"""

import numpy as np

import tilewright as tw


def attend(q, k, v, seen=True):
    """The expected result, in float64."""
    scores = np.einsum("bqhd,bkhd->bhqk", q.astype(float), k.astype(float)) / np.sqrt(q.shape[-1])
    weights = np.exp(np.where(seen, scores, -np.inf))
    return np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v.astype(float))


rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((1, 256, 2, 32)).astype(np.float16) for _ in range(3))
distance = np.arange(256) - np.arange(256)[:, None]
flops = {}

device = tw.Device("emulated:gfx942")
for left in (-1, 32):
    with device.recording() as launches:
        out = tw.attention(q, k, v, causal=True, window=(left, -1), device=device)
    seen = (distance <= 0) & ((distance >= -left) if left >= 0 else True)
    error = np.abs(out - attend(q, k, v, seen)).max()
    flops[left] = launches[-1].counters.matrix_flops
    print(f"window {left:3}: {flops[left]:10,} matrix operations, largest error {error:.4f}")
    assert error < 0.005
assert flops[32] < flops[-1]
