"""Causal attention and its gradients: one kernel forward, three backward, all in one registry."""

import numpy as np

import tilewright as tw
from tilewright import fmha

# Tiles for heads of 64 elements. Any length will do: queries and keys are padded in the kernels.
any_length = {"pad_q": True, "pad_k": True}
halves = {"mode": "batch", "dtype": "fp16"}
configs = [
    fmha.Config(
        family="forward", pipeline="qr", block="64x64x32x64x32x64", waves="4x1x1x4x1x1", mma="16x16x16x16x16x16",
        mask_form="any", lse=True, **halves, **any_length,
    ),
    fmha.Config(family="dot_do_o", pipeline="dot_do_o", block="64x64", pad_q=True, **halves),
    fmha.Config(
        family="dq_dk_dv", pipeline="kr_ktr_vr_iglp", block="16x64x64x16x64x16x32x64x64",
        waves="1x4x1x4x1x1x1x4x1", mma="16x16x32x16x16x16x16x16x32", mask_form="any", **halves,
    ),
    fmha.Config(family="convert_dq", pipeline="convert_dq", block="128x32x64x64", pad_q=True, **halves),
]  # fmt: skip
registry = tw.build(configs, arch="gfx942")

# Four query heads share two key heads. Query i sees keys up to i.
shape = {
    "dtype": "fp16", "batch": 1, "heads": 4, "kv_heads": 2, "seqlen_q": 50, "hdim_q": 64, "mask": "top_left",
    "lse": True,
}  # fmt: skip
forward = fmha.Problem(family="forward", **shape)
backward = fmha.Problem(family="backward", **shape)

rng = np.random.default_rng(0)
q, d_o = (rng.standard_normal((1, 50, 4, 64)).astype(np.float16) for _ in range(2))
k, v = (rng.standard_normal((1, 50, 2, 64)).astype(np.float16) for _ in range(2))

with tw.Device("emulated:gfx942"):
    o, lse = registry.run(forward, q, k, v)
    print(registry.plan(backward).describe())
    dq, dk, dv = registry.run(backward, q, k, v, o, lse, d_o)

# What they should be, in float64: heads first, key heads repeated, and summed again at the end.
query, gradient = (x.astype(float).transpose(0, 2, 1, 3) for x in (q, d_o))
key, value = (x.astype(float).transpose(0, 2, 1, 3).repeat(2, axis=1) for x in (k, v))
scores = np.where(np.tri(50), query @ key.swapaxes(2, 3) / 8, -np.inf)
weights = np.exp(scores - scores.max(-1, keepdims=True))
weights /= weights.sum(-1, keepdims=True)
by_weight = gradient @ value.swapaxes(2, 3)
by_score = weights * (by_weight - (weights * by_weight).sum(-1, keepdims=True)) / 8
expected = {
    "o": weights @ value,
    "dq": by_score @ key,
    "dk": (by_score.swapaxes(2, 3) @ query).reshape(1, 2, 2, 50, 64).sum(2),
    "dv": (weights.swapaxes(2, 3) @ gradient).reshape(1, 2, 2, 50, 64).sum(2),
}
errors = {
    name: np.abs(found.transpose(0, 2, 1, 3) - expected[name]).max()
    for name, found in {"o": o, "dq": dq, "dk": dk, "dv": dv}.items()
}
assert max(errors.values()) < 0.02
print("largest errors", ", ".join(f"{name} {error:.4f}" for name, error in errors.items()))
