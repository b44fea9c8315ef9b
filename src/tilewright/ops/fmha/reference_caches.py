"""The reference of appendkv in float64.

Imports NumPy: import this module only where arrays are at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.rounding import to_float64
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.sequences import (
    Arrays,
    TokenSequence,
    iterate_sequences,
    list_pages,
    move_heads_first,
    select_rows,
)

Turn = Callable[[Floats, NDArray[np.int_]], Floats]


def compute_appendkv(problem: Problem, given: Arrays, arch: Arch) -> dict[str, NDArray[Any]]:  # noqa: ARG001
    """Return the cache with the new tokens appended to each sequence, and the queries; both rotated."""
    old = {name: to_float64(given[name]) for name in ("q", "k", "v")}
    return append_tokens(
        problem, given, old, lambda values, positions: _rotate_pairs(problem, given, values, positions)
    )


def append_tokens(problem: Problem, given: Arrays, old: dict[str, Floats], turn: Turn) -> dict[str, NDArray[Any]]:
    """Return queries, keys and values with the new tokens, where `turn` is applied to queries and new keys."""
    made: dict[str, NDArray[Any]] = {name: np.array(each) for name, each in old.items()}
    for sequence in iterate_sequences(problem, given):
        q = to_float64(select_rows(problem, given, "q", sequence))
        select_rows(problem, made, "q", sequence)[...] = turn(q, query_positions(problem, sequence))
        new = to_float64(select_rows(problem, given, "k_new", sequence))
        _append_to_cache(problem, given, made, "k", sequence, turn(new, key_positions(problem, sequence)))
        _append_to_cache(
            problem, given, made, "v", sequence, to_float64(select_rows(problem, given, "v_new", sequence))
        )
    return made


def query_positions(problem: Problem, sequence: TokenSequence) -> NDArray[np.int_]:
    """The positions of a sequence's queries: after its keys; without a mask, all at the first of them."""
    step = 0 if problem.mask == "none" else 1
    return sequence.keys + step * np.arange(sequence.queries)


def key_positions(problem: Problem, sequence: TokenSequence) -> NDArray[np.int_]:
    """The positions of a sequence's new keys."""
    return sequence.keys + np.arange(problem.seqlen_new)


def _append_to_cache(
    problem: Problem, given: Arrays, made: dict[str, NDArray[Any]], name: str, sequence: TokenSequence, new: Floats
) -> None:
    by_head = move_heads_first(problem, made[name], name)
    token = key_positions(problem, sequence)
    if not problem.paged:
        by_head[sequence.number][:, token] = new
        return
    pages = list_pages(problem, given, sequence, sequence.keys + problem.seqlen_new)
    for i, place in enumerate(token):
        by_head[pages[place // problem.page_size], :, place % problem.page_size] = new[:, i]


def _rotate_pairs(problem: Problem, given: Arrays, values: Floats, positions: NDArray[np.int_]) -> Floats:
    """Rotate pairs of elements by their position's angle: neighbours, or one from each half of the rotated part."""
    if problem.rotary == "none":
        return values
    cos, sin = (to_float64(given[name])[positions] for name in ("rotary_cos", "rotary_sin"))
    left, right = get_pair_slices(problem)
    turned = np.array(values)
    turned[..., left] = values[..., left] * cos - values[..., right] * sin
    turned[..., right] = values[..., right] * cos + values[..., left] * sin
    return turned


def compute_rotation_magnitude(problem: Problem, given: Arrays, values: Floats, positions: NDArray[np.int_]) -> Floats:
    """Return, for each rotated element, the sum of the absolute values of its terms; 0 for the others."""
    size = np.zeros_like(values)
    if problem.rotary == "none":
        return size
    cos, sin = (np.abs(to_float64(given[name])[positions]) for name in ("rotary_cos", "rotary_sin"))
    left, right = get_pair_slices(problem)
    size[..., left] = np.abs(values[..., left]) * cos + np.abs(values[..., right]) * sin
    size[..., right] = np.abs(values[..., right]) * cos + np.abs(values[..., left]) * sin
    return size


def get_pair_slices(problem: Problem) -> tuple[slice, slice]:
    """Return the slices of the first and the second elements of the rotated pairs."""
    size = problem.rotary_size
    if problem.rotary == "interleaved":
        return slice(0, size, 2), slice(1, size, 2)
    return slice(0, size // 2), slice(size // 2, size)
