"""Attention in float64: what forward, pagedkv, batch_prefill, splitkv and combine compute.

Imports NumPy: import this module only where arrays are at hand.

Nothing is rounded to a type on the way. What kernels round is the tolerance's matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats, array_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.rounding import wide
from tilewright.ops.fmha.dropout import factor, kept, random_bytes
from tilewright.ops.fmha.families import FORWARD
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.sequences import Arrays, Sequence, rows, sequences, shared
from tilewright.ops.fmha.tensors import tensors
from tilewright.ops.fmha.types import DTYPES


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a sequence, (head, query, key), and what they are made of."""

    products: Floats  # scale · q · k
    added: Floats  # the bias; 0 without
    visible: NDArray[np.bool_]  # (query, key)
    final: Floats  # with bias and cap; minus infinity where masked

    @property
    def largest(self) -> Floats:
        """The largest score of each row; 0 where no key is visible."""
        largest = self.final.max(axis=-1, initial=-np.inf)
        return np.where(np.isfinite(largest), largest, 0.0)

    @property
    def exponentials(self) -> Floats:
        """Relative to that of the largest score; 0 where masked."""
        return np.asarray(np.exp(self.final - self.largest[..., None]))

    @property
    def total(self) -> Floats:
        """The sum of a row's exponentials; 1 where no key is visible."""
        total = self.exponentials.sum(axis=-1)
        return np.where(total > 0, total, 1.0)

    @property
    def lse(self) -> Floats:
        """The log of the sum of exponentials of each row; minus infinity where no key is visible."""
        seen = self.visible.any(axis=-1) & np.isfinite(self.final).any(axis=-1)
        return np.where(seen, self.largest + np.log(self.total), -np.inf)

    @property
    def probabilities(self) -> Floats:
        """Each row sums up to 1, or is 0 where no key is visible."""
        return self.exponentials / self.total[..., None]


def visible(problem: Problem, queries: int, keys: int) -> NDArray[np.bool_]:
    """Which keys each query sees: (query, key).

    A mask has a diagonal, that of the top left corner or that of the bottom right one. A window limits how far from it
    a key may be. Sinks are seen also left of the window, not right of it.
    """
    if problem.mask == "none":
        return np.ones((queries, keys), dtype=np.bool_)
    first = 0 if problem.mask == "top_left" else keys - queries
    key = np.arange(keys)
    after = key - (np.arange(queries)[:, None] + first)
    right = after <= problem.window_right if problem.window_right >= 0 else np.ones_like(after, dtype=np.bool_)
    left = -after <= problem.window_left if problem.window_left >= 0 else np.ones_like(right)
    return np.asarray(right & (left | (key < problem.sink)))


def distances(problem: Problem, queries: int, keys: int) -> Floats:
    """What ALiBi multiplies slopes by: (query, key).

    Without a mask, and with one from a corner, minus how far a key is from that corner's diagonal. With a causal mask,
    the key's number: in a row it differs from the former by a constant, which a softmax does not see.
    """
    key = np.arange(keys)
    if problem.mask != "none" and problem.window_left < 0 and problem.window_right == 0:
        return np.broadcast_to(key, (queries, keys)).astype(np.float64)
    first = 0 if problem.mask == "top_left" else keys - queries
    return np.asarray(-np.abs(key - (np.arange(queries)[:, None] + first)), dtype=np.float64)


def scores(problem: Problem, given: Arrays, sequence: Sequence) -> Scores:
    """The scores of a sequence."""
    q = wide(rows(problem, given, "q", sequence))
    k = shared(problem, wide(rows(problem, given, "k", sequence)))
    seen = visible(problem, sequence.queries, sequence.keys)
    products = problem.scale * (q @ k.swapaxes(1, 2))
    added = np.zeros_like(products)
    if problem.bias == "elementwise":
        added = wide(rows(problem, given, "bias", sequence))
    elif problem.bias == "alibi":
        slopes = wide(given["bias"])[sequence.number]
        added = slopes[:, None, None] * distances(problem, sequence.queries, sequence.keys)
    final = products + added
    if problem.logits_cap > 0:
        final = problem.logits_cap * np.tanh(final / problem.logits_cap)
    return Scores(products, added, seen, np.where(seen, final, -np.inf))


def weights(problem: Problem, probabilities: Floats, sequence: Sequence) -> Floats:
    """Probabilities, or exponentials, after dropout."""
    if problem.p_drop == 0:
        return probabilities
    keep = kept(problem, sequence.number, *probabilities.shape[1:])
    return np.where(keep, probabilities * factor(problem), 0.0)


def attended(problem: Problem, of_scores: Scores, v: Floats, sequence: Sequence) -> Floats:
    """Values weighted by probabilities: (head, query, element). Divided last, so that sums may be exact."""
    return (weights(problem, of_scores.exponentials, sequence) @ v) / of_scores.total[..., None]


