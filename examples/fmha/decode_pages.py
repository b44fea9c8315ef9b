"""Decode one token for each sequence, with keys and values in pages.

`page_table` lists the pages of each sequence, in any order, and `seqlens_k` their lengths. The keys of a sequence are
divided into parts that are computed in parallel by one kernel and combined by another.
"""

import numpy as np

import tilewright as tw

same = {"mode": "batch", "dtype": "fp16"}
kernels = [
    tw.fmha.config(
        family="splitkv", pipeline="qr", pads="lengths", paged=True, uneven_splits=True,
        tile="64x64x32x64x32x64/4x1x1x4x1x1/16x16x16x16x16x16", **same,
    ),
    tw.fmha.config(family="combine", pipeline="combine", block="32x64", log_max_splits=3, pad_q=True, **same),
]  # fmt: skip
lengths = np.array([130, 64, 17], np.int32)
table = np.array([[5, 0, 3], [2, 6, 6], [4, 1, 1]], np.int32)  # unused entries may name any page
rng = np.random.default_rng(0)
q = rng.standard_normal((3, 1, 4, 64)).astype(np.float16)
k, v = (rng.standard_normal((7, 64, 2, 64)).astype(np.float16) for _ in range(2))  # pages, tokens, heads, size

device = tw.Device("emulated:gfx942")
with tw.options(device=device, pool=kernels), device.recording() as launches:
    out = tw.attention(q, k, v, seqlens_k=lengths, page_table=table, num_splits=2)

for place, length in enumerate(lengths):
    keys, values = (each[table[place]].reshape(-1, 2, 64)[:length].repeat(2, axis=1) for each in (k, v))
    scores = np.einsum("hd,khd->hk", q[place, 0].astype(float), keys.astype(float)) / 8
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    error = np.abs(out[place, 0] - np.einsum("hk,khd->hd", weights, values.astype(float))).max()
    print(f"{length:3} tokens in {-(-length // 64)} of 7 pages: largest error {error:.4f}")
    assert error < 0.005
assert len(launches) == 2
