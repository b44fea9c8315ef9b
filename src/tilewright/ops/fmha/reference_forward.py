"""Attention in float64: the references of forward, pagedkv, batch_prefill, splitkv and combine.

Imports NumPy: import this module only where arrays are at hand.

Intermediate results are not rounded. The rounding of kernels is part of the tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats, find_array_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.matrix_product import multiply_matrices
from tilewright.ops.block_gemm.rounding import to_float64
from tilewright.ops.fmha.dropout import draw_keep_mask, draw_random_bytes, dropout_scale
from tilewright.ops.fmha.kind import find_computation
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.sequences import Arrays, TokenSequence, iterate_sequences, repeat_kv_heads, select_rows
from tilewright.ops.fmha.tensors import list_tensors

_NO_SINKS: Floats = np.asarray(-np.inf)


@dataclass(frozen=True)
class Scores:
    """The scores of a sequence, (head, query, key), and their terms. What follows from them is computed once."""

    products: Floats  # scale · q · k
    added: Floats  # the bias; 0 without
    visible: NDArray[np.bool_]  # (query, key)
    final: Floats  # with bias and cap; minus infinity where masked
    # (head), or one number: the logit of a key without a value
    sinks: Floats = field(default_factory=lambda: _NO_SINKS)

    @cached_property
    def largest(self) -> Floats:
        """The largest score of each row, or its sink; 0 where no key is visible."""
        largest = np.maximum(self.final.max(axis=-1, initial=-np.inf), self.sinks[..., None])
        return np.where(np.isfinite(largest), largest, 0.0)

    @cached_property
    def exponentials(self) -> Floats:
        """Exponentials relative to that of the largest score; 0 where masked."""
        return np.asarray(np.exp(self.final - self.largest[..., None]))

    @cached_property
    def total(self) -> Floats:
        """The sum of each row's exponentials, with that of the sink; 1 where no key is visible."""
        total = self.exponentials.sum(axis=-1) + np.exp(self.sinks[..., None] - self.largest)
        return np.where(total > 0, total, 1.0)

    @cached_property
    def lse(self) -> Floats:
        """The log of the sum of exponentials of each row; minus infinity where no key is visible."""
        seen = self.visible.any(axis=-1) & np.isfinite(self.final).any(axis=-1)
        return np.where(seen | np.isfinite(self.sinks[..., None]), self.largest + np.log(self.total), -np.inf)

    @cached_property
    def probabilities(self) -> Floats:
        """The probabilities: each row sums to 1, to less with a sink, or is 0 where no key is visible."""
        return self.exponentials / self.total[..., None]


def build_visibility_mask(problem: Problem, queries: int, keys: int) -> NDArray[np.bool_]:
    """Return which keys are visible to each query: (query, key).

    A mask has a diagonal, through the top left or the bottom right corner. A window limits the distance of a key from
    it. Sinks are also visible left of the window, but not right of it.
    """
    if problem.mask == "none":
        return np.ones((queries, keys), dtype=np.bool_)
    first = 0 if problem.mask == "top_left" else keys - queries
    key = np.arange(keys)
    after = key - (np.arange(queries)[:, None] + first)
    right = after <= problem.window_right if problem.window_right >= 0 else np.ones_like(after, dtype=np.bool_)
    left = -after <= problem.window_left if problem.window_left >= 0 else np.ones_like(right)
    return np.asarray(right & (left | (key < problem.sink)))


def compute_alibi_distances(problem: Problem, queries: int, keys: int) -> Floats:
    """Return the distances that ALiBi multiplies by slopes: (query, key).

    Without a mask, and with a mask that is not causal, it is minus the distance of a key from the diagonal. With a
    causal mask it is the index of the key: in a row it differs by a constant, which does not change a softmax.
    """
    key = np.arange(keys)
    if problem.mask != "none" and problem.window_left < 0 and problem.window_right == 0:
        return np.broadcast_to(key, (queries, keys)).astype(np.float64)
    first = 0 if problem.mask == "top_left" else keys - queries
    return np.asarray(-np.abs(key - (np.arange(queries)[:, None] + first)), dtype=np.float64)


def compute_scores(problem: Problem, given: Arrays, sequence: TokenSequence) -> Scores:
    """Compute the scores of a sequence."""
    q = to_float64(select_rows(problem, given, "q", sequence))
    k = repeat_kv_heads(problem, to_float64(select_rows(problem, given, "k", sequence)))
    seen = build_visibility_mask(problem, sequence.queries, sequence.keys)
    products = problem.scale * multiply_matrices(q, k.swapaxes(1, 2))
    added = np.zeros_like(products)
    if problem.bias == "elementwise":
        added = to_float64(select_rows(problem, given, "bias", sequence))
    elif problem.bias == "alibi":
        slopes = to_float64(given["bias"])[sequence.number]
        added = slopes[:, None, None] * compute_alibi_distances(problem, sequence.queries, sequence.keys)
    final = products + added
    if problem.logits_cap > 0:
        final = problem.logits_cap * np.tanh(final / problem.logits_cap)
    sinks = to_float64(given["sink_logits"]) if problem.sink_logits else _NO_SINKS
    return Scores(products, added, seen, np.where(seen, final, -np.inf), sinks)


def apply_dropout(problem: Problem, probabilities: Floats, sequence: TokenSequence) -> Floats:
    """Return probabilities, or exponentials, after dropout."""
    if problem.p_drop == 0:
        return probabilities
    keep = draw_keep_mask(problem, sequence.number, *probabilities.shape[1:])
    return np.where(keep, probabilities * dropout_scale(problem), 0.0)