def result_scale(problem: Problem) -> float:
    """What the result is multiplied by: a quantised kernel scales its probabilities, and its result."""
    return problem.scale_p * problem.scale_o if problem.static_quant else 1.0


def saturated(problem: Problem, values: Floats, arch: Arch) -> Floats:
    """Results of quantised kernels, which hold them to what fp8 can say.

    The kernel of forward does so for a result of fp8 only, those of the other families for any.
    """
    other = problem.family == FORWARD and problem.num_splits == 0 and DTYPES[problem.dtype].o != "fp8"
    if not problem.static_quant or other:
        return values
    import ml_dtypes  # noqa: PLC0415  (only where such types are used)

    largest = float(ml_dtypes.finfo(array_dtype(arch.stored("fp8"))).max)  # type: ignore[no-untyped-call]
    return np.clip(values, -largest, largest)


def outputs(problem: Problem) -> dict[str, NDArray[Any]]:
    """Zeros in float64 for each output."""
    return {tensor.name: np.zeros(tensor.shape) for tensor in tensors(problem) if tensor.output}


def left_out(problem: Problem, sequence: Sequence) -> bool:
    """Whether kernels write nothing for a sequence: it has no queries, or no more than `min_seqlen_q`."""
    return sequence.queries == 0 or (problem.min_seqlen_q > 0 and sequence.queries <= problem.min_seqlen_q)


def forward(problem: Problem, given: Arrays, arch: Arch) -> dict[str, NDArray[Any]]:
    """o, lse and randval: those of them that the problem has."""
    made = outputs(problem)
    for sequence in sequences(problem, given):
        of_sequence = scores(problem, given, sequence)
        v = shared(problem, wide(rows(problem, given, "v", sequence)))
        o = attended(problem, of_sequence, v, sequence)
        rows(problem, made, "o", sequence)[...] = saturated(problem, o * result_scale(problem), arch)
        if "lse" in made:
            rows(problem, made, "lse", sequence)[...] = of_sequence.lse
        if "randval" in made:
            numbers = random_bytes(problem, sequence.number, sequence.queries, sequence.keys)
            rows(problem, made, "randval", sequence)[...] = numbers
    return made


def parts(problem: Problem, keys: int) -> list[slice]:
    """The keys of each part, as SimplifiedGenericAttentionMask in block_masking.hpp cuts them: equal but the last."""
    length = max(1, -(-keys // problem.num_splits))
    return [slice(min(i * length, keys), min((i + 1) * length, keys)) for i in range(problem.num_splits)]


def splitkv(problem: Problem, given: Arrays, arch: Arch) -> dict[str, NDArray[Any]]:  # noqa: ARG001
    """Attention over each part of the keys alone, and the LSE of each."""
    made = outputs(problem)
    for sequence in sequences(problem, given):
        of_sequence = scores(problem, given, sequence)
        v = shared(problem, wide(rows(problem, given, "v", sequence)))
        o, lse = rows(problem, made, "o_acc", sequence), rows(problem, made, "lse_acc", sequence)
        for i, part in enumerate(parts(problem, sequence.keys)):
            of_part = part_of(of_sequence, part)
            scale = problem.scale_p if problem.static_quant else 1.0
            o[i] = scale * (of_part.exponentials @ v[:, part]) / of_part.total[..., None]
            lse[i] = of_part.lse
    return made


def part_of(whole: Scores, part: slice) -> Scores:
    """The scores of some of the keys."""
    return Scores(whole.products[..., part], whole.added[..., part], whole.visible[..., part], whole.final[..., part])


def combine(problem: Problem, given: Arrays, arch: Arch) -> dict[str, NDArray[Any]]:
    """The parts of splitkv, each weighted by the exponential of its LSE."""
    made = outputs(problem)
    for sequence in sequences(problem, given):
        o_acc = wide(rows(problem, given, "o_acc", sequence))
        lse, shares = joined(wide(rows(problem, given, "lse_acc", sequence)))
        o = (shares[..., None] * o_acc).sum(axis=0)
        scale = problem.scale_o if problem.static_quant else 1.0
        rows(problem, made, "o", sequence)[...] = saturated(problem, o * scale, arch)
        if "lse" in made:
            rows(problem, made, "lse", sequence)[...] = lse
    return made


def joined(lse_acc: Floats) -> tuple[Floats, Floats]:
    """The LSE of all parts (first dimension) together, and the share that each part has."""
    largest = lse_acc.max(axis=0)
    base = np.where(np.isfinite(largest), largest, 0.0)
    exponentials = np.exp(lse_acc - base)
    total = exponentials.sum(axis=0)
    lse = np.where(total > 0, base + np.log(np.where(total > 0, total, 1.0)), -np.inf)
    return lse, exponentials / np.where(total > 0, total, 1.0)
