"""How long the sequences of a problem are, and which pages they are in: drawn, as edges and at random.

Imports NumPy: import this module only where arrays are at hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import InvalidValueError
from tilewright.ops.fmha.families import APPENDKV, BATCH_PREFILL
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.tensors import lengths_given, pages

Whole = NDArray[np.int_]


def tables(problem: Problem, generator: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Lengths, starts and page tables of a problem's sequences by the names of their tensors."""
    made: dict[str, NDArray[Any]] = {}
    if problem.mode == "group":
        made["seqstart_q"] = _starts(_adding_up(generator, problem, problem.total_q, problem.seqlen_q, (1,)))
    keys = _keys(problem, generator)
    if problem.family == BATCH_PREFILL:
        made["page_starts"] = _starts(keys)
        made["page_list"] = _page_list(problem, keys, generator)
    elif problem.mode == "group":
        made["seqstart_k"] = _starts(keys)
    if lengths_given(problem):
        made["seqlens_k"] = keys.astype(np.int32)
    if problem.paged and problem.family != BATCH_PREFILL:
        made["page_table"] = _page_table(problem, keys + problem.seqlen_new, generator)
    return made


def _keys(problem: Problem, generator: np.random.Generator) -> Whole:
    """How many keys each sequence has; of appendkv, before."""
    if problem.mode == "group":
        return _adding_up(generator, problem, problem.total_k, problem.seqlen_k, (0, 1))
    if problem.family == APPENDKV:
        if problem.seqlen_new > problem.seqlen_k:
            raise InvalidValueError(
                f"{problem.seqlen_new} new tokens do not fit into a cache of seqlen_k = {problem.seqlen_k}: give at "
                "least as many"
            )
        return _up_to(generator, problem.batch, problem.seqlen_k - problem.seqlen_new, (0,))
    if lengths_given(problem) or problem.family == BATCH_PREFILL:
        return _up_to(generator, problem.batch, problem.seqlen_k, (1, 0))
    return np.full(problem.batch, problem.seqlen_k)


def _up_to(generator: np.random.Generator, batch: int, longest: int, edges: tuple[int, ...]) -> Whole:
    """The longest, then the edges, then lengths at random, as many as there are sequences, shuffled."""
    lengths = [longest, *(min(edge, longest) for edge in edges)][:batch]
    least = min(1, longest)
    lengths += [int(each) for each in generator.integers(least, longest, batch - len(lengths), endpoint=True)]
    return generator.permutation(np.asarray(lengths))


def _adding_up(
    generator: np.random.Generator, problem: Problem, total: int, longest: int, edges: tuple[int, ...]
) -> Whole:
    """Lengths that add up to the total: the longest, the edges where they can be, and the rest at random."""
    lengths, rest, left = [longest], total - longest, problem.batch - 1
    for edge in edges:
        if left > 1 and edge <= rest <= edge + (left - 1) * longest:
            lengths, rest, left = [*lengths, edge], rest - edge, left - 1
    for others in reversed(range(left)):
        # At least what the others cannot take; no sequence is empty that need not be.
        least = max(rest - others * longest, min(1, rest))
        most = max(least, min(longest, rest - min(others, rest - least)))
        length = int(generator.integers(least, most, endpoint=True))
        lengths, rest = [*lengths, length], rest - length
    return generator.permutation(np.asarray(lengths))


def _starts(lengths: Whole) -> NDArray[np.int32]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def _page_table(problem: Problem, lengths: Whole, generator: np.random.Generator) -> NDArray[np.int32]:
    """Pages in any order. Places behind a sequence's end name any."""
    needed = -(-lengths // problem.page_size)
    order = _shuffled(problem, int(needed.sum()), generator)
    table = generator.choice(order, (problem.batch, -(-problem.seqlen_k // problem.page_size)))
    for i, (first, count) in enumerate(zip(_starts(needed), needed, strict=False)):
        table[i, :count] = order[first : first + count]
    return table.astype(np.int32)


def _page_list(problem: Problem, lengths: Whole, generator: np.random.Generator) -> NDArray[np.int32]:
    """Pages of one token in any order; behind those of all sequences there may be others."""
    listed = problem.total_k or problem.batch * problem.seqlen_k
    order = _shuffled(problem, int(lengths.sum()), generator)
    return np.resize(order, listed).astype(np.int32)


def _shuffled(problem: Problem, needed: int, generator: np.random.Generator) -> Whole:
    """All pages of the cache in any order."""
    count = pages(problem)
    if needed > count:
        raise InvalidValueError(f"the sequences need {needed} pages, pages = {count}: give more, or 0 for enough")
    return generator.permutation(count)
