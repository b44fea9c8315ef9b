"""The plan of `paged_attention`: packed queries over pages, which are listed for each sequence or in a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.arch.dtypes import ARRAY_TYPES, find_dtype
from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError, TensorError
from tilewright.ops.array_plan import ArrayPlan, ArraySpec, check_same_type, match_results
from tilewright.ops.fmha.array_operands import make_launch, make_plain_result, pack
from tilewright.ops.fmha.array_options import AttentionOptions
from tilewright.ops.fmha.array_sizes import find_types, format_shape
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.problem import VECTOR_BYTES, Problem

# The number of arguments, after which results are counted.
RESULT = 11
_TOKENS, _LINEAR, _VECTORISED = 3, 4, 5  # dimensions of a cache: pages of one token, of several, and in vectors


@dataclass(frozen=True, slots=True)
class _Cache:
    """The sizes of a cache."""

    pages: int
    page_size: int
    kv_heads: int
    hdim_q: int
    hdim_v: int
    layout: str  # kv_layout


def plan_prefill(
    arch: Arch,  # noqa: ARG001  (of all planners)
    q: ArraySpec,
    k: ArraySpec,
    v: ArraySpec,
    alibi_slopes: ArraySpec | None,
    cu_seqlens_q: ArraySpec,
    page_starts: ArraySpec | None,
    page_list: ArraySpec | None,
    last_page_lens: ArraySpec | None,
    page_table: ArraySpec | None,
    seqlens_k: ArraySpec | None,
    sink_logits: ArraySpec | None,
    *rest: ArraySpec | AttentionOptions | None,
) -> ArrayPlan:
    """One launch. `rest` are the arrays for results, and the options."""
    *outs, options = rest
    assert isinstance(options, AttentionOptions)
    options.check()
    check_same_type(q, k, v)
    cache = _read_cache(q, k, v)
    batch = max(0, cu_seqlens_q.size - 1)
    by_table = page_table is not None
    lists = {"page_starts": page_starts, "page_list": page_list, "last_page_lens": last_page_lens}
    tables = {"page_table": page_table, "seqlens_k": seqlens_k}
    _check_tables({**lists, **tables, "cu_seqlens_q": cu_seqlens_q}, cache, batch)
    _check_sinks(sink_logits, q)
    matched = match_results(outs, ("out", "lse")[: 1 + options.return_lse])
    dtype = find_types(q, matched[0])
    stored = DTYPES[dtype].o
    total_q, heads = q.shape[:2]
    result_type = q.dtype if stored == q.type else stored
    result = make_plain_result(matched[0], "out", RESULT, result_type, (total_q, heads, cache.hdim_v))
    lse = make_plain_result(matched[-1], "lse", RESULT + 1, "fp32", (heads, total_q)) if options.return_lse else None
    results = (result,) if lse is None else (result, lse)
    longest_q, longest_k = options.max_seqlen_q, options.max_seqlen_k
    assert longest_q is not None and longest_k is not None
    if 0 in (batch, total_q, longest_q, cache.pages):
        return ArrayPlan(results, zeros=True)
    problem = Problem(
        family="batch_prefill",
        mode="group",
        dtype=dtype,
        batch=batch,
        heads=heads,
        kv_heads=cache.kv_heads,
        seqlen_q=min(longest_q, total_q),
        total_q=total_q,
        hdim_q=cache.hdim_q,
        hdim_v=cache.hdim_v,
        page_size=cache.page_size,
        pages=cache.pages,
        kv_layout=cache.layout,
        page_lookup="table" if by_table else "list",
        bias="none" if alibi_slopes is None else "alibi",
        lse=options.return_lse,
        sink_logits=sink_logits is not None,
        **(lengths := _describe_lengths(cache, batch, longest_k, page_list, page_table)),
        **options.describe_scores(longest_q, lengths["seqlen_k"]),
    )
    launch = make_launch(
        problem,
        {
            **{"q": pack(q), "k": _view_cache(k, cache), "v": _view_cache(v, cache), "seqstart_q": pack(cu_seqlens_q)},
            **{name: None if table is None else pack(table) for name, table in {**lists, **tables}.items()},
            "bias": None if alibi_slopes is None else alibi_slopes.expand((batch, heads)),
            "sink_logits": None if sink_logits is None else pack(sink_logits),
            **{"o": result, "lse": lse},
        },
    )
    return ArrayPlan(results, (launch,))


def _read_cache(q: ArraySpec, k: ArraySpec, v: ArraySpec) -> _Cache:
    """The sizes of the cache, by its number of dimensions."""
    if len(q.shape) != 3:
        raise TensorError(f"q is {format_shape(q)}, must have three dimensions: tokens, heads, elements")
    rank = len(k.shape)
    if rank != len(v.shape) or rank not in (_TOKENS, _LINEAR, _VECTORISED):
        raise TensorError(
            f"k is {format_shape(k)} and v is {format_shape(v)}, must both have 3 dimensions (pages of one token), 4 "
            "(pages, tokens, heads, elements) or 5 (in vectors)"
        )
    if not (k.is_packed and v.is_packed):
        name = v.name if k.is_packed else k.name
        raise TensorError(f"{name} has gaps or another order of dimensions: a cache must be contiguous")
    if rank == _VECTORISED:
        cache = _read_vectors(k, v)
    else:
        page_size = 1 if rank == _TOKENS else k.shape[1]
        cache = _Cache(k.shape[0], page_size, k.shape[-2], k.shape[-1], v.shape[-1], "linear")
        if k.shape[:-1] != v.shape[:-1]:
            raise TensorError(f"k is {format_shape(k)} and v is {format_shape(v)}: pages and heads must match")
    if cache.hdim_q != q.shape[-1]:
        raise TensorError(f"the heads of q have {q.shape[-1]} elements, those of k {cache.hdim_q}: they must be equal")
    if cache.kv_heads == 0 or q.shape[1] % cache.kv_heads:
        raise TensorError(f"q has {q.shape[1]} heads, which is not a multiple of the {cache.kv_heads} heads of k and v")
    return cache


def _read_vectors(k: ArraySpec, v: ArraySpec) -> _Cache:
    """The sizes of pages in vectors; for the order of their dimensions see `tensors`."""
    vector = VECTOR_BYTES // find_dtype(k.type).storage_bytes
    pages, heads, parts, tokens, last = k.shape
    if last != vector or v.shape[-1] != vector:
        raise TensorError(f"vectors of k and v have {last} and {v.shape[-1]} elements, must have 16 bytes: {vector}")
    if (pages, heads, tokens // vector) != v.shape[:3] or tokens % vector:
        raise TensorError(f"k is {format_shape(k)} and v is {format_shape(v)}: pages, heads and tokens must match")
    return _Cache(pages, tokens, heads, parts * vector, v.shape[3], "vectorised")


def _view_cache(array: ArraySpec, cache: _Cache) -> ArraySpec:
    """Pages of one token have a dimension of tokens in a problem."""
    if len(array.shape) != _TOKENS:
        return array
    pages, heads, size = array.shape
    return array.reshape((pages, cache.page_size, heads, size))


def _check_tables(tables: dict[str, ArraySpec | None], cache: _Cache, batch: int) -> None:
    """Require the tables of one way to look up pages, with their shapes."""
    for table in tables.values():
        if table is not None and table.dtype != "int32":
            raise TensorError(f"{table.name} is {ARRAY_TYPES[table.dtype]}, must be int32")
    shapes: dict[str, tuple[int, ...]]
    unused: tuple[str, ...]
    if tables["page_table"] is not None:
        shapes = {"seqlens_k": (batch,), "page_table": (batch, *tables["page_table"].shape[1:])}
        unused = ("page_starts", "page_list", "last_page_lens")
    else:
        listed = tables["page_list"]
        shapes = {"page_starts": (batch + 1,), "page_list": () if listed is None else (listed.size,)}
        shapes |= {"last_page_lens": (batch,)} if cache.page_size > 1 else {}
        unused = ("seqlens_k",)
    for name, shape in shapes.items():
        table = tables[name]
        if table is None:
            raise InvalidValueError(f"{name} is missing: pages of {cache.page_size} tokens cannot be found without it")
        if table.shape != shape or (name == "page_table" and len(shape) != 2):
            wanted = "×".join(map(str, shape))
            raise TensorError(f"{name} is {format_shape(table)}, must be {wanted} for {batch} sequences")
    for name in unused:
        if tables[name] is not None:
            raise InvalidValueError(f"{name} is passed with another way to look up pages: pass a list or a table")


def _check_sinks(sink_logits: ArraySpec | None, q: ArraySpec) -> None:
    """Require a number of fp32 for each head of q."""
    if sink_logits is None:
        return
    if sink_logits.type != "fp32":
        raise TensorError(f"sink_logits is {ARRAY_TYPES[sink_logits.dtype]}, must be float32")
    if sink_logits.shape != q.shape[1:2]:
        raise TensorError(f"sink_logits is {format_shape(sink_logits)}, must be {q.shape[1]}: one number for each head")


def _describe_lengths(
    cache: _Cache, batch: int, longest: int, page_list: ArraySpec | None, page_table: ArraySpec | None
) -> dict[str, Any]:
    """The lengths of a problem, from those of its tables: the lengths of sequences are on the GPU."""
    if page_table is not None:
        held = page_table.shape[1] * cache.page_size
        if longest > held:
            raise TensorError(
                f"max_seqlen_k is {longest}, but a row of page_table holds {held} tokens: widen the table"
            )
        return {"seqlen_k": held, "total_k": batch * held}
    assert page_list is not None
    held = page_list.size * cache.page_size
    seqlen_k = max(1, min(longest, held))
    return {"seqlen_k": seqlen_k, "total_k": min(held, batch * seqlen_k), "listed_pages": page_list.size}
