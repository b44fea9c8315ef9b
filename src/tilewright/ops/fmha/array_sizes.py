"""The sizes of attention for arrays, from the shapes of its arrays: one sequence after another, packed, or a cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.arch.dtypes import ARRAY_TYPES
from tilewright.base.errors import InvalidValueError, TensorError
from tilewright.ops.array_plan import ArraySpec, check_same_type
from tilewright.ops.fmha.array_options import AttentionOptions
from tilewright.ops.fmha.element_types import DTYPES

# Types of results of 8-bit operands unless the caller passes an array for the result: those of frameworks.
_RESULTS_OF_EIGHT_BITS = {"fp8": "bf16"}
_OPERANDS = tuple(dict.fromkeys(types.qkv for types in DTYPES.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """The arrays of a call; None for one that was not passed."""

    q: ArraySpec
    k: ArraySpec
    v: ArraySpec
    bias: ArraySpec | None = None
    alibi_slopes: ArraySpec | None = None
    cu_seqlens_q: ArraySpec | None = None
    cu_seqlens_k: ArraySpec | None = None
    seqlens_k: ArraySpec | None = None
    page_table: ArraySpec | None = None

    @property
    def packs_sequences(self) -> bool:
        return self.cu_seqlens_q is not None

    @property
    def cached(self) -> bool:
        return self.page_table is not None or self.seqlens_k is not None


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a problem. `length_q` and `length_k` are the longest lengths of packed sequences."""

    packed: bool
    batch: int
    heads: int
    kv_heads: int
    length_q: int
    length_k: int
    total_q: int  # of packed sequences, else 0
    total_k: int
    hdim_q: int
    hdim_v: int
    page_size: int = 0
    pages: int = 0

    @property
    def empty(self) -> bool:
        """Whether queries, keys or elements are missing."""
        return 0 in (self.batch, self.heads, self.length_q, self.length_k, self.hdim_q, self.hdim_v)

    def describe(self) -> dict[str, Any]:
        """The fields of a problem."""
        packed = {"mode": "group", "total_q": self.total_q, "total_k": self.total_k} if self.packed else {}
        return {
            **{"batch": self.batch, "heads": self.heads, "kv_heads": self.kv_heads},
            **{"seqlen_q": self.length_q, "seqlen_k": self.length_k, "hdim_q": self.hdim_q, "hdim_v": self.hdim_v},
            **{"page_size": self.page_size, "pages": self.pages, **packed},
        }


def find_types(q: ArraySpec, out: ArraySpec | None) -> str:
    """The combination of types: that of q, with the result's type for 8-bit operands."""
    if q.type not in _OPERANDS:
        known = ", ".join(ARRAY_TYPES.get(name, name) for name in ("fp16", "bf16", "fp32"))
        raise TensorError(f"q is {ARRAY_TYPES[q.dtype]}: attention is computed in {known} and 8-bit floats")
    result = _RESULTS_OF_EIGHT_BITS.get(q.type, q.type) if out is None else out.type
    for name, types in DTYPES.items():
        if (types.qkv, types.o) == (q.type, result):
            return name
    known = ", ".join(types.o for types in DTYPES.values() if types.qkv == q.type)
    raise TensorError(f"out is {result}, but results of {q.type} operands can be {known}")


def read_sizes(given: Operands, options: AttentionOptions) -> Sizes:
    """The sizes of a call. Wrong ranks, types and sizes are errors."""
    check_same_type(given.q, given.k, given.v)
    _check_tables(given, options)
    rank = 3 if given.packs_sequences else 4
    _check_rank(given.q, rank, options.layout)
    for array in (given.k, given.v):
        _check_rank(array, 4 if given.page_table is not None else rank, options.layout)
    q, k, v = (_read_tokens(array, options.layout) for array in (given.q, given.k, given.v))
    if k[:-1] != v[:-1]:
        raise TensorError(f"k is {format_shape(given.k)} and v is {format_shape(given.v)}: tokens and heads must match")
    if q[-1] != k[-1]:
        raise TensorError(f"the heads of q have {q[-1]} elements, those of k {k[-1]}: they must be equal")
    heads, kv_heads = q[-2], k[-2]
    if kv_heads == 0 or heads % kv_heads:
        raise TensorError(f"q has {heads} heads, which is not a multiple of the {kv_heads} heads of k and v")
    sizes = _read_packed if given.packs_sequences else _read_padded
    return sizes(given, options, q, (*k, v[-1]))


def _read_padded(given: Operands, options: AttentionOptions, q: tuple[int, ...], kv: tuple[int, ...]) -> Sizes:
    """Sequences of equal lengths, or a cache with a place for each of them."""
    batch, length, heads, hdim_q = q
    outer, tokens, kv_heads, _, hdim_v = kv
    for name in ("max_seqlen_q", "max_seqlen_k"):
        if getattr(options, name) is not None:
            raise InvalidValueError(f"{name} is only for packed sequences: pass cu_seqlens_q and cu_seqlens_k, too")
    table = given.page_table
    _check_shape(given.seqlens_k, (batch,))
    if table is None:
        if outer != batch:
            raise TensorError(f"q has {batch} sequences, but k and v have {outer}")
        return Sizes(False, batch, heads, kv_heads, length, tokens, 0, 0, hdim_q, hdim_v)
    per_sequence = _check_page_table(table, batch)
    return Sizes(False, batch, heads, kv_heads, length, per_sequence * tokens, 0, 0, hdim_q, hdim_v, tokens, outer)


