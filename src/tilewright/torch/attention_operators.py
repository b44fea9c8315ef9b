"""The operators `tilewright::attention`, for batches and packed sequences, and `tilewright::cached_attention`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tilewright.base.errors import InvalidValueError, TensorError
from tilewright.ops.fmha import functions
from tilewright.torch.autocast import cast_inputs
from tilewright.torch.emulation import find_device

NO_WINDOW = (-1, -1)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: Sequence[int] = NO_WINDOW,
    scale: float | None = None,
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    dropout: float = 0.0,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    max_seqlen_q: int = 0,
    max_seqlen_k: int = 0,
    deterministic: bool = False,
    return_lse: bool = False,
) -> Any:
    """softmax(scale · q·kᵀ)·v, with gradients.

    q is (batch, seqlen, heads, size), k and v may have fewer heads. With `cu_seqlens_q` and `cu_seqlens_k`, sequences
    are packed: q is (tokens, heads, size). A causal mask is aligned to the last query and the last key. `window` is the
    number of visible keys before and after the diagonal, -1 for all. With `return_lse`, also returns the logarithms of
    the sums of exponentials, which have no gradient.
    """
    if torch.is_autocast_enabled(q.device.type):
        q, k, v = cast_inputs(q, k, v)  # type: ignore[assignment]
    _check_ranks(q, k, v, packed=cu_seqlens_q is not None)
    # The seed of dropout comes from torch's generator, so that torch.manual_seed decides it.
    seed = int(torch.randint(0, 2**62, ()).item()) if dropout else 0
    out, lse = torch.ops.tilewright.attention(
        q, k, v, alibi_slopes, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal, list(window), scale,
        softcap, dropout, seed, deterministic,
    )  # fmt: skip
    return (out, lse) if return_lse else out


def cached_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    seqlens_k: torch.Tensor,
    page_table: torch.Tensor | None = None,
    *,
    causal: bool = False,
    window: Sequence[int] = NO_WINDOW,
    scale: float | None = None,
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    num_splits: int | None = None,
    return_lse: bool = False,
) -> Any:
    """Attention to a cache of keys and values, without gradients.

    `seqlens_k` (batch, int32) are the numbers of valid tokens. With `page_table` (batch, pages), the caches are pages
    of tokens: (pages, page size, heads, size).
    """
    out, lse = torch.ops.tilewright.cached_attention(
        q, k_cache, v_cache, seqlens_k, page_table, alibi_slopes, causal, list(window), scale, softcap, num_splits
    )
    return (out, lse) if return_lse else out


def _check_ranks(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, packed: bool) -> None:
    wanted = 3 if packed else 4
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != wanted:
            shape = "(tokens, heads, size)" if packed else "(batch, seqlen, heads, size)"
            raise TensorError(f"{name} is {tuple(tensor.shape)}, must be {shape}")


def _make_options(causal: bool, window: Sequence[int], scale: float | None, softcap: float) -> dict[str, Any]:
    limited = tuple(window) != NO_WINDOW
    return {
        "causal": causal,
        "window": tuple(window) if limited else None,
        "scale": scale,
        "softcap": softcap or None,
    }


def _make_lengths(
    cu_seqlens_q: torch.Tensor | None, cu_seqlens_k: torch.Tensor | None, max_seqlen_q: int, max_seqlen_k: int
) -> dict[str, Any]:
    """The lengths of packed sequences; without them, only their absence."""
    if cu_seqlens_q is None:
        return {"cu_seqlens_q": None, "cu_seqlens_k": cu_seqlens_k}
    longest = {"max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k}
    return {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, **longest}


@torch.library.custom_op("tilewright::attention", mutates_args=())
def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    alibi_slopes: torch.Tensor | None,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool,
    window: Sequence[int],
    scale: float | None,
    softcap: float,
    dropout: float,
    seed: int,
    deterministic: bool,  # noqa: ARG001  (of the gradient)
) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = _make_lengths(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    options = _make_options(causal, window, scale, softcap)
    device = find_device(q, "tilewright::attention")
    out, lse = functions.attention(
        q, k, v, alibi_slopes=alibi_slopes, dropout=dropout, seed=seed, device=device, return_lse=True,
        **lengths, **options,
    )  # fmt: skip
    return out, lse


def _make_result(shape: Sequence[int], *arrays: torch.Tensor) -> torch.Tensor:
    """An empty result. Heads come before tokens in its memory if they do in all arrays, which are then not copied."""
    own = all(array.is_contiguous() for array in arrays)
    if own or not all(array.transpose(-3, -2).is_contiguous() for array in arrays):
        return arrays[0].new_empty(shape)
    *rest, tokens, heads, size = shape
    return arrays[0].new_empty((*rest, heads, tokens, size)).transpose(-3, -2)


@_attention.register_fake
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ARG001
    per_query = (q.shape[1], q.shape[0]) if q.dim() == 3 else (q.shape[0], q.shape[2], q.shape[1])
    return _make_result((*q.shape[:-1], v.shape[-1]), q, k, v), q.new_empty(per_query, dtype=torch.float32)


def _save_attention(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    q, k, v, alibi_slopes, cu_seqlens_q, cu_seqlens_k, *ctx.options = inputs
    ctx.save_for_backward(q, k, v, alibi_slopes, cu_seqlens_q, cu_seqlens_k, *output)
    ctx.mark_non_differentiable(output[1])


def _differentiate_attention(
    ctx: Any,
    gradient: torch.Tensor,
    of_lse: torch.Tensor | None,  # noqa: ARG001
) -> tuple[torch.Tensor | None, ...]:
    q, k, v, alibi_slopes, cu_seqlens_q, cu_seqlens_k, out, lse = ctx.saved_tensors
    if ctx.options[5]:
        raise InvalidValueError(f"softcap is {ctx.options[5]}: attention with a softcap has no gradient")
    found = torch.ops.tilewright.attention_gradient(
        gradient, q, k, v, out, lse, alibi_slopes, cu_seqlens_q, cu_seqlens_k, *ctx.options
    )
    return (*found, *(None,) * 12)


_attention.register_autograd(_differentiate_attention, setup_context=_save_attention)


@torch.library.custom_op("tilewright::attention_gradient", mutates_args=())
def _gradient(
    gradient: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    alibi_slopes: torch.Tensor | None,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool,
    window: Sequence[int],
    scale: float | None,
    softcap: float,  # noqa: ARG001
    dropout: float,
    seed: int,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    lengths = _make_lengths(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    options = _make_options(causal, window, scale, 0.0)
    del options["softcap"]
    dq, dk, dv = functions.attention_gradient(
        gradient, q, k, v, out, lse, alibi_slopes=alibi_slopes, dropout=dropout, seed=seed,
        deterministic=deterministic, device=find_device(q, "tilewright::attention_gradient"), **lengths, **options,
    )  # fmt: skip
    return dq, dk, dv


@_gradient.register_fake
def _(
    gradient: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    *rest: Any,  # noqa: ARG001
) -> tuple[torch.Tensor, ...]:
    return tuple(_make_result(each.shape, q, k, v, gradient, out) for each in (q, k, v))


@torch.library.custom_op("tilewright::cached_attention", mutates_args=())
def _cached_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    seqlens_k: torch.Tensor,
    page_table: torch.Tensor | None,
    alibi_slopes: torch.Tensor | None,
    causal: bool,
    window: Sequence[int],
    scale: float | None,
    softcap: float,
    num_splits: int | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    options = _make_options(causal, window, scale, softcap)
    device = find_device(q, "tilewright::cached_attention")
    out, lse = functions.attention(
        q, k_cache, v_cache, seqlens_k=seqlens_k, page_table=page_table, alibi_slopes=alibi_slopes,
        num_splits=num_splits, device=device, return_lse=True, **options,
    )  # fmt: skip
    return out, lse


@_cached_attention.register_fake
def _(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *rest: Any,  # noqa: ARG001
) -> tuple[torch.Tensor, torch.Tensor]:
    lse = q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)
    return _make_result((*q.shape[:-1], v_cache.shape[-1]), q, k_cache, v_cache), lse
