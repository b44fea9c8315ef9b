"""Hugging Face Transformers on Tilewright's kernels: `attn_implementation="tilewright"` after `register_attention`."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.base.errors import InvalidValueError, TensorError
from tilewright.base.extras import require_packages
from tilewright.torch.attention_masks import CAUSAL, BatchMask, PackedCall, make_mask
from tilewright.torch.attention_operators import NO_WINDOW, attention
from tilewright.torch.unsupported import reject_unsupported

NAME = "tilewright"
_FUNCTION = "attention with tilewright"
# Arguments of models, which pass all that they get on to attention. Positions are part of queries, keys and the mask.
_UNUSED_BY_ATTENTION = (
    *("num_items_in_batch", "output_hidden_states", "output_router_logits", "position_ids", "seq_idx", "use_cache"),
    *("cache_position", "return_dict"),
)
_DEFAULTS = {"output_attentions": False}


def register_attention() -> None:
    """Add the attention implementation "tilewright" to Transformers. Calling it twice changes nothing."""
    require_packages("tilewright.torch.transformers", ("transformers",), "transformers")
    from transformers import AttentionInterface  # noqa: PLC0415  (an extra)
    from transformers.masking_utils import AttentionMaskInterface  # noqa: PLC0415

    AttentionInterface.register(NAME, compute_attention)
    # It reads lengths and compares masks on the host, which graphs cannot contain.
    leave_graph: Any = torch.compiler.disable  # has no types
    AttentionMaskInterface.register(NAME, leave_graph(make_mask))


def compute_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: BatchMask | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    deterministic: bool | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    cu_seq_lens_k: torch.Tensor | None = None,
    max_length_q: int | None = None,
    max_length_k: int | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """The function that Transformers calls: tensors are (batch, heads, seqlen, size).

    The mask of Transformers decides what queries see. `sliding_window` and `is_causal` are for models that make none.
    """
    reject_unsupported(
        _FUNCTION, {name: others[name] for name in others if name not in _UNUSED_BY_ATTENTION}, _DEFAULTS
    )
    if attention_mask is None:
        causal = bool(getattr(module, "is_causal", False) if is_causal is None else is_causal) and query.shape[2] > 1
        window = _read_window(sliding_window, causal)
        shape = (query.shape[0], 1, query.shape[2], key.shape[2])
        attention_mask = BatchMask(shape, window, key.shape[2])
    _check_mask(attention_mask, query, key)
    lengths = (cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k)
    if any(each is not None for each in lengths):
        attention_mask = _read_sequences(attention_mask, *lengths)
    options: dict[str, Any] = {"scale": scaling, "softcap": softcap or 0.0, "dropout": dropout}
    if deterministic:
        options["deterministic"] = True
    if attention_mask.calls is None:
        q, k, v = (tensor.transpose(1, 2) for tensor in (query, *_slice_keys(attention_mask, key, value)))
        window = attention_mask.window
        return attention(q, k, v, causal=window[1] == 0, window=_limit(window), **options), None
    return _compute_packed(attention_mask.calls, query, key, value, options), None


def _read_window(sliding_window: int | None, causal: bool) -> tuple[int, int]:
    if sliding_window is None:
        return CAUSAL if causal else NO_WINDOW
    return sliding_window - 1, 0 if causal else sliding_window - 1


def _limit(window: tuple[int, int]) -> tuple[int, int]:
    """The window besides the causal mask."""
    return NO_WINDOW if window == CAUSAL else window


def _slice_keys(mask: BatchMask, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Keys and values of the tokens so far: those after them are not written."""
    return tuple(tensor if tensor.shape[2] == mask.keys else tensor[:, :, : mask.keys] for tensor in tensors)


def _check_mask(mask: object, query: torch.Tensor, key: torch.Tensor) -> None:
    if not isinstance(mask, BatchMask):
        raise InvalidValueError(
            f"{_FUNCTION} got a mask of the type {type(mask).__name__}: it computes padding (an attention_mask of the "
            'shape (batch, tokens)), causal masks and windows. For other masks, use attn_implementation="sdpa"'
        )
    shape = (query.shape[0], 1, query.shape[2], key.shape[2])
    if mask.shape != shape:
        raise TensorError(f"{_FUNCTION} got a mask for (batch, 1, queries, keys) {mask.shape}, and tensors of {shape}")


def _read_sequences(
    mask: BatchMask,
    query_starts: torch.Tensor | None,
    key_starts: torch.Tensor | None,
    longest_query: int | None,
    longest_key: int | None,
) -> BatchMask:
    """The mask of packed sequences: Transformers' names of their first tokens are `cu_seq_lens_q` and `…_k`."""
    if query_starts is None or key_starts is None or longest_query is None or longest_key is None:
        raise InvalidValueError(
            f"{_FUNCTION} needs all of cu_seq_lens_q, cu_seq_lens_k, max_length_q and max_length_k, or none"
        )
    if mask.shape[0] != 1:
        raise InvalidValueError(f"cu_seq_lens_q is for a batch of one row with all sequences; it has {mask.shape[0]}")
    starts = query_starts.to(torch.int32), key_starts.to(torch.int32)
    if mask.calls is not None:
        (call,) = mask.calls
        if torch.equal(call.query_starts, starts[0]) and torch.equal(call.key_starts, starts[1]):
            return mask
        raise InvalidValueError(
            "cu_seq_lens_q and cu_seq_lens_k are not the sequences of position_ids: pass one of both"
        )
    queries, keys = (torch.arange(length, device=query_starts.device) for length in (mask.shape[2], mask.keys))
    longest = int(longest_query), int(longest_key)
    indices = (torch.zeros_like(queries), queries), (torch.zeros_like(keys), keys)
    call = PackedCall(*indices, *starts, *longest, mask.window)
    return BatchMask(mask.shape, mask.window, mask.keys, (call,))


def _compute_packed(
    calls: tuple[PackedCall, ...],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    options: dict[str, Any],
) -> torch.Tensor:
    """Gather the tokens of each call and scatter its results; queries of no call are zero."""
    batch, heads, queries, _ = query.shape
    result = query.new_zeros((batch, queries, heads, value.shape[-1]))
    for call in calls:
        # Layers may be on other devices than the mask.
        row, index, key_row, key_index, query_starts, key_starts = (
            each.to(query.device) for each in (*call.queries, *call.keys, call.query_starts, call.key_starts)
        )
        attended = attention(
            query[row, :, index], key[key_row, :, key_index], value[key_row, :, key_index], causal=call.window[1] == 0,
            window=_limit(call.window), cu_seqlens_q=query_starts, cu_seqlens_k=key_starts,
            max_seqlen_q=call.longest_query, max_seqlen_k=call.longest_key, **options,
        )  # fmt: skip
        result = result.index_put((row, index), attended.to(result.dtype))  # autocast may have changed it
    return result