def _read_packed(given: Operands, options: AttentionOptions, q: tuple[int, ...], kv: tuple[int, ...]) -> Sizes:
    """Sequences one after another, and their keys one after another or in pages."""
    total_q, heads, hdim_q = q
    *outer, tokens, kv_heads, _, hdim_v = kv
    longest_q, longest_k = options.max_seqlen_q, options.max_seqlen_k
    assert given.cu_seqlens_q is not None
    if longest_q is None or longest_k is None:
        missing = "max_seqlen_q" if longest_q is None else "max_seqlen_k"
        raise InvalidValueError(f"{missing} is missing: packed sequences need the lengths of the longest ones")
    batch = max(0, given.cu_seqlens_q.size - 1)
    _check_shape(given.cu_seqlens_q, (batch + 1,))
    _check_shape(given.cu_seqlens_k, (batch + 1,))
    page_size, pages, total_k, length_k = 0, 0, tokens, min(longest_k, tokens)
    if given.page_table is not None:
        page_size, pages = tokens, outer[0]
        length_k = _check_page_table(given.page_table, batch) * page_size
        if longest_k > length_k:
            raise TensorError(
                f"max_seqlen_k is {longest_k}, but a row of page_table holds {length_k} tokens: pass a wider table"
            )
        total_k = batch * length_k
    for name, total, longest in (("q", total_q, longest_q), ("k", 0 if page_size else total_k, longest_k)):
        if total > batch * longest:
            raise TensorError(
                f"{name} has {total} tokens, which is more than {batch} sequences of at most {longest} tokens: "
                f"max_seqlen_{name} is too small"
            )
    length_q = min(longest_q, total_q)
    return Sizes(True, batch, heads, kv_heads, length_q, length_k, total_q, total_k, hdim_q, hdim_v, page_size, pages)


def _check_tables(given: Operands, options: AttentionOptions) -> None:
    """Require combinations of lengths and page tables that describe sequences."""
    if (given.cu_seqlens_q is None) != (given.cu_seqlens_k is None):
        raise InvalidValueError("packed sequences need both cu_seqlens_q and cu_seqlens_k")
    if given.packs_sequences and given.seqlens_k is not None:
        raise InvalidValueError("seqlens_k is not for packed sequences: cu_seqlens_k has the numbers of their keys")
    if given.page_table is not None and not given.packs_sequences and given.seqlens_k is None:
        raise InvalidValueError("a page table needs seqlens_k, the number of keys of each sequence")
    if options.dropout and given.cached:
        raise InvalidValueError("dropout is only for attention without a cache")
    if options.num_splits and not given.cached and not given.packs_sequences:
        raise InvalidValueError(
            f"num_splits is {options.num_splits}, but keys can be split only in a cache: pass seqlens_k"
        )
    for table in (given.cu_seqlens_q, given.cu_seqlens_k, given.seqlens_k, given.page_table):
        if table is not None and table.dtype != "int32":
            raise TensorError(f"{table.name} is {ARRAY_TYPES[table.dtype]}, must be int32")


def _check_page_table(table: ArraySpec, batch: int) -> int:
    """The number of pages of a sequence."""
    if len(table.shape) != 2 or table.shape[0] != batch:
        raise TensorError(f"page_table is {format_shape(table)}, must have a row for each of {batch} sequences")
    return table.shape[1]


def _check_shape(array: ArraySpec | None, shape: tuple[int, ...]) -> None:
    if array is not None and array.shape != shape:
        wanted = "×".join(map(str, shape))
        raise TensorError(f"{array.name} is {format_shape(array)}, must have {wanted} elements in one dimension")


def _check_rank(array: ArraySpec, rank: int, layout: str) -> None:
    if len(array.shape) != rank:
        names = {"b": "batch (or pages)", "s": "tokens", "h": "heads", "d": "elements"}
        order = ", ".join(names[letter] for letter in layout[4 - rank :])
        raise TensorError(
            f"{array.name} is {format_shape(array)}, which has {len(array.shape)} dimensions, must have {rank}: {order}"
        )


def _read_tokens(array: ArraySpec, layout: str) -> tuple[int, ...]:
    """The shape in the order (batch,) tokens, heads, elements."""
    return (array if layout == "bshd" else swap_heads(array)).shape


def swap_heads(array: ArraySpec) -> ArraySpec:
    """The other layout of an array of tokens."""
    last = len(array.shape)
    return array.permute(*range(last - 3), last - 2, last - 3, last - 1)


def format_shape(array: ArraySpec) -> str:
    """A shape for errors: 2×64×8×128."""
    return "×".join(map(str, array.shape)) or "a single value"
