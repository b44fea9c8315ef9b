"""Test inputs for attention kernels: values, sequence lengths and page tables.

Imports NumPy: import this module only where arrays are at hand.

**Seed 0** gives inputs with exact results. Keys are 0, so all visible keys of a query have the same weight: a
probability is exactly 1 before it is divided by their number, and sums of values, which are small integers, are exact.
A wrong set of keys is always detected. Some values use all bits of their type (`block_gemm.random_values`), so a lost
bit is detected, too. Rotations are quarter turns, and so exact. Gradients have no such case: there all operands are
small integers. Lost bits of queries and keys are not detected with seed 0, but with random numbers.

**Other seeds** give normally distributed numbers, with queries twice as large, so that few keys of a row have most of
its weight. Some queries point to one of their keys, whose score is so far above all others that its exponential
overflows fp16 unless the largest score is subtracted first: this checks that the maximum of a row includes every key.
Some point away from a key, which matters where that key is the only one: without the subtraction its exponential
underflows fp16.

Cache tokens after the end of their sequence, and unused pages, hold numbers far larger than all others. Operands of a
gradient are consistent: o and lse are the results of a forward pass, rounded to their types.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats, to_numpy_dtype
from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.ops.block_gemm.random_values import APART, WHOLE_NUMBERS, draw_wide_numbers
from tilewright.ops.block_gemm.rounding import to_float64
from tilewright.ops.execution import Tensor
from tilewright.ops.fmha.kind import find_computation
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.reference_backward import compute_d
from tilewright.ops.fmha.reference_forward import compute_attention, compute_scores
from tilewright.ops.fmha.sequences import (
    iterate_sequences,
    list_pages,
    move_heads_first,
    order_by_tokens,
    order_by_vectors,
    repeat_kv_heads,
    select_rows,
)
from tilewright.ops.fmha.tensors import count_needed_pages, count_pages, has_key_lengths, list_tensors

Whole = NDArray[np.int_]


_UNUSED = 96.0  # representable in fp8 of all encodings, and far from all drawn values
_QUERY_SIZE = 2.0
_MOST = 3  # the largest of the small integers
_POINTING_SHARE = 1 / 4
# Added to a score: exp(24) is 4e5 times the largest number of fp16, and the other scores are below 10.
_POINTED = 24.0
_WIDE_SHARE = 1 / 16
_FAR_SINK = 200.0  # its exponential is 0 in fp32
_ROTARY_BASE = 10000.0  # of the angles, as in Su et al., RoFormer (arXiv 2104.09864), section 3.2.2


def make_inputs(problem: Problem, seed: int, arch: Arch) -> dict[str, NDArray[Any]]:
    """Return inputs and old contents of updated tensors by name, in the GPU's encoding; equal for equal seeds."""
    if problem.kv_layout == "vectorised":
        linear = replace(problem, kv_layout="linear")
        made = make_inputs(linear, seed, arch)
        cache = {
            name: order_by_vectors(problem, order_by_tokens(linear, made[name], name), name) for name in ("k", "v")
        }
        return {**made, **cache}
    computation = find_computation(problem)
    generator = np.random.default_rng([seed, computation.number, problem.seqlen_q, problem.seqlen_k])
    wanted = [tensor for tensor in list_tensors(problem) if not tensor.output or tensor.updated]
    made = generate_tables(problem, generator)
    for tensor in wanted:
        if tensor.name not in made and tensor.name not in computation.computed_inputs:
            values = _generate_values(problem, tensor, seed, generator)
            if seed == WHOLE_NUMBERS and tensor.name in computation.wide_inputs:
                _insert_wide_numbers(problem, values, tensor, generator, arch)
            if tensor.name in ("k", "v"):
                _mark_unused(problem, made, tensor.name, values)
            made[tensor.name] = values.astype(to_numpy_dtype(tensor.dtype, arch))
    made = computation.finish_inputs(problem, made, generator, seed, arch)
    return {tensor.name: made[tensor.name] for tensor in wanted}


def _generate_values(problem: Problem, tensor: Tensor, seed: int, generator: np.random.Generator) -> Floats:
    """Return the values of a tensor before they are rounded to its type."""
    special = seed == WHOLE_NUMBERS
    if tensor.name in ("rotary_cos", "rotary_sin"):
        return _compute_rotations(tensor, special=special)
    if tensor.name == "sink_logits" or (tensor.name == "bias" and problem.bias == "alibi"):
        generate = _generate_sinks if tensor.name == "sink_logits" else _generate_slopes
        return generate(tensor, generator, special=special)
    if not special:
        size = _QUERY_SIZE if tensor.name in ("q", "lse_acc") else 1.0
        return np.asarray(generator.standard_normal(tensor.shape) * size)
    whole = generator.integers(-_MOST, _MOST, tensor.shape, endpoint=True).astype(np.float64)
    if find_computation(problem).integer_inputs:
        return whole
    if tensor.name in ("k", "lse_acc"):
        return np.zeros(tensor.shape)
    # Equal for all keys of a query: it changes the LSE, but not the weights.
    return np.broadcast_to(whole[..., :1], tensor.shape).copy() if tensor.name == "bias" else whole


