"""Compute prompts over a cache that lists single tokens.

`batch_prefill` reads a list of token numbers for each sequence, as SGLang and FlashInfer keep them: `page_starts` has
the first entry of each sequence in `page_list`.
"""

import numpy as np

import tilewright as tw

config = tw.fmha.config(
    family="batch_prefill", mode="group", dtype="fp16", pipeline="qr_async",
    pads="vectors", paged=True, mask_form="causal",
    tile="64x64x32x64x32x64/4x1x1x4x1x1/16x16x16x16x16x16",
)  # fmt: skip
registry = tw.build([config], arch="gfx942")
queries, keys, capacity = (9, 40), (30, 40), 100
problem = tw.fmha.Problem(
    family="batch_prefill", mode="group", dtype="fp16", batch=2, heads=4, kv_heads=2,
    hdim_q=64, seqlen_q=40, seqlen_k=40, total_q=49, total_k=70, page_size=1,
    pages=capacity, mask="bottom_right",
)  # fmt: skip
rng = np.random.default_rng(0)
tensors = {
    "q": rng.standard_normal((49, 4, 64)).astype(np.float16),
    "k": rng.standard_normal((capacity, 1, 2, 64)).astype(np.float16),
    "v": rng.standard_normal((capacity, 1, 2, 64)).astype(np.float16),
    "seqstart_q": np.cumsum((0, *queries)).astype(np.int32),
    "page_starts": np.cumsum((0, *keys)).astype(np.int32),
    "page_list": rng.permutation(capacity)[:70].astype(np.int32),
}
names = [tensor.name for tensor in tw.fmha.OP.execution.tensors(problem) if not tensor.output]
print("inputs:", ", ".join(names))
out = registry.run(problem, *(tensors[name] for name in names), device="emulated:gfx942")
for place, (rows, length) in enumerate(zip(queries, keys, strict=True)):
    first = tensors["seqstart_q"][place]
    listed = tensors["page_list"][tensors["page_starts"][place] :][:length]
    q = tensors["q"][first : first + rows].astype(float)
    k, v = (tensors[name][listed, 0].repeat(2, axis=1).astype(float) for name in ("k", "v"))
    seen = np.arange(length) <= np.arange(rows)[:, None] + length - rows
    weights = np.exp(np.where(seen, np.einsum("qhd,khd->hqk", q, k) / 8, -np.inf))
    expected = np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v)
    error = np.abs(out[first : first + rows] - expected).max()
    print(f"{rows} new tokens of {length}: largest error {error:.4f}")
    assert error < 0.005
