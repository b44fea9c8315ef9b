"""The sequences of a problem as plain arrays of (head, token, element), independent of the layout.

Imports NumPy: import this module only where arrays are at hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.ops.fmha.kind import find_computation
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.tensors import has_key_lengths

Arrays = Mapping[str, NDArray[Any]]
# Tensors with a row of elements for each head of a query token, and of a key token; those of them that may be
# transposed; tensors with a leading dimension of parts.
_QUERY_ROWS = ("q", "o", "d_o", "dq")
_KEY_ROWS = ("k", "v", "dk", "dv", "k_new", "v_new")
_TRANSPOSED = ("v", "dv", "v_new")
_PARTS = ("o_acc", "lse_acc", "dq_acc")


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """One sequence of a batch: its numbers of queries and keys, and their start in group mode.

    Where pages are listed, `first_key` is the place of its first page in the list.
    """

    number: int
    queries: int
    keys: int
    first_query: int = 0
    first_key: int = 0


def iterate_sequences(problem: Problem, given: Arrays) -> Iterator[TokenSequence]:
    """Yield all sequences of a problem. For appendkv, `keys` does not count the new ones."""
    queries = _read_starts(problem, given, "seqstart_q", problem.seqlen_q)
    if "page_starts" in given:
        starts = np.asarray(given["page_starts"]).astype(int)
        counts = _count_listed_keys(problem, given, np.diff(starts))
        for i in range(problem.batch):
            yield TokenSequence(i, int(queries[i + 1] - queries[i]), int(counts[i]), int(queries[i]), int(starts[i]))
        return
    if has_key_lengths(problem):
        keys = np.concatenate([[0], np.cumsum(np.asarray(given["seqlens_k"]).astype(int))])
    else:
        keys = _read_starts(problem, given, "seqstart_k", problem.seqlen_k)
    for i in range(problem.batch):
        lengths = int(queries[i + 1] - queries[i]), int(keys[i + 1] - keys[i])
        yield TokenSequence(i, *lengths, int(queries[i]), int(keys[i]))


def _count_listed_keys(problem: Problem, given: Arrays, pages: NDArray[np.int_]) -> NDArray[np.int_]:
    """Return the number of keys of each sequence from its number of pages: all but the last page are full."""
    if "last_page_lens" not in given:
        return pages
    last = np.asarray(given["last_page_lens"]).astype(int)
    return np.where(pages > 0, (pages - 1) * problem.page_size + last, 0)


def _read_starts(problem: Problem, given: Arrays, name: str, length: int) -> NDArray[np.int_]:
    if name in given:
        return np.asarray(given[name]).astype(int)
    return np.arange(problem.batch + 1) * length


def select_rows(problem: Problem, given: Arrays, name: str, sequence: TokenSequence) -> NDArray[Any]:
    """Return a sequence's part of a tensor: (head, token, element), (head, query, key) or (head, query).

    A dimension of parts comes first. Unless the tensor is in pages, the result is a view and can be written to.
    """
    array = np.asarray(given[name])
    if name in ("k", "v") and problem.paged:
        return _gather_pages(problem, given, name, sequence)
    if name in _QUERY_ROWS + _KEY_ROWS:
        return _select_tokens(problem, array, name, sequence)
    lead = 1 if name in _PARTS else 0
    of_sequence = array if problem.mode == "group" else np.moveaxis(array, lead, 0)[sequence.number]
    queries = _get_slice(problem, sequence.first_query, sequence.queries)
    picked = of_sequence[(slice(None),) * (lead + 1) + (queries,)]
    return picked[..., : sequence.keys] if name in ("bias", "dbias", "randval") else picked


def _select_tokens(problem: Problem, array: NDArray[Any], name: str, sequence: TokenSequence) -> NDArray[Any]:
    whole = array if problem.mode == "group" else array[sequence.number]
    by_head = move_heads_first(problem, whole, name)
    if name in _QUERY_ROWS:
        return by_head[:, _get_slice(problem, sequence.first_query, sequence.queries)]
    if name in ("k_new", "v_new") or find_computation(problem).appends:
        return by_head
    return by_head[:, _get_slice(problem, sequence.first_key, sequence.keys)]


def move_heads_first(problem: Problem, array: NDArray[Any], name: str) -> NDArray[Any]:
    """Return a view (…, head, token, element) of a tensor."""
    if name in _TRANSPOSED and problem.v_layout == "col":
        return array.swapaxes(-1, -2)
    return array.swapaxes(-2, -3) if problem.layout == "bshd" else array


def _get_slice(problem: Problem, first: int, length: int) -> slice:
    return slice(first, first + length) if problem.mode == "group" else slice(0, length)


def list_pages(problem: Problem, given: Arrays, sequence: TokenSequence, tokens: int) -> NDArray[np.int_]:
    """Return the pages that hold the first tokens of a sequence, in order."""
    count = -(-tokens // problem.page_size)
    if "page_list" in given:
        first = sequence.first_key
        return np.asarray(given["page_list"])[first : first + count].astype(int)
    return np.asarray(given["page_table"])[sequence.number, :count].astype(int)


def order_by_tokens(problem: Problem, array: NDArray[Any], name: str) -> NDArray[Any]:
    """Return pages as (page, head, token, element), a copy if they are in vectors."""
    if problem.kv_layout == "linear":
        return move_heads_first(problem, array, name)
    pages, heads = array.shape[:2]
    size = problem.hdim_v if name == "v" else problem.hdim_q
    # Values are (page, head, vector, element, token of the vector), keys (page, head, vector, token, element of it).
    by_token = array.transpose(0, 1, 2, 4, 3) if name == "v" else array.transpose(0, 1, 3, 2, 4)
    return by_token.reshape(pages, heads, problem.page_size, size)


def order_by_vectors(problem: Problem, by_token: NDArray[Any], name: str) -> NDArray[Any]:
    """Return pages in vectors from (page, head, token, element): the inverse of `order_by_tokens`."""
    pages, heads, tokens, size = by_token.shape
    vector = problem.vector_size
    if name == "v":
        split = by_token.reshape(pages, heads, tokens // vector, vector, size).transpose(0, 1, 2, 4, 3)
    else:
        split = by_token.reshape(pages, heads, tokens, size // vector, vector).transpose(0, 1, 3, 2, 4)
    return np.ascontiguousarray(split)


def _gather_pages(problem: Problem, given: Arrays, name: str, sequence: TokenSequence) -> NDArray[Any]:
    by_head = order_by_tokens(problem, np.asarray(given[name]), name)
    used = by_head[list_pages(problem, given, sequence, sequence.keys)]  # page, head, token, element
    _, heads, _, size = by_head.shape
    return np.moveaxis(used, 1, 0).reshape(heads, -1, size)[:, : sequence.keys]


def repeat_kv_heads(problem: Problem, by_kv_head: NDArray[Any]) -> NDArray[Any]:
    """Return keys or values for each query head, repeated for heads that share them."""
    return np.repeat(by_kv_head, problem.heads // problem.kv_heads, axis=0)


def sum_shared_heads(problem: Problem, by_head: NDArray[Any]) -> NDArray[Any]:
    """Return the sum over the heads that share keys and values."""
    heads, *rest = by_head.shape
    summed: NDArray[Any] = by_head.reshape(problem.kv_heads, heads // problem.kv_heads, *rest).sum(axis=1)
    return summed