def _insert_wide_numbers(
    problem: Problem, values: Floats, tensor: Tensor, generator: np.random.Generator, arch: Arch
) -> None:
    """Put numbers that use all bits of their type into every APART-th column; one or two in a sum over all keys."""
    columns = values[..., ::APART]
    some = generator.random(columns.shape) < min(_WIDE_SHARE, 1.5 / max(1, problem.seqlen_k))
    columns[some] = draw_wide_numbers(generator, (int(np.count_nonzero(some)),), tensor.dtype, arch)


def _compute_rotations(tensor: Tensor, *, special: bool) -> Floats:
    """Return cosines or sines for each position and each pair of elements."""
    position, pair = np.indices(tensor.shape)
    if special:
        quarters = position + pair + (0 if tensor.name == "rotary_cos" else 3)
        cosines = np.asarray([1.0, 0.0, -1.0, 0.0])
        return np.asarray(cosines[quarters % 4])
    angles = position * _ROTARY_BASE ** (-pair / tensor.shape[1])
    return np.asarray(np.cos(angles) if tensor.name == "rotary_cos" else np.sin(angles))


def _generate_slopes(tensor: Tensor, generator: np.random.Generator, *, special: bool) -> Floats:
    """Return ALiBi slopes, a different one for each head of each sequence; powers of two for exact sums."""
    if special:
        return np.asarray(2.0 ** -(1.0 + np.arange(np.prod(tensor.shape)) % 5)).reshape(tensor.shape)
    return generator.uniform(0.02, 0.5, tensor.shape)


def _generate_sinks(tensor: Tensor, generator: np.random.Generator, *, special: bool) -> Floats:
    """Return the logits of sinks: among the scores, or far above or below them, in turn for consecutive heads.

    With exact inputs they are the score of all keys, so that a sink weighs as much as one key, or have no weight.
    """
    kind = (np.arange(tensor.shape[0]) + generator.integers(0, 4)) % 4
    if special:
        return np.where(kind % 2 == 0, 0.0, -_FAR_SINK)
    near = generator.standard_normal(tensor.shape) * _QUERY_SIZE
    return np.asarray(np.choose(kind, (near, near + _POINTED / 2, near, -_FAR_SINK + near)))


