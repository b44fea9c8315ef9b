"""Compute attention over two halves of the keys, and merge the results.

`return_lse` also gives the logarithm of the sum of exponentials of each query. With it, results over different keys can
be combined exactly: this is how long caches are divided among work-groups, or among GPUs.
"""

import numpy as np

import tilewright as tw

kernel = tw.fmha.config(
    family="forward", mode="batch", dtype="fp16", pipeline="qr", pads="lengths",
    lse=True, tile="64x64x16x32x16x32/4x1x1x4x1x1/16x16x16x16x16x16",
)  # fmt: skip
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((1, tokens, 2, 32)).astype(np.float16) for tokens in (30, 100, 100))

with tw.options(device="emulated:gfx942", pool=[kernel]):
    whole, lse = tw.attention(q, k, v, return_lse=True)
    halves = [tw.attention(q, k[:, part], v[:, part], return_lse=True) for part in (slice(0, 40), slice(40, 100))]

sums = np.logaddexp(halves[0][1], halves[1][1])  # batch, heads, queries
merged = sum(out * np.exp(part - sums).transpose(0, 2, 1)[..., None] for out, part in halves)
print(f"largest difference {np.abs(merged - whole).max():.4f} of results, {np.abs(sums - lse).max():.1e} of logarithms")
assert np.abs(merged - whole).max() < 0.002 and np.abs(sums - lse).max() < 1e-4
