"""Attention, its gradient, and caches: functions of arrays, whose shapes give the problem."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from tilewright.base.errors import InvalidValueError
from tilewright.ops.array_plan import Array, ArrayFunction, DeviceLike, StreamLike
from tilewright.ops.fmha.array_options import AttentionOptions
from tilewright.ops.fmha.plan_append import plan_append
from tilewright.ops.fmha.plan_attention import plan_attention
from tilewright.ops.fmha.plan_gradient import plan_gradient
from tilewright.ops.fmha.plan_prefill import plan_prefill


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = False,
    window: Sequence[int] | None = None,
    scale: float | None = None,
    bias: Array = None,
    alibi_slopes: Array = None,
    softcap: float | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    offset: int = 0,
    layout: str = "bshd",
    cu_seqlens_q: Array = None,
    cu_seqlens_k: Array = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    seqlens_k: Array = None,
    page_table: Array = None,
    num_splits: int | None = None,
    return_lse: bool = False,
    out: Array = None,
    stream: StreamLike = None,
    device: DeviceLike = None,
) -> Any:
    """Attention, `softmax(scale · q · kᵀ + bias) · v`, of queries, keys and values.

    `q` is (batch, seqlen_q, heads, head_size), `k` and `v` are (batch, seqlen_k, kv_heads, …); with `layout="bhsd"`
    heads come before sequences. Consecutive heads of q share a head of k and v if these have fewer. `scale` is
    1/√head_size unless you pass it.

    `causal` hides keys after a query, and `window=(left, right)` keys that are farther away; -1 means all. The last
    query is aligned with the last key. `bias` can be broadcast to (batch, heads, seqlen_q, seqlen_k). `alibi_slopes`
    is (heads,) or (batch, heads) of float32; with `causal`, slopes are multiplied by the index of a key instead of its
    distance, which changes the LSE but not the result. `softcap` limits scores with a tanh, `dropout` is the
    probability of dropping a weight, with random numbers of `seed` and `offset`.

    Packed sequences of different lengths: pass `cu_seqlens_q` and `cu_seqlens_k` (batch + 1 first tokens, int32),
    `max_seqlen_q` and `max_seqlen_k`. Arrays then are (tokens, heads, head_size).

    A cache: pass `seqlens_k` (batch, int32), the number of keys of each sequence. With `page_table` (batch, pages of a
    sequence, int32), k and v are (pages, page_size, kv_heads, head_size). Packed queries over pages need `cu_seqlens_k`
    instead of `seqlens_k`. Keys are split into `num_splits` parts that are computed in parallel; 0 does not split them,
    and None splits them if there is not enough work for the GPU otherwise.

    Returns the result in the shape of q, and with `return_lse` also the logarithms of the sums of exponentials, (batch,
    heads, seqlen_q) of float32. `out` is an array for the result, or for both. For arrays, kernels and options see
    `tilewright.matmul` and `tilewright.options`.
    """
    options = AttentionOptions(
        causal=causal,
        window=_to_window(window),
        scale=scale,
        softcap=softcap,
        dropout=dropout,
        seed=seed,
        offset=offset,
        layout=layout,
        max_seqlen_q=_to_integer("max_seqlen_q", max_seqlen_q),
        max_seqlen_k=_to_integer("max_seqlen_k", max_seqlen_k),
        num_splits=num_splits,
        return_lse=return_lse,
    )
    arrays = (q, k, v, bias, alibi_slopes, cu_seqlens_q, cu_seqlens_k, seqlens_k, page_table)
    return _attention(_leave_out_last(arrays), out, stream, device, options)


def attention_gradient(
    output_gradient: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    *,
    causal: bool = False,
    window: Sequence[int] | None = None,
    scale: float | None = None,
    bias: Array = None,
    alibi_slopes: Array = None,
    dropout: float = 0.0,
    seed: int = 0,
    offset: int = 0,
    layout: str = "bshd",
    cu_seqlens_q: Array = None,
    cu_seqlens_k: Array = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    deterministic: bool = False,
    bias_gradient: bool = False,
    gradients: Array = None,
    stream: StreamLike = None,
    device: DeviceLike = None,
) -> Array:
    """The gradients of `attention` with respect to q, k and v.

    `out` and `lse` are the results of `attention` with `return_lse=True`, and `output_gradient` is the gradient with
    respect to `out`; all other arguments must be those of that call. Caches and `softcap` have no gradient.

    Returns dq, dk and dv, and with `bias_gradient` also the gradient of the bias, in the bias's full shape (batch,
    heads, seqlen_q, seqlen_k). `gradients` is a tuple of arrays for them. With `deterministic`, dq is summed in a fixed
    order, which needs more memory.
    """
    options = AttentionOptions(
        causal=causal,
        window=_to_window(window),
        scale=scale,
        dropout=dropout,
        seed=seed,
        offset=offset,
        layout=layout,
        max_seqlen_q=_to_integer("max_seqlen_q", max_seqlen_q),
        max_seqlen_k=_to_integer("max_seqlen_k", max_seqlen_k),
        deterministic=deterministic,
        bias_gradient=bias_gradient,
    )
    arrays = (q, k, v, output_gradient, out, lse, bias, alibi_slopes, cu_seqlens_q, cu_seqlens_k)
    return _gradient(_leave_out_last(arrays), gradients, stream, device, options)


def paged_attention(
    q: Array,
    k_cache: Array,
    v_cache: Array,
    *,
    cu_seqlens_q: Array,
    max_seqlen_q: int,
    max_seqlen_k: int,
    page_starts: Array = None,
    page_list: Array = None,
    last_page_lens: Array = None,
    page_table: Array = None,
    seqlens_k: Array = None,
    causal: bool = False,
    window: Sequence[int] | None = None,
    scale: float | None = None,
    alibi_slopes: Array = None,
    softcap: float | None = None,
    sink_logits: Array = None,
    return_lse: bool = False,
    out: Array = None,
    stream: StreamLike = None,
    device: DeviceLike = None,
) -> Any:
    """Attention of packed queries (tokens, heads, head_size) over a cache of pages, by batch_prefill kernels.

    The caches are (pages, kv_heads, head_size) for pages of one token, (pages, page_size, kv_heads, head_size), or in
    vectors of x elements, 16 bytes: k_cache (pages, kv_heads, head_size / x, page_size, x) and v_cache (pages,
    kv_heads, page_size / x, head_size, x). `cu_seqlens_q` (batch + 1, int32) are the first queries of the sequences.

    Pages are in a list, `page_starts` (batch + 1), `page_list` and, unless they have one token, `last_page_lens`
    (batch), or in a table, `page_table` (batch, pages of a sequence) and `seqlens_k` (batch). All are int32. Pages of
    several tokens and tables need CK Tile's headers of 2026-06.

    `sink_logits` (heads, float32) are learned sinks: the softmax of a head has one more score, which is not scaled and
    has no value. The LSE includes it. They need these headers, too. For the other arguments see `attention`.
    """
    options = AttentionOptions(
        causal=causal,
        window=_to_window(window),
        scale=scale,
        softcap=softcap,
        max_seqlen_q=_to_integer("max_seqlen_q", max_seqlen_q),
        max_seqlen_k=_to_integer("max_seqlen_k", max_seqlen_k),
        return_lse=return_lse,
    )
    lists = (page_starts, page_list, last_page_lens, page_table, seqlens_k)
    arrays = (q, k_cache, v_cache, alibi_slopes, cu_seqlens_q, *lists, sink_logits)
    return _paged(arrays, out, stream, device, options)


def append_to_cache(
    q: Array,
    k_cache: Array,
    v_cache: Array,
    k: Array,
    v: Array,
    *,
    seqlens_k: Array,
    page_table: Array = None,
    rotary_cos: Array = None,
    rotary_sin: Array = None,
    interleaved: bool = False,
    causal: bool = False,
    window: Sequence[int] | None = None,
    layout: str = "bshd",
    stream: StreamLike = None,
    device: DeviceLike = None,
) -> None:
    """Write new keys and values to a cache in place, after the `seqlens_k` (batch, int32) tokens of each sequence.

    `k_cache` and `v_cache` are (batch, capacity, kv_heads, head_size), or with `page_table` pages as in `attention`;
    `k` and `v` are (batch, new tokens, kv_heads, head_size). Then call `attention` with the sums of `seqlens_k` and the
    number of new tokens.

    With `rotary_cos` and `rotary_sin` (positions, pairs), new keys and `q` are rotated by the angle of their position;
    q in place. Pairs are an element of the first and one of the second half, or neighbours if `interleaved`. If the
    attention is causal or has a window, queries have the positions of the new tokens, else that of the first.
    """
    options = AttentionOptions(causal=causal, window=_to_window(window), layout=layout)
    arrays = (k, v, seqlens_k, page_table, rotary_cos, rotary_sin)
    rotary = "interleaved" if interleaved else "half"
    _append(arrays, (q, k_cache, v_cache), stream, device, options, rotary)


def _leave_out_last(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arrays without those at the end that are not passed: calls with few arrays then take the fast path."""
    count = len(arrays)
    while arrays[count - 1] is None:
        count -= 1
    return arrays[:count]


