"""Compute a part of a prompt over a cache of pages.

Kernels of the family `pagedkv` read pages of several tokens, listed in a page table as in vLLM, for many queries at
once. The last query is aligned with the last key of its sequence. Inputs are fp8, and the result is fp32.
"""

import numpy as np

import tilewright as tw
from tilewright.arch.number_formats import to_numpy_dtype

config = tw.fmha.config(
    family="pagedkv", mode="batch", dtype="fp8fp32", pipeline="qr_pagedkv", paged=True,
    mask_form="causal", pad_hdim_q=1,
    tile="128x64x32x64x32x64/4x1x1x4x1x1/32x32x32x32x32x32",
)  # fmt: skip
registry = tw.build([config], arch="gfx950")
problem = tw.fmha.Problem(
    family="pagedkv", dtype="fp8fp32", batch=2, heads=2, kv_heads=1, seqlen_q=128, seqlen_k=256,
    hdim_q=64, page_size=64, pages=8, mask="bottom_right",
)  # fmt: skip
lengths = np.array([192, 256], np.int32)
table = np.array([[5, 2, 0, 0], [1, 7, 4, 3]], np.int32)
fp8 = to_numpy_dtype("fp8", tw.load("gfx950"))
rng = np.random.default_rng(0)
q = rng.standard_normal((2, 128, 2, 64)).astype(fp8)
k, v = (rng.standard_normal((8, 64, 1, 64)).astype(fp8) for _ in range(2))

tensors = {"q": q, "k": k, "v": v, "seqlens_k": lengths, "page_table": table}
names = [tensor.name for tensor in tw.fmha.OP.execution.tensors(problem) if not tensor.output]
out = registry.run(problem, *(tensors[name] for name in names), device="emulated:gfx950")

for place, length in enumerate(lengths):
    keys, values = (each[table[place]].reshape(-1, 64)[:length].astype(float) for each in (k, v))
    seen = np.arange(length) <= np.arange(128)[:, None] + length - 128
    scores = np.einsum("qhd,kd->hqk", q[place].astype(float), keys) / 8
    weights = np.exp(np.where(seen, scores, -np.inf))
    expected = np.einsum("hqk,kd->qhd", weights / weights.sum(-1, keepdims=True), values)
    error = np.abs(out[place] - expected).mean()
    print(f"128 queries, {length} keys in {length // 64} pages: mean error {error:.4f}")
    assert error < 0.01
