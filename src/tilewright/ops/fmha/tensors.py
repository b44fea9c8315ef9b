"""The tensors of an attention problem, packed, by their names in the C struct.

Inputs come first, then outputs. The problem's layout is the position of the heads:

| tensor             | bshd                         | bhsd                         | group mode              |
|--------------------|------------------------------|------------------------------|-------------------------|
| q, o               | batch, seqlen_q, heads, hdim | batch, heads, seqlen_q, hdim | no batch, total_q rows  |
| k, v               | batch, seqlen_k, kv_heads, … | batch, kv_heads, seqlen_k, … | no batch, total_k rows  |
| k, v in pages      | pages, page_size, kv_heads … | pages, kv_heads, page_size … | the same                |
| v with v_layout=col| batch, kv_heads, hdim_v, seqlen_k, in both                  | no batch                |

Pages with kv_layout=vectorised have vectors of x elements, 16 bytes, in both layouts: k is (pages, kv_heads,
hdim_q / x, page_size, x), and v is (pages, kv_heads, page_size / x, hdim_v, x).

Tensors with a number for each pair of a query and a key (bias, randval, dbias), or for each query (lse, d), have the
heads outermost in both layouts. The gradient of a tensor has its shape. sink_logits has a number for each head.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping

from tilewright.ops.cost_model.arithmetic import maximum
from tilewright.ops.execution import Tensor, TensorSlot
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kind import find_computation, list_computations
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.strides import check_strides, packed_strides

# Tensors with the type and shape of another one.
LIKE = {
    **{"d_o": "o", "dq": "q", "dk": "k", "dv": "v", "dbias": "bias"},
    **{"rotary_sin": "rotary_cos", "seqstart_k": "seqstart_q", "page_starts": "seqstart_q"},
    **{"last_page_lens": "seqlens_k"},
}
_TYPES = {
    **dict.fromkeys(("q", "k", "v", "k_new", "v_new", "rotary_cos"), "qkv"),
    **{"o": "o", "bias": "bias"},
}
_FP32 = ("lse", "d", "o_acc", "lse_acc", "dq_acc", "sink_logits")


def list_tensors(problem: Problem) -> tuple[Tensor, ...]:
    """Return all tensors of a problem: inputs, then outputs."""
    return tuple(iterate_tensors(problem))


def iterate_tensors(problem: Problem, names: Collection[str] | None = None) -> Iterator[Tensor]:
    """Yield the tensors of a problem with these names, by default all: inputs, then outputs."""
    computation = find_computation(problem)
    for name in computation.inputs:
        if (names is None or name in names) and _has_tensor(problem, name):
            yield _build_tensor(problem, name)
    for name in computation.outputs:
        if (names is None or name in names) and _has_tensor(problem, name, output=True):
            yield _build_tensor(problem, name, output=True, updated=computation.appends)


def _has_tensor(problem: Problem, name: str, *, output: bool = False) -> bool:
    """Whether a problem has a tensor of its computation. Reads no fields that do not matter for it."""
    if name == "lse":
        return problem.lse or not output
    is_present = _PRESENT.get(name)
    return is_present is None or is_present(problem)


@functools.cache
def list_slots() -> tuple[tuple[TensorSlot, ...], ...]:
    """Return all tensors that problems can have, in a list for each computation."""
    return tuple(
        tuple(
            TensorSlot(name, output, updated, _make_test(name, output, updated), _make_builder(name, output, updated))
            for names, output in ((computation.inputs, False), (computation.outputs, True))
            for name in names
            for updated in (output and computation.appends,)
        )
        for computation in list_computations()
    )


def _make_test(name: str, output: bool, updated: bool) -> Callable[[Problem], bool]:
    def is_present(problem: Problem) -> bool:
        computation = find_computation(problem)
        named = name in (computation.outputs if output else computation.inputs)
        return named and updated == (output and computation.appends) and _has_tensor(problem, name, output=output)

    return is_present


def _make_builder(name: str, output: bool, updated: bool) -> Callable[[Problem], Tensor]:
    return lambda problem: _build_tensor(problem, name, output=output, updated=updated)


def has_key_lengths(problem: Problem) -> bool:
    """Whether `seqlens_k` holds the number of keys of each sequence: for a cache in batch mode, and for a table."""
    looked_up = problem.mode == "batch" or problem.page_lookup == "table"
    return looked_up and find_computation(problem).has_key_lengths(problem)


def _lists_pages(problem: Problem) -> bool:
    """Whether the pages of all sequences are in one list."""
    return find_computation(problem).lists_pages and problem.page_lookup == "list"


# Whether a problem has an optional tensor of its computation.
_PRESENT: Mapping[str, Callable[[Problem], bool]] = {
    "bias": lambda problem: problem.bias != "none",
    "randval": lambda problem: problem.store_randval,
    "dbias": lambda problem: problem.bias_gradient,
    "seqlens_k": has_key_lengths,
    "seqstart_q": lambda problem: problem.mode == "group",
    "seqstart_k": lambda problem: problem.mode == "group",
    "page_table": lambda problem: problem.paged and not _lists_pages(problem),
    "page_starts": _lists_pages,
    "page_list": _lists_pages,
    "last_page_lens": lambda problem: problem.page_size > 1 and _lists_pages(problem),
    "rotary_cos": lambda problem: problem.rotary != "none",
    "rotary_sin": lambda problem: problem.rotary != "none",
    "sink_logits": lambda problem: problem.sink_logits,
}


def _build_tensor(problem: Problem, name: str, *, output: bool = False, updated: bool = False) -> Tensor:
    like = LIKE.get(name, name)
    shape = _get_shape(problem, like)
    return Tensor(name, _get_dtype(problem, like), shape, packed_strides(shape), output=output, updated=updated)


def _get_dtype(problem: Problem, name: str) -> str:
    if name in _FP32 or (name == "bias" and problem.bias == "alibi"):
        return "fp32"
    if name == "randval":
        return "uint8"
    if name not in _TYPES:
        return "int32"
    kind: str = getattr(DTYPES[problem.dtype], _TYPES[name])
    return kind


def _get_shape(problem: Problem, name: str) -> tuple[int, ...]:
    """Return the shape of a tensor that is not like another one."""
    p = problem
    per_query = _get_head_shape(p, p.heads, p.seqlen_q, p.total_q)
    if name in ("k", "v") and p.paged:
        return _get_page_shape(p, name)
    if name in ("q", "o", "k", "v", "k_new", "v_new"):
        return _get_token_shape(p, name)
    if name == "bias" and p.bias == "alibi":
        return (p.batch, p.heads)
    if name in ("bias", "randval"):
        return (*per_query, p.seqlen_k)
    parts = {"o_acc": p.num_splits, "lse_acc": p.num_splits, "dq_acc": p.dq_parts}
    if name in ("o_acc", "dq_acc"):
        return (parts[name], *per_query, p.hdim_v if name == "o_acc" else p.hdim_q)
    shapes: dict[str, Callable[[], tuple[int, ...]]] = {
        "lse": lambda: per_query,
        "d": lambda: per_query,
        "lse_acc": lambda: (p.num_splits, *per_query),
        "seqstart_q": lambda: (p.batch + 1,),
        "seqlens_k": lambda: (p.batch,),
        "sink_logits": lambda: (p.heads,),
        "page_table": lambda: (p.batch, _count_pages_for(p, p.seqlen_k)),
        "page_list": lambda: (p.listed_pages or count_needed_pages(p),),
        "rotary_cos": lambda: (p.seqlen_k + maximum(0, p.seqlen_q - p.seqlen_new), p.rotary_size // 2),
    }
    return shapes[name]()


def _get_head_shape(problem: Problem, heads: int, length: int, total: int) -> tuple[int, ...]:
    return (heads, total) if problem.mode == "group" else (problem.batch, heads, length)


def _get_token_shape(problem: Problem, name: str) -> tuple[int, ...]:
    """Return the shape of a tensor with a row for each head of each token."""
    heads = problem.heads if name in ("q", "o") else problem.kv_heads
    size = problem.hdim_v if name in ("v", "o", "v_new") else problem.hdim_q
    if name in ("q", "o"):
        length, total = problem.seqlen_q, problem.total_q
    else:
        length = problem.seqlen_new if name in ("k_new", "v_new") else problem.seqlen_k
        total = problem.total_k
    outer, tokens = ((), total) if problem.mode == "group" else ((problem.batch,), length)
    if name in ("v", "v_new") and problem.v_layout == "col":
        return (*outer, heads, size, tokens)
    return (*outer, tokens, heads, size) if problem.layout == "bshd" else (*outer, heads, tokens, size)


def _get_page_shape(problem: Problem, name: str) -> tuple[int, ...]:
    heads, page = problem.kv_heads, problem.page_size
    size = problem.hdim_v if name == "v" else problem.hdim_q
    count = count_pages(problem)
    if problem.kv_layout == "vectorised":
        vector = problem.vector_size
        return (
            (count, heads, page // vector, size, vector)
            if name == "v"
            else (count, heads, -(-size // vector), page, vector)
        )
    if name == "v" and problem.v_layout == "col":
        return (count, heads, size, page)
    return (count, page, heads, size) if problem.layout == "bshd" else (count, heads, page, size)


def count_pages(problem: Problem) -> int:
    """Return the pages of the whole cache: the problem's number, or the most that its sequences can need."""
    return problem.pages or count_needed_pages(problem)


def count_needed_pages(problem: Problem) -> int:
    """Return the most pages that the sequences of a problem can need; without pages, a page is a token."""
    size: int = maximum(problem.page_size, 1)
    if problem.mode == "group":
        # Each sequence may leave all but one token of its last page empty.
        return (problem.total_k + problem.batch * (size - 1)) // size
    return problem.batch * -(-problem.seqlen_k // size)


def _count_pages_for(problem: Problem, length: int) -> int:
    return -(-length // problem.page_size) if problem.paged else 0


def apply_strides(problem: Problem, found: Mapping[str, tuple[int, ...]]) -> Problem:
    """Return the problem itself if its tensors, by name, may have these strides (in elements); raise otherwise.

    Kernels take packed tensors of the problem's layout. The stride of a dimension of extent 1 is not used, so it may
    have any value.
    """
    advice = "no gaps. Copy it into that order, or use the other layout for the problem"
    check_strides(list_tensors(problem), found, f"attention of layout {problem.layout}", advice)
    return problem
