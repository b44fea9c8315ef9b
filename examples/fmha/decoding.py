"""Decode one token: append it to a cache of pages, then compute attention in parts.

The registry has three kernels: one appends and rotates, one computes parts of the keys, one combines them.
"""

import numpy as np

import tilewright as tw
from tilewright import fmha

same = {"mode": "batch", "dtype": "fp16"}
tile = "64x64x32x64x32x64/4x1x1x4x1x1/16x16x16x16x16x16"
configs = [
    fmha.config(
        family="appendkv", pipeline="appendkv", block="64x64x64x64", rotary="half",
        paged=True, pads="lengths", **same
    ),
    fmha.config(family="splitkv", pipeline="qr", tile=tile, paged=True, uneven_splits=True, pads="lengths", **same),
    fmha.config(family="combine", pipeline="combine", block="32x64", log_max_splits=3, pad_q=True, **same),
]  # fmt: skip
registry = tw.build(configs, arch="gfx942")

# Two sequences with 70 and 130 tokens in a cache of 8 pages of 64 tokens. Every head has 64 elements.
pages, page_size, heads, head = 8, 64, 2, 64
lengths = np.array([70, 130], np.int32)
table = np.array([[5, 2, 0], [1, 7, 4]], np.int32)  # which pages a sequence has, in order
cache = {"dtype": "fp16", "batch": 2, "heads": 2, "seqlen_q": 1, "seqlen_k": 192, "hdim_q": 64, "page_size": 64}
append = fmha.Problem(family="appendkv", seqlen_new=1, rotary="half", pages=8, **cache)
attend = fmha.Problem(family="forward", num_splits=3, pages=8, **cache)

rng = np.random.default_rng(0)
k, v = (rng.standard_normal((pages, page_size, heads, head)).astype(np.float16) for _ in range(2))
q, k_new, v_new = (rng.standard_normal((2, 1, heads, head)).astype(np.float16) for _ in range(3))
angle = np.outer(np.arange(3 * page_size), 10000.0 ** (-np.arange(0, head, 2) / head))
cos, sin = np.cos(angle).astype(np.float16), np.sin(angle).astype(np.float16)


def rotated(x, position):
    low, high = x[..., : head // 2].astype(float), x[..., head // 2 :].astype(float)
    c, s = cos[position].astype(float), sin[position].astype(float)
    return np.concatenate([low * c - high * s, high * c + low * s], axis=-1)


# The expected result: the tokens of each sequence in order, and the new one after them.
expected = np.zeros((2, 1, heads, head))
for i, length in enumerate(lengths):
    keys = np.concatenate([k[table[i]].reshape(-1, heads, head)[:length], rotated(k_new[i], length)])
    values = np.concatenate([v[table[i]].reshape(-1, heads, head)[:length], v_new[i]])
    scores = np.einsum("qhd,khd->hqk", rotated(q[i], length), keys.astype(float)) / np.sqrt(head)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected[i] = np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), values.astype(float))

with tw.Device("emulated:gfx942"):
    q, k, v = registry.run(append, k_new, v_new, lengths, table, cos, sin, out=(q, k, v))
    print(registry.plan(attend).describe())
    o = registry.run(attend, q, k, v, lengths + 1, table)

error = np.abs(o - expected).max()
assert error < 0.01
print(f"o is {' × '.join(map(str, o.shape))}, largest error {error:.4f}")