def _to_integer(name: str, length: Any) -> int | None:
    """A length, which may be an array of one integer."""
    try:
        return None if length is None else operator.index(length)
    except TypeError as error:
        raise InvalidValueError(f"{name} is {length!r}, must be a whole number") from error


def _to_window(window: Sequence[int] | None) -> tuple[int, ...] | None:
    try:
        return None if window is None else tuple(map(operator.index, window))
    except TypeError as error:
        raise InvalidValueError(f"window is {window!r}, must be two whole numbers") from error


_PACKED = ("cu_seqlens_q", "cu_seqlens_k")
_BIASES = ("bias", "alibi_slopes")
_attention = ArrayFunction(plan_attention, "q", "k", "v", *_BIASES, *_PACKED, "seqlens_k", "page_table", required=3)
_gradient = ArrayFunction(plan_gradient, "q", "k", "v", "output_gradient", "out", "lse", *_BIASES, *_PACKED, required=6)
_LISTS = ("page_starts", "page_list", "last_page_lens", "page_table", "seqlens_k")
_paged = ArrayFunction(plan_prefill, "q", "k_cache", "v_cache", "alibi_slopes", "cu_seqlens_q", *_LISTS, "sink_logits")
_append = ArrayFunction(plan_append, "k", "v", "seqlens_k", "page_table", "rotary_cos", "rotary_sin", required=3)
