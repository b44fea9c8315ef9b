"""Sequence lengths and page tables for test problems: edge cases and random values.

Imports NumPy: import this module only where arrays are at hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import InvalidValueError
from tilewright.ops.fmha.families import APPENDKV, BATCH_PREFILL
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.tensors import count_pages, has_key_lengths

Whole = NDArray[np.int_]


def generate_tables(problem: Problem, generator: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Return lengths, starts and page tables of a problem's sequences by tensor name."""
    made: dict[str, NDArray[Any]] = {}
    if problem.mode == "group":
        made["seqstart_q"] = _compute_starts(
            _draw_lengths_with_total(generator, problem, problem.total_q, problem.seqlen_q, (1,))
        )
    keys = _draw_key_counts(problem, generator)
    if problem.family == BATCH_PREFILL:
        made["page_starts"] = _compute_starts(keys)
        made["page_list"] = _build_page_list(problem, keys, generator)
    elif problem.mode == "group":
        made["seqstart_k"] = _compute_starts(keys)
    if has_key_lengths(problem):
        made["seqlens_k"] = keys.astype(np.int32)
    if problem.paged and problem.family != BATCH_PREFILL:
        made["page_table"] = _build_page_table(problem, keys + problem.seqlen_new, generator)
    return made


def _draw_key_counts(problem: Problem, generator: np.random.Generator) -> Whole:
    """Return the number of keys of each sequence; for appendkv, before new ones are appended."""
    if problem.mode == "group":
        return _draw_lengths_with_total(generator, problem, problem.total_k, problem.seqlen_k, (0, 1))
    if problem.family == APPENDKV:
        if problem.seqlen_new > problem.seqlen_k:
            raise InvalidValueError(
                f"{problem.seqlen_new} new tokens do not fit into a cache of seqlen_k = {problem.seqlen_k}: seqlen_k "
                "must be at least seqlen_new"
            )
        return _draw_lengths(generator, problem.batch, problem.seqlen_k - problem.seqlen_new, (0,))
    if has_key_lengths(problem) or problem.family == BATCH_PREFILL:
        return _draw_lengths(generator, problem.batch, problem.seqlen_k, (1, 0))
    return np.full(problem.batch, problem.seqlen_k)


def _draw_lengths(generator: np.random.Generator, batch: int, longest: int, edges: tuple[int, ...]) -> Whole:
    """Return a length for each sequence, shuffled: the longest, the edge cases, then random lengths."""
    lengths = [longest, *(min(edge, longest) for edge in edges)][:batch]
    least = min(1, longest)
    lengths += [int(each) for each in generator.integers(least, longest, batch - len(lengths), endpoint=True)]
    return generator.permutation(np.asarray(lengths))


def _draw_lengths_with_total(
    generator: np.random.Generator, problem: Problem, total: int, longest: int, edges: tuple[int, ...]
) -> Whole:
    """Return lengths that add up to the total: the longest, the edge cases where possible, then random lengths."""
    lengths, rest, left = [longest], total - longest, problem.batch - 1
    for edge in edges:
        if left > 1 and edge <= rest <= edge + (left - 1) * longest:
            lengths, rest, left = [*lengths, edge], rest - edge, left - 1
    for others in reversed(range(left)):
        # At least the tokens that do not fit into the others. No sequence is empty unless it must be.
        least = max(rest - others * longest, min(1, rest))
        most = max(least, min(longest, rest - min(others, rest - least)))
        length = int(generator.integers(least, most, endpoint=True))
        lengths, rest = [*lengths, length], rest - length
    return generator.permutation(np.asarray(lengths))


def _compute_starts(lengths: Whole) -> NDArray[np.int32]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def _build_page_table(problem: Problem, lengths: Whole, generator: np.random.Generator) -> NDArray[np.int32]:
    """Return the pages in random order. Entries after the end of a sequence name random pages."""
    needed = -(-lengths // problem.page_size)
    order = _shuffle_pages(problem, int(needed.sum()), generator)
    table = generator.choice(order, (problem.batch, -(-problem.seqlen_k // problem.page_size)))
    for i, (first, count) in enumerate(zip(_compute_starts(needed), needed, strict=False)):
        table[i, :count] = order[first : first + count]
    return table.astype(np.int32)


def _build_page_list(problem: Problem, lengths: Whole, generator: np.random.Generator) -> NDArray[np.int32]:
    """Return pages of one token in random order, possibly with more pages after those of all sequences."""
    listed = problem.total_k or problem.batch * problem.seqlen_k
    order = _shuffle_pages(problem, int(lengths.sum()), generator)
    return np.resize(order, listed).astype(np.int32)


def _shuffle_pages(problem: Problem, needed: int, generator: np.random.Generator) -> Whole:
    """Return all pages of the cache in random order."""
    count = count_pages(problem)
    if needed > count:
        raise InvalidValueError(f"the sequences need {needed} pages, but pages = {count}: increase it, or pass 0")
    return generator.permutation(count)
