"""Hugging Face Transformers on Tilewright's kernels: `attn_implementation="tilewright"` after `register_attention`."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.base.errors import InvalidValueError
from tilewright.base.extras import require_packages
from tilewright.torch.attention_operators import NO_WINDOW, attention

NAME = "tilewright"


def register_attention() -> None:
    """Add the attention implementation "tilewright" to Transformers. Calling it twice changes nothing."""
    require_packages("tilewright.torch.transformers", ("transformers",), "transformers")
    from transformers import AttentionInterface  # noqa: PLC0415  (an extra)
    from transformers.masking_utils import AttentionMaskInterface, flash_attention_mask  # noqa: PLC0415

    AttentionInterface.register(NAME, compute_attention)
    # Kernels compute causal masks and windows themselves; only a mask of padding tokens is passed on.
    AttentionMaskInterface.register(NAME, flash_attention_mask)


def compute_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """The function that Transformers calls: tensors are (batch, heads, seqlen, size)."""
    if attention_mask is not None:
        raise InvalidValueError(
            "the batch has padding tokens, which attention with tilewright does not support: pass sequences of one "
            "length without padding, or use another attn_implementation"
        )
    for name in ("s_aux", "position_bias", "cache"):
        if others.get(name) is not None:
            raise InvalidValueError(f"{name} is not supported by attention with tilewright")
    causal = bool(getattr(module, "is_causal", False) if is_causal is None else is_causal) and query.shape[2] > 1
    window = NO_WINDOW if sliding_window is None else (sliding_window - 1, 0 if causal else sliding_window - 1)
    q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
    found = attention(q, k, v, causal=causal, window=window, scale=scaling, softcap=softcap or 0.0, dropout=dropout)
    return found, None