def compute_attention(problem: Problem, of_scores: Scores, v: Floats, sequence: TokenSequence) -> Floats:
    """Return values weighted by probabilities: (head, query, element). The division comes last, to keep sums exact."""
    return multiply_matrices(apply_dropout(problem, of_scores.exponentials, sequence), v) / of_scores.total[..., None]


def result_scale(problem: Problem) -> float:
    """The factor of the result: a quantised kernel scales its probabilities and its result."""
    return problem.scale_p * problem.scale_o if problem.static_quant else 1.0


def saturate_results(problem: Problem, values: Floats, arch: Arch) -> Floats:
    """Clip results as quantised kernels do, to the range of fp8.

    The forward kernel does so only for results of type fp8, the other kinds for all types.
    """
    if not problem.static_quant or find_computation(problem).keeps_wide_results(problem):
        return values
    import ml_dtypes  # noqa: PLC0415  (only where such types are used)

    largest = float(ml_dtypes.finfo(find_array_dtype(arch.resolve_dtype("fp8"))).max)  # type: ignore[no-untyped-call]
    return np.clip(values, -largest, largest)


def allocate_outputs(problem: Problem) -> dict[str, NDArray[Any]]:
    """Return zeros in float64 for each output."""
    return {tensor.name: np.zeros(tensor.shape) for tensor in list_tensors(problem) if tensor.output}


def is_left_out(problem: Problem, sequence: TokenSequence) -> bool:
    """Whether kernels write nothing for a sequence: it has no queries, or no more than `min_seqlen_q`."""
    return sequence.queries == 0 or (problem.min_seqlen_q > 0 and sequence.queries <= problem.min_seqlen_q)


def compute_forward(problem: Problem, given: Arrays, arch: Arch) -> dict[str, NDArray[Any]]:
    """Compute o, and lse and randval if the problem has them."""
    made = allocate_outputs(problem)
    for sequence in iterate_sequences(problem, given):
        of_sequence = compute_scores(problem, given, sequence)
        v = repeat_kv_heads(problem, to_float64(select_rows(problem, given, "v", sequence)))
        o = compute_attention(problem, of_sequence, v, sequence)
        select_rows(problem, made, "o", sequence)[...] = saturate_results(problem, o * result_scale(problem), arch)
        if "lse" in made:
            select_rows(problem, made, "lse", sequence)[...] = of_sequence.lse
        if "randval" in made:
            numbers = draw_random_bytes(problem, sequence.number, sequence.queries, sequence.keys)
            select_rows(problem, made, "randval", sequence)[...] = numbers
    return made


def split_keys(problem: Problem, keys: int) -> list[slice]:
    """Return the keys of each part: equal lengths but the last, as SimplifiedGenericAttentionMask splits them."""
    length = max(1, -(-keys // problem.num_splits))
    return [slice(min(i * length, keys), min((i + 1) * length, keys)) for i in range(problem.num_splits)]


def compute_splitkv(problem: Problem, given: Arrays, arch: Arch) -> dict[str, NDArray[Any]]:  # noqa: ARG001
    """Compute attention over each part of the keys alone, and the LSE of each."""
    made = allocate_outputs(problem)
    for sequence in iterate_sequences(problem, given):
        of_sequence = compute_scores(problem, given, sequence)
        v = repeat_kv_heads(problem, to_float64(select_rows(problem, given, "v", sequence)))
        o, lse = select_rows(problem, made, "o_acc", sequence), select_rows(problem, made, "lse_acc", sequence)
        for i, part in enumerate(split_keys(problem, sequence.keys)):
            of_part = select_keys(of_sequence, part)
            scale = problem.scale_p if problem.static_quant else 1.0
            o[i] = scale * multiply_matrices(of_part.exponentials, v[:, part]) / of_part.total[..., None]
            lse[i] = of_part.lse
    return made


def select_keys(whole: Scores, part: slice) -> Scores:
    """Return the scores of some of the keys."""
    return Scores(whole.products[..., part], whole.added[..., part], whole.visible[..., part], whole.final[..., part])


def compute_combine(problem: Problem, given: Arrays, arch: Arch) -> dict[str, NDArray[Any]]:
    """Sum the parts of splitkv, each weighted by the exponential of its LSE."""
    made = allocate_outputs(problem)
    for sequence in iterate_sequences(problem, given):
        o_acc = to_float64(select_rows(problem, given, "o_acc", sequence))
        lse, shares = join_parts(to_float64(select_rows(problem, given, "lse_acc", sequence)))
        o = (shares[..., None] * o_acc).sum(axis=0)
        scale = problem.scale_o if problem.static_quant else 1.0
        select_rows(problem, made, "o", sequence)[...] = saturate_results(problem, o * scale, arch)
        if "lse" in made:
            select_rows(problem, made, "lse", sequence)[...] = lse
    return made


def join_parts(lse_acc: Floats) -> tuple[Floats, Floats]:
    """Return the LSE of all parts (first dimension) together, and the share of each part."""
    largest = lse_acc.max(axis=0)
    base = np.where(np.isfinite(largest), largest, 0.0)
    exponentials = np.exp(lse_acc - base)
    total = exponentials.sum(axis=0)
    lse = np.where(total > 0, base + np.log(np.where(total > 0, total, 1.0)), -np.inf)
    return lse, exponentials / np.where(total > 0, total, 1.0)
