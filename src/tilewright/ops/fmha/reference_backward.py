"""The gradients of attention in float64: each stage, and all together.

Imports NumPy: import this module only where arrays are at hand.

With P the probabilities, K the keep mask of dropout (0 or 1), f its factor, and o = f · (P · K) v:

- D = Σ o · do, for each query,
- dS = P · (f · K · (do vᵀ) - D), the gradient of the scores, and of a bias,
- dv = f · (P · K)ᵀ do, dk = scale · dSᵀ q, dq = scale · dS k; dk and dv are summed over heads that share keys.

Kernels use D / f (`d`), and multiply by f at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats
from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.ops.block_gemm.matrix_product import multiply_matrices
from tilewright.ops.block_gemm.rounding import to_float64
from tilewright.ops.fmha.dropout import draw_keep_mask, draw_random_bytes, dropout_scale, keep_probability
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.reference_forward import Scores, allocate_outputs, compute_scores
from tilewright.ops.fmha.sequences import (
    Arrays,
    TokenSequence,
    iterate_sequences,
    repeat_kv_heads,
    select_rows,
    sum_shared_heads,
)
from tilewright.ops.fmha.stages import get_keys_per_part


@dataclass(frozen=True)
class GradientOperands:
    """The operands of a sequence's gradients: (head, token, element), and (head, query, key) for pairs.

    What follows from them is computed once.
    """

    q: Floats
    k: Floats
    v: Floats
    d_o: Floats
    d: Floats  # (head, query)
    of_scores: Scores
    probabilities: Floats
    keep: NDArray[np.bool_]
    kept_by: float  # f

    @cached_property
    def weights(self) -> Floats:
        """The kept probabilities, not multiplied by f."""
        return np.where(self.keep, self.probabilities, 0.0)

    @cached_property
    def by_weight(self) -> Floats:
        """do vᵀ."""
        return multiply_matrices(self.d_o, self.v.swapaxes(1, 2))

    @cached_property
    def by_score(self) -> Floats:
        """dS / f, as in kernels: P · (K · (do vᵀ) - d)."""
        return self.probabilities * (np.where(self.keep, self.by_weight, 0.0) - self.d[..., None])


def compute_operands(problem: Problem, given: Arrays, sequence: TokenSequence) -> GradientOperands:
    """Return the operands of one sequence. Probabilities are computed from the scores and the given LSE."""
    if problem.logits_cap > 0:
        raise InvalidValueError(f"logits_cap is {problem.logits_cap:g}, but CK Tile has no gradients for capped scores")
    of_scores = compute_scores(problem, given, sequence)
    lse = to_float64(select_rows(problem, given, "lse", sequence))
    base = np.where(np.isfinite(lse), lse, 0.0)[..., None]
    probabilities = np.where(np.isfinite(of_scores.final), np.exp(of_scores.final - base), 0.0)
    keep = np.ones(probabilities.shape, dtype=np.bool_)
    if problem.p_drop > 0:
        keep = draw_keep_mask(problem, sequence.number, sequence.queries, sequence.keys)
    return GradientOperands(
        to_float64(select_rows(problem, given, "q", sequence)),
        repeat_kv_heads(problem, to_float64(select_rows(problem, given, "k", sequence))),
        repeat_kv_heads(problem, to_float64(select_rows(problem, given, "v", sequence))),
        to_float64(select_rows(problem, given, "d_o", sequence)),
        to_float64(select_rows(problem, given, "d", sequence)),
        of_scores,
        probabilities,
        keep,
        dropout_scale(problem) if problem.p_drop > 0 else 1.0,
    )


def compute_dot_do_o(problem: Problem, given: Arrays, arch: Arch) -> dict[str, NDArray[Any]]:  # noqa: ARG001
    """Compute d."""
    return {"d": compute_d(problem, to_float64(given["o"]), to_float64(given["d_o"]))}


def compute_dq_dk_dv(problem: Problem, given: Arrays, arch: Arch) -> dict[str, NDArray[Any]]:  # noqa: ARG001
    """Compute dq_acc, dk and dv, and dbias and randval if the problem has them."""
    made = allocate_outputs(problem)
    keys = get_keys_per_part(problem)
    for sequence in iterate_sequences(problem, given):
        its = compute_operands(problem, given, sequence)
        _put_gradients(problem, made, sequence, its)
        sums = select_rows(problem, made, "dq_acc", sequence)
        for i, first in enumerate(range(0, sequence.keys, keys)):
            part = slice(first, first + keys)
            sums[i] = problem.scale * its.kept_by * multiply_matrices(its.by_score[..., part], its.k[:, part])
    return made


def _put_gradients(
    problem: Problem, made: dict[str, NDArray[Any]], sequence: TokenSequence, its: GradientOperands
) -> None:
    """Write a sequence's part of all gradients except dq."""
    by_score = its.kept_by * its.by_score
    dk = problem.scale * multiply_matrices(by_score.swapaxes(1, 2), its.q)
    dv = its.kept_by * multiply_matrices(its.weights.swapaxes(1, 2), its.d_o)
    select_rows(problem, made, "dk", sequence)[...] = sum_shared_heads(problem, dk)
    select_rows(problem, made, "dv", sequence)[...] = sum_shared_heads(problem, dv)
    if "dbias" in made:
        select_rows(problem, made, "dbias", sequence)[...] = by_score
    if "randval" in made:
        numbers = draw_random_bytes(problem, sequence.number, sequence.queries, sequence.keys)
        select_rows(problem, made, "randval", sequence)[...] = numbers


def convert_dq(problem: Problem, given: Arrays, arch: Arch) -> dict[str, NDArray[Any]]:  # noqa: ARG001
    """Compute dq, the sum of its parts. A deterministic problem has a part for each key tile of a sequence."""
    made = allocate_outputs(problem)
    keys = get_keys_per_part(problem)
    for sequence in iterate_sequences(problem, given):
        parts = -(-sequence.keys // keys) if problem.deterministic else 1
        select_rows(problem, made, "dq", sequence)[...] = to_float64(select_rows(problem, given, "dq_acc", sequence))[
            :parts
        ].sum(axis=0)
    return made


def compute_backward(problem: Problem, given: Arrays, arch: Arch) -> dict[str, NDArray[Any]]:
    """Compute dq, dk and dv, and dbias and randval if the problem has them."""
    made = allocate_outputs(problem)
    with_d = {**given, **compute_dot_do_o(problem, given, arch)}
    for sequence in iterate_sequences(problem, given):
        its = compute_operands(problem, with_d, sequence)
        _put_gradients(problem, made, sequence, its)
        dq = problem.scale * its.kept_by * multiply_matrices(its.by_score, its.k)
        select_rows(problem, made, "dq", sequence)[...] = dq
    return made


def compute_d(problem: Problem, o: Floats, d_o: Floats) -> Floats:
    """Return the sum of the result times its gradient for each head and query, times dropout's keep probability."""
    sums = (o * d_o).sum(axis=-1) * keep_probability(problem)
    return np.ascontiguousarray(sums.swapaxes(-1, -2)) if problem.layout == "bshd" else np.asarray(sums)
