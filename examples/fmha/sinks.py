"""Keep the first tokens visible in a sliding window.

Sinks are first keys that the window never hides. Their number is compiled into the kernel; a kernel without them
rejects the problem.
"""

from dataclasses import replace

import numpy as np

import tilewright as tw

config = tw.fmha.config(
    family="forward", mode="batch", dtype="fp16", pipeline="qr", pads="lengths",
    mask_form="any", sink=4, tile="64x64x16x32x16x32/4x1x1x4x1x1/16x16x16x16x16x16",
)  # fmt: skip
registry = tw.build([config], arch="gfx942")
problem = tw.fmha.Problem(
    family="forward", dtype="fp16", heads=2, seqlen_q=200, hdim_q=32, mask="top_left", window_left=16, sink=4
)
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((1, 200, 2, 32)).astype(np.float16) for _ in range(3))
out = registry.run(problem, q, k, v, device="emulated:gfx942")

distance = np.arange(200) - np.arange(200)[:, None]
seen = (distance <= 0) & ((distance >= -16) | (np.arange(200) < 4))
scores = np.einsum("bqhd,bkhd->bhqk", q.astype(float), k.astype(float)) / np.sqrt(32)
weights = np.exp(np.where(seen, scores, -np.inf))
weights /= weights.sum(-1, keepdims=True)
error = np.abs(out - np.einsum("bhqk,bkhd->bqhd", weights, v.astype(float))).max()
print(f"the last query gives {weights[0, 0, -1, :4].sum():.3f} of its weight to the sinks, largest error {error:.4f}")
assert error < 0.005
print("without sinks:", tw.fits(replace(config, sink=0), problem, "gfx942")[0])
