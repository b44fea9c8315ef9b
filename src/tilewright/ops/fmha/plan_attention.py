"""The plan of `attention`: its problem, and whether the keys of a cache are split."""

from __future__ import annotations

from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.ops.array_plan import ArrayPlan, ArraySpec, match_results
from tilewright.ops.fmha.array_operands import (
    find_memory,
    get_query_shape,
    make_launch,
    make_plain_result,
    pack,
    prepare_bias,
)
from tilewright.ops.fmha.array_options import AttentionOptions
from tilewright.ops.fmha.array_sizes import Operands, Sizes, find_types, read_sizes
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.problem import Problem

# The number of arguments, after which results are counted.
RESULT = 9
# Parts of the keys have at least this many keys: two tiles of 128, so that a work-group has more to do than to start.
_KEYS_OF_PART = 256
# Queries of one tile in kernels with few queries, and the most parts that combine merges (2**7, rule P443).
_QUERIES_OF_TILE, _MOST_PARTS = 64, 128


def plan_attention(
    arch: Arch,
    q: ArraySpec,
    k: ArraySpec,
    v: ArraySpec,
    bias: ArraySpec | None,
    alibi_slopes: ArraySpec | None,
    cu_seqlens_q: ArraySpec | None,
    cu_seqlens_k: ArraySpec | None,
    seqlens_k: ArraySpec | None,
    page_table: ArraySpec | None,
    *rest: ArraySpec | AttentionOptions | None,
) -> ArrayPlan:
    """One launch. `rest` are the arrays for results, and the options."""
    *outs, options = rest
    assert isinstance(options, AttentionOptions)
    options.check()
    given = Operands(
        q=q,
        k=k,
        v=v,
        bias=bias,
        alibi_slopes=alibi_slopes,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        seqlens_k=seqlens_k,
        page_table=page_table,
    )
    sizes = read_sizes(given, options)
    matched = match_results(outs, ("out", "lse")[: 1 + options.return_lse])
    out, lse_out = matched[0], matched[-1]
    dtype = find_types(q, out)
    memory = find_memory(options.layout, q, k, v)
    stored = DTYPES[dtype].o
    result = memory.make_result(
        out, "out", RESULT, q.dtype if stored == q.type else stored, (*q.shape[:-1], sizes.hdim_v)
    )
    lse = make_plain_result(lse_out, "lse", RESULT + 1, "fp32", get_query_shape(sizes)) if options.return_lse else None
    results = (result,) if lse is None else (result, lse)
    if sizes.empty:
        if lse is not None and lse.size:
            raise InvalidValueError("k has no tokens, so the LSE is minus infinity: call it without return_lse")
        return ArrayPlan(results, zeros=True)
    added, addend = prepare_bias(given, options, sizes, dtype)
    splits = _count_splits(given, options, sizes, arch)
    problem = Problem(
        family="pagedkv" if given.cached and not splits else "forward",
        dtype=dtype,
        layout=memory.layout,
        bias=added,
        lse=options.return_lse,
        num_splits=splits,
        **sizes.describe(),
        **options.describe_scores(sizes.length_q, sizes.length_k),
    )
    tables = {"seqstart_q": cu_seqlens_q, "seqstart_k": cu_seqlens_k, "seqlens_k": seqlens_k, "page_table": page_table}
    launch = make_launch(
        problem,
        {
            **{"q": memory.view(q), "k": memory.view(k), "v": memory.view(v), "bias": addend},
            **{name: None if table is None else pack(table) for name, table in tables.items()},
            **{"o": memory.view_result(result), "lse": lse},
        },
    )
    return ArrayPlan(results, (launch,))


def _count_splits(given: Operands, options: AttentionOptions, sizes: Sizes, arch: Arch) -> int:
    """The parts of the keys: as many as give each compute unit a work-group, if the queries alone do not."""
    if options.num_splits is not None:
        return options.num_splits
    if not given.cached:
        return 0
    groups = sizes.batch * sizes.heads * -(-sizes.length_q // _QUERIES_OF_TILE)
    parts = min(arch.compute.units // groups, sizes.length_k // _KEYS_OF_PART, _MOST_PARTS)
    return parts if parts > 1 else 0
