"""Compute attention of 8-bit floating-point numbers.

Queries, keys and values are fp8, and so is the result. Probabilities are rounded to fp8 between the two products, so
you trade digits for half the memory of fp16.
"""

import numpy as np

import tilewright as tw
from tilewright.arch.number_formats import to_numpy_dtype

config = tw.fmha.config(
    family="forward", mode="batch", dtype="fp8", pipeline="qr",
    tile="128x64x32x64x32x64/4x1x1x4x1x1/32x32x32x32x32x32",
)  # fmt: skip
registry = tw.build([config], arch="gfx942")
problem = tw.fmha.Problem(family="forward", dtype="fp8", heads=2, seqlen_q=128, seqlen_k=64, hdim_q=64)
fp8 = to_numpy_dtype("fp8", tw.load("gfx942"))
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((1, tokens, 2, 64)).astype(fp8) for tokens in (128, 64, 64))

out = registry.run(problem, q, k, v, device="emulated:gfx942")

scores = np.einsum("bqhd,bkhd->bhqk", q.astype(float), k.astype(float)) / 8
weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
expected = np.einsum("bhqk,bkhd->bqhd", weights, v.astype(float))
error = np.abs(out.astype(float) - expected)
print(f"{out.dtype}: mean error {error.mean():.4f} of values around {np.abs(expected).mean():.2f}")
assert error.mean() < 0.03 and error.max() < 0.2
