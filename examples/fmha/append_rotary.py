"""Append new keys and values to a cache, rotated by their position.

`append_to_cache` writes in place, after the tokens that each sequence has. New keys and queries are rotated by the
angles of their positions; then you call `attention` over the cache.
"""

import numpy as np

import tilewright as tw

kernel = tw.fmha.config(
    family="appendkv", mode="batch", dtype="fp16", pipeline="appendkv",
    block="64x64x64x64", rotary="half", pad_q=True, pad_k=True,
)  # fmt: skip
lengths = np.array([70, 0, 5], np.int32)  # tokens that are in the cache already
rng = np.random.default_rng(0)
q = rng.standard_normal((3, 1, 4, 64)).astype(np.float16)
k, v = (rng.standard_normal((3, 1, 2, 64)).astype(np.float16) for _ in range(2))
k_cache, v_cache = (np.zeros((3, 128, 2, 64), np.float16) for _ in range(2))
angles = np.arange(128)[:, None] * 10000.0 ** (-np.arange(32) / 32)
cos, sin = np.cos(angles).astype(np.float16), np.sin(angles).astype(np.float16)
old = q.copy()

with tw.options(device="emulated:gfx942", pool=[kernel]):
    tw.append_to_cache(q, k_cache, v_cache, k, v, seqlens_k=lengths, rotary_cos=cos, rotary_sin=sin, causal=True)


def rotate(x, position):
    c, s = cos[position].astype(float), sin[position].astype(float)
    return np.concatenate([x[..., :32] * c - x[..., 32:] * s, x[..., 32:] * c + x[..., :32] * s], axis=-1)


for place, length in enumerate(lengths):
    assert np.allclose(k_cache[place, length], rotate(k[place, 0].astype(float), length), atol=0.005)
    assert np.allclose(q[place, 0], rotate(old[place, 0].astype(float), length), atol=0.005)
    assert (v_cache[place, length] == v[place, 0]).all()
    turned = np.abs(k_cache[place, length].astype(float) - k[place, 0]).max()
    print(f"sequence {place}: written at {length:2}, rotation changed an element by up to {turned:.2f}")
assert np.count_nonzero(v_cache.any(axis=(2, 3))) == 3
