"""`mha_batch_prefill_func`: attention over a cache of pages, with the arguments of aiter's function of this name."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.base.errors import InvalidValueError
from tilewright.ops.fmha.functions import paged_attention
from tilewright.torch.emulation import find_device
from tilewright.torch.unsupported import reject_unsupported


def mha_batch_prefill_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    kv_indptr: torch.Tensor | None,
    kv_page_indices: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    logits_soft_cap: float = 0.0,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,  # noqa: ARG001  (kernels have no order that changes)
    return_lse: bool = False,
    return_attn_probs: bool = False,
    out: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    kv_last_page_lens: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    seqlen_k: torch.Tensor | None = None,
    sink_ptr: torch.Tensor | None = None,
) -> Any:
    """Attention of packed queries q (tokens, heads, size) over pages of keys and values, without gradients.

    It is a function, not an operator: `torch.compile` calls it outside of its graphs.

    k and v are (pages, kv_heads, size) for pages of one token, (pages, page size, kv_heads, size), or in vectors of x
    elements, 16 bytes: k (pages, kv_heads, size / x, page size, x) and v (pages, kv_heads, page size / x, size, x).
    Pages of a sequence are in `kv_page_indices` from `kv_indptr` on, with `kv_last_page_lens` tokens in the last one;
    or, if `block_table` is passed, in its rows, and `seqlen_k` are the numbers of tokens: then `kv_indptr` and
    `kv_page_indices` are not used. All of these are int32. Pages of several tokens need CK Tile's headers of 2026-06.

    `out` gets the result. With `return_lse`, logarithms of the sums of exponentials (heads, tokens) are also returned.
    `sink_ptr` (heads, float32) are learned sinks, one more score of each head without a value, which the LSE includes;
    they need the same headers, and no `logits_soft_cap`. `dropout_p`, `return_attn_probs` and scales of 8-bit caches
    (`q_descale`, `k_descale`, `v_descale`) are not supported.
    """
    given: dict[str, Any] = {"dropout_p": dropout_p, "return_attn_probs": return_attn_probs}
    given |= {"q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}
    reject_unsupported("mha_batch_prefill_func", given, {"dropout_p": 0.0, "return_attn_probs": False})
    if block_table is not None:
        kv_indptr = kv_page_indices = kv_last_page_lens = None
    elif seqlen_k is not None:
        raise InvalidValueError("seqlen_k is only for block_table: kv_indptr and kv_last_page_lens have the lengths")
    device = find_device(q, "mha_batch_prefill_func")
    results: Any = out
    if out is not None and return_lse:
        results = (out, q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32))
    return paged_attention(
        q, k, v, cu_seqlens_q=cu_seqlens_q, max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k,
        page_starts=kv_indptr, page_list=kv_page_indices, last_page_lens=kv_last_page_lens, page_table=block_table,
        seqlens_k=seqlen_k, alibi_slopes=alibi_slopes, causal=causal,
        window=None if tuple(window_size) == (-1, -1) else window_size, scale=softmax_scale,
        softcap=logits_soft_cap or None, sink_logits=sink_ptr, return_lse=return_lse, out=results, device=device,
    )  # fmt: skip