def _mark_unused(problem: Problem, given: dict[str, NDArray[Any]], name: str, values: Floats) -> None:
    """Put large numbers into the unused tokens of a cache."""
    computation = find_computation(problem)
    cached = problem.paged or has_key_lengths(problem) or computation.lists_pages
    if not cached or computation.appends:
        return
    by_head = move_heads_first(problem, values, name)
    used = np.zeros((by_head.shape[0], by_head.shape[2]), dtype=np.bool_)
    for sequence in iterate_sequences(problem, given):
        if problem.paged:
            mine = list_pages(problem, given, sequence, sequence.keys)
            token = np.arange(sequence.keys)
            used[mine[token // problem.page_size], token % problem.page_size] = True
        else:
            used[sequence.number, : sequence.keys] = True
    for i, tokens in enumerate(used):
        by_head[i][:, ~tokens] = _UNUSED


def add_dominant_keys(
    problem: Problem,
    given: dict[str, NDArray[Any]],
    generator: np.random.Generator,
    seed: int,
    arch: Arch,  # noqa: ARG001
) -> dict[str, NDArray[Any]]:
    """Change some queries so that the score of one key is large, or far below 0; none with exact inputs.

    It is a random key, or the one on the diagonal, which no mask hides and which is the only visible one in some rows.
    """
    if seed == WHOLE_NUMBERS:
        return given
    for sequence in iterate_sequences(problem, given):
        if not sequence.keys or not sequence.queries:
            continue
        q = select_rows(problem, given, "q", sequence)
        k = repeat_kv_heads(problem, to_float64(select_rows(problem, given, "k", sequence)))
        head, query = np.indices(q.shape[:2])
        diagonal = query + (sequence.keys - sequence.queries if problem.mask == "bottom_right" else 0)
        any_key = generator.integers(0, sequence.keys, query.shape)
        kind = generator.integers(0, 4, query.shape)
        towards = k[head, np.where(kind < 2, any_key, diagonal.clip(0, sequence.keys - 1))]
        factor = np.where(kind < 3, _POINTED, -_POINTED) / problem.scale / (towards * towards).sum(axis=-1)
        factor *= generator.random(query.shape) < _POINTING_SHARE
        q[...] = (to_float64(q) + factor[..., None] * towards).astype(q.dtype)
    return given


def clear_some_parts(
    problem: Problem,  # noqa: ARG001
    given: dict[str, NDArray[Any]],
    generator: np.random.Generator,
    *_: object,
) -> dict[str, NDArray[Any]]:
    """Clear some parts as if they had no keys: LSE minus infinity and result 0; all parts of one row are cleared."""
    o, lse = given["o_acc"], given["lse_acc"]
    empty = generator.random(lse.shape) < 1 / (2 * lse.shape[0])
    empty.reshape(lse.shape[0], -1)[:, 0] = True
    lse[empty] = -np.inf
    o[empty] = 0
    return given


def add_forward_results(
    problem: Problem,
    given: dict[str, NDArray[Any]],
    generator: np.random.Generator,  # noqa: ARG001
    seed: int,  # noqa: ARG001
    arch: Arch,
) -> dict[str, NDArray[Any]]:
    """Add the forward results that a gradient needs, rounded to their types."""
    kinds = {tensor.name: to_numpy_dtype(tensor.dtype, arch) for tensor in list_tensors(problem)}
    o = np.zeros_like(to_float64(given["d_o"]))
    lse = np.zeros(next(t.shape for t in list_tensors(problem) if t.name == "lse"))
    made: dict[str, NDArray[Any]] = {**given, "o": o, "lse": lse}
    for sequence in iterate_sequences(problem, given):
        of_sequence = compute_scores(problem, given, sequence)
        v = repeat_kv_heads(problem, to_float64(select_rows(problem, given, "v", sequence)))
        select_rows(problem, made, "o", sequence)[...] = compute_attention(problem, of_sequence, v, sequence)
        select_rows(problem, made, "lse", sequence)[...] = of_sequence.lse
    stored = {"o": o.astype(kinds["d_o"]), "lse": lse.astype(np.float32)}
    d = compute_d(problem, to_float64(stored["o"]), to_float64(given["d_o"])).astype(np.float32)
    return {**made, **stored, "d": d}


def generate_tables(problem: Problem, generator: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Return lengths, starts and page tables of a problem's sequences by tensor name."""
    made: dict[str, NDArray[Any]] = {}
    if problem.mode == "group":
        made["seqstart_q"] = _compute_starts(
            _draw_lengths_with_total(generator, problem, problem.total_q, problem.seqlen_q, (1,))
        )
    keys = _draw_key_counts(problem, generator)
    lists_pages = find_computation(problem).lists_pages and problem.page_lookup == "list"
    if lists_pages:
        size = max(problem.page_size, 1)
        needed = -(-keys // size)
        made["page_starts"] = _compute_starts(needed)
        made["page_list"] = _build_page_list(problem, needed, generator)
        made["last_page_lens"] = (keys - (needed - 1).clip(0) * size).astype(np.int32)
    elif problem.mode == "group" and not has_key_lengths(problem):
        made["seqstart_k"] = _compute_starts(keys)
    if has_key_lengths(problem):
        made["seqlens_k"] = keys.astype(np.int32)
    if problem.paged and not lists_pages:
        made["page_table"] = _build_page_table(problem, keys + problem.seqlen_new, generator)
    return made


def _draw_key_counts(problem: Problem, generator: np.random.Generator) -> Whole:
    """Return the number of keys of each sequence; for appendkv, before new ones are appended."""
    if problem.mode == "group":
        return _draw_lengths_with_total(generator, problem, problem.total_k, problem.seqlen_k, (0, 1))
    if find_computation(problem).appends:
        if problem.seqlen_new > problem.seqlen_k:
            raise InvalidValueError(
                f"{problem.seqlen_new} new tokens do not fit into a cache of seqlen_k = {problem.seqlen_k}: seqlen_k "
                "must be at least seqlen_new"
            )
        return _draw_lengths(generator, problem.batch, problem.seqlen_k - problem.seqlen_new, (0,))
    if has_key_lengths(problem) or find_computation(problem).lists_pages:
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


def _build_page_list(problem: Problem, needed: Whole, generator: np.random.Generator) -> NDArray[np.int32]:
    """Return pages in random order, possibly with more pages after those that all sequences need."""
    listed = problem.listed_pages or count_needed_pages(problem)
    if needed.sum() > listed:
        raise InvalidValueError(f"the sequences need {needed.sum()} pages, but listed_pages = {listed}: increase it")
    order = _shuffle_pages(problem, int(needed.sum()), generator)
    return np.resize(order, listed).astype(np.int32)


def _shuffle_pages(problem: Problem, needed: int, generator: np.random.Generator) -> Whole:
    """Return all pages of the cache in random order."""
    count = count_pages(problem)
    if needed > count:
        raise InvalidValueError(f"the sequences need {needed} pages, but pages = {count}: increase it, or pass 0")
    return generator.permutation(count)
