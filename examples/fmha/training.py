"""Compute causal attention and its gradients with one registry.

The plan shows the three kernels of the gradient and the memory between them. Four query heads share two key heads.
"""

import numpy as np

import tilewright as tw
from tilewright import fmha

same = {"mode": "batch", "dtype": "fp16"}
tile = "16x64x64x16x64x16x32x64x64/1x4x1x4x1x1x1x4x1/16x16x32x16x16x16x16x16x32"
configs = [
    fmha.config(
        family="forward", pipeline="qr", pads="lengths", mask_form="any", lse=True,
        tile="64x64x16x32x16x32/4x1x1x4x1x1/16x16x16x16x16x16", **same,
    ),
    fmha.config(family="dot_do_o", pipeline="dot_do_o", block="64x128", pad_q=True, pad_hdim_v=1, **same),
    fmha.config(family="dq_dk_dv", pipeline="kr_ktr_vr_iglp", tile=tile, pads="heads", mask_form="causal", **same),
    fmha.config(family="convert_dq", pipeline="convert_dq", block="128x32x64x128", pad_q=True, pad_hdim_q=1, **same),
]  # fmt: skip
registry = tw.build(configs, arch="gfx942")
shape = {"dtype": "fp16", "heads": 4, "kv_heads": 2, "seqlen_q": 50, "hdim_q": 32, "mask": "top_left", "lse": True}
forward, backward = (fmha.Problem(family=family, **shape) for family in ("forward", "backward"))

rng = np.random.default_rng(0)
q, d_o = (rng.standard_normal((1, 50, 4, 32)).astype(np.float16) for _ in range(2))
k, v = (rng.standard_normal((1, 50, 2, 32)).astype(np.float16) for _ in range(2))
with tw.Device("emulated:gfx942"):
    o, lse = registry.run(forward, q, k, v)
    print(registry.plan(backward).describe())
    dq, dk, dv = registry.run(backward, q, k, v, o, lse, d_o)

# The expected values, in float64: heads first, key heads repeated, and summed again at the end.
query, gradient = (x.astype(float).transpose(0, 2, 1, 3) for x in (q, d_o))
key, value = (x.astype(float).transpose(0, 2, 1, 3).repeat(2, axis=1) for x in (k, v))
weights = np.exp(np.where(np.tri(50), query @ key.swapaxes(2, 3) / np.sqrt(32), -np.inf))
weights /= weights.sum(-1, keepdims=True)
by_weight = gradient @ value.swapaxes(2, 3)
by_score = weights * (by_weight - (weights * by_weight).sum(-1, keepdims=True)) / np.sqrt(32)
expected = {
    "o": weights @ value,
    "dq": by_score @ key,
    "dk": (by_score.swapaxes(2, 3) @ query).reshape(1, 2, 2, 50, 32).sum(2),
    "dv": (weights.swapaxes(2, 3) @ gradient).reshape(1, 2, 2, 50, 32).sum(2),
}
for name, found in {"o": o, "dq": dq, "dk": dk, "dv": dv}.items():
    error = np.abs(found.transpose(0, 2, 1, 3) - expected[name]).max()
    print(f"{name}: largest error {error:.4f}")
    assert error < 0.02
