"""Functions with the signatures of the package flash-attn 2.8, for programs that call it."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.base.errors import InvalidValueError
from tilewright.ops.fmha.functions import append_to_cache
from tilewright.torch.attention_operators import attention, cached_attention
from tilewright.torch.emulation import find_device
from tilewright.torch.unsupported import reject_unsupported

# Of the arguments that are not supported; others have None.
_DEFAULTS = {"return_attn_probs": False}


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """Attention of q, k and v (batch, seqlen, heads, size). `return_attn_probs` is not supported."""
    reject_unsupported("flash_attn_func", {"return_attn_probs": return_attn_probs}, _DEFAULTS)
    return attention(
        q, k, v, dropout=dropout_p, scale=softmax_scale, causal=causal, window=window_size, softcap=softcap,
        alibi_slopes=alibi_slopes, deterministic=deterministic,
    )  # fmt: skip


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
) -> Any:
    """Attention of packed sequences (tokens, heads, size). `return_attn_probs`, `block_table` are not supported.

    For a cache of pages, use `flash_attn_with_kvcache`.
    """
    given = {"return_attn_probs": return_attn_probs, "block_table": block_table}
    reject_unsupported("flash_attn_varlen_func", given, _DEFAULTS)
    return attention(
        q, k, v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k, dropout=dropout_p, scale=softmax_scale, causal=causal, window=window_size,
        softcap=softcap, alibi_slopes=alibi_slopes, deterministic=deterministic,
    )  # fmt: skip


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    cache_seqlens: int | torch.Tensor | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: torch.Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """Attention to a cache, after new keys and values are written to it in place.

    `cache_batch_idx` and `cache_leftpad` are not supported. `num_splits` 0 lets Tilewright choose.
    """
    given = {"cache_batch_idx": cache_batch_idx, "cache_leftpad": cache_leftpad}
    reject_unsupported("flash_attn_with_kvcache", given)
    if (k is None) != (v is None):
        raise InvalidValueError("pass both k and v, or neither")
    lengths = _read_lengths(cache_seqlens, q, k_cache, block_table)
    if k is None:
        reject_unsupported("a call without k and v", {"rotary_cos": rotary_cos, "rotary_sin": rotary_sin})
    if k is not None and v is not None:
        rotated = q.contiguous().clone() if rotary_cos is not None else q
        append_to_cache(
            rotated, k_cache, v_cache, k, v, seqlens_k=lengths, page_table=block_table, rotary_cos=rotary_cos,
            rotary_sin=rotary_sin, interleaved=rotary_interleaved, causal=causal,
            window=None if tuple(window_size) == (-1, -1) else window_size,
            device=find_device(q, "flash_attn_with_kvcache"),
        )  # fmt: skip
        q, lengths = rotated, lengths + k.shape[1]
    return cached_attention(
        q, k_cache, v_cache, lengths, block_table, causal=causal, window=window_size, scale=softmax_scale,
        softcap=softcap, alibi_slopes=alibi_slopes, num_splits=num_splits or None, return_lse=return_softmax_lse,
    )  # fmt: skip


def _read_lengths(
    given: int | torch.Tensor | None, q: torch.Tensor, k_cache: torch.Tensor, block_table: torch.Tensor | None
) -> torch.Tensor:
    """The number of valid tokens of each sequence, as a tensor of int32."""
    if given is None:
        tokens = k_cache.shape[1] * (1 if block_table is None else block_table.shape[1])
        return torch.full((q.shape[0],), tokens, dtype=torch.int32, device=q.device)
    if isinstance(given, int):
        return torch.full((q.shape[0],), given, dtype=torch.int32, device=q.device)
    return given.to(torch.int32)
