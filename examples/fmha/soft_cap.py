"""Limit scores with a soft cap.

With `logits_cap`, a score s becomes cap · tanh(s / cap): large scores stay below the cap, small ones hardly change.
Inputs are fp8 here, and the result is fp32.
"""

import numpy as np

import tilewright as tw
from tilewright.arch.number_formats import to_numpy_dtype

config = tw.fmha.config(
    family="forward", mode="batch", dtype="fp8fp32", pipeline="qr_async",
    pads="vectors", soft_cap=True,
    tile="64x64x32x64x32x64/2x1x1x2x1x1/32x32x32x32x32x32",
)  # fmt: skip
registry = tw.build([config], arch="gfx950")
fp8 = to_numpy_dtype("fp8", tw.load("gfx950"))
rng = np.random.default_rng(0)
q, k, v = ((2 * rng.standard_normal((1, 64, 2, 64))).astype(fp8) for _ in range(3))
scores = np.einsum("bqhd,bkhd->bhqk", q.astype(float), k.astype(float)) / 8

for cap in (50.0, 2.0):
    problem = tw.fmha.Problem(family="forward", dtype="fp8fp32", heads=2, seqlen_q=64, hdim_q=64, logits_cap=cap)
    out = registry.run(problem, q, k, v, device="emulated:gfx950")
    weights = np.exp(cap * np.tanh(scores / cap))
    weights /= weights.sum(-1, keepdims=True)
    error = np.abs(out - np.einsum("bhqk,bkhd->bqhd", weights, v.astype(float))).mean()
    print(f"cap {cap:4}: the largest weight is {weights.max():.2f}, mean error {error:.4f}")
    assert error < 0.05
