"""How far the gradients of attention may be from exact ones: a bound for each element.

Imports NumPy: import this module only where arrays are at hand.

With the names of `reference_backward`: a probability is 2^(score - LSE), off as `softmax_rounding` says. It is rounded
to the operands' type before it is multiplied by do. K · (do vᵀ) - d is off by the error of its sum and by that of d;
times the probability it is dS, which is rounded to the operands' type, too. All GEMMs sum as `block_gemm.rounding`
says. Partial sums of dq are added in fp32 in any order. dk and dv of each head are stored; where heads share keys the
stored ones are added in fp32 and stored again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.rounding import STEP, all_whole, flushes, stored, summed, wide, without_subnormals
from tilewright.ops.fmha.dropout import kept_share
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.reference_backward import Operands, operands
from tilewright.ops.fmha.reference_forward import outputs
from tilewright.ops.fmha.sequences import Arrays, rows, sequences, unshared
from tilewright.ops.fmha.softmax_rounding import EXP, U, dot_error, rounded_weights, score_error, ulps_of
from tilewright.ops.fmha.stages import keys_of_a_part
from tilewright.ops.fmha.types import DTYPES

# The smallest number of keys of a tile: dq is a sum of at most one part for so many.
_LEAST_KEYS = 16


@dataclass(frozen=True, slots=True)
class _Steps:
    """What comes before the last GEMMs, and how far it is off: (head, query, key)."""

    weights: Floats
    weights_off: Floats
    by_score: Floats
    by_score_off: Floats  # before it is rounded
    by_score_rounded: Floats  # and after


def d_off(problem: Problem, given: Arrays, arch: Arch) -> Floats:
    """The error of d, (…, head, query)."""
    o, d_o = wide(given["o"]), wide(given["d_o"])
    magnitude = (np.abs(o) * np.abs(d_o)).sum(axis=-1)
    sums = summed(magnitude, o.shape[-1] + 1, "fp32", arch, whole=all_whole(o, d_o))
    off = kept_share(problem) * (sums + (2 * U * magnitude if problem.p_drop > 0 else 0.0))
    return np.ascontiguousarray(off.swapaxes(-1, -2)) if problem.layout == "bshd" else np.asarray(off)


def gradients_off(problem: Problem, given: Arrays, arch: Arch, d_errors: Floats) -> dict[str, NDArray[Any]]:
    """Errors of dq (`dq` or `dq_acc`, before it is stored), and tolerances of dk, dv and dbias."""
    off = outputs(problem)
    keys = keys_of_a_part(problem) if "dq_acc" in off else problem.seqlen_k
    for sequence in sequences(problem, given):
        its = operands(problem, given, sequence)
        steps = _steps(problem, its, rows(problem, {"d": d_errors}, "d", sequence), arch)
        for name, each in _other_gradients(problem, its, steps, arch).items():
            if name in off:
                rows(problem, off, name, sequence)[...] = each
        if "dq" in off:
            rows(problem, off, "dq", sequence)[...] = _dq_off(problem, its, steps, slice(None), arch)
            continue
        for i, first in enumerate(range(0, sequence.keys, keys)):
            part = slice(first, first + keys)
            rows(problem, off, "dq_acc", sequence)[i] = _dq_off(problem, its, steps, part, arch)
    return off


def _steps(problem: Problem, its: Operands, d_errors: Floats, arch: Arch) -> _Steps:
    kind, one = DTYPES[problem.dtype].qkv, np.ones((1, 1, 1))
    lse = np.abs(_lse(its))[..., None]
    score = np.where(its.of_scores.visible, np.abs(its.of_scores.final), 0.0)
    of_p = score_error(problem, its.of_scores, its.q, its.k, arch) + U * (2 * score + 4 * lse) + EXP
    p, weights = its.probabilities, its.weights
    inner = np.where(its.keep, its.by_weight, 0.0) - its.d[..., None]
    dot = np.where(its.keep, dot_error(its.d_o, its.v, kind, arch), 0.0)
    inner_off = dot + d_errors[..., None] + U * (np.abs(inner) + dot)
    by_score = p * inner
    off = p * (inner_off + np.abs(inner) * (of_p + 2 * U))
    rounded = np.where(p > 0, rounded_weights(np.abs(by_score) + off, one, kind, ulps_of(kind), arch), 0.0)
    rounded_p = np.where(weights > 0, rounded_weights(weights, one, kind, ulps_of(kind), arch), 0.0)
    return _Steps(weights, weights * of_p + rounded_p, by_score, off, off + rounded)


def _lse(its: Operands) -> Floats:
    """The LSE that probabilities were made with, 0 where there are none."""
    found = its.of_scores.lse
    return np.where(np.isfinite(found), found, 0.0)


def _product_off(left: Floats, left_off: Floats, right: Floats, extra_terms: int, kind: str, arch: Arch) -> Floats:
    """The error of left @ right, when left is off and right may have subnormals, which some GPUs take for zero."""
    sizes, reach = np.abs(right), np.abs(left) + left_off
    lost = reach @ (sizes - np.abs(without_subnormals(right, kind, arch))) if flushes(kind, arch) else 0.0
    return left_off @ sizes + lost + summed(reach @ sizes, left.shape[-1] + extra_terms, "fp32", arch, whole=False)


def _dq_off(problem: Problem, its: Operands, steps: _Steps, part: slice, arch: Arch) -> Floats:
    left, right = steps.by_score[..., part], its.k[:, part]
    tiles = -(-right.shape[1] // _LEAST_KEYS)
    off = _product_off(left, steps.by_score_rounded[..., part], right, tiles, DTYPES[problem.dtype].qkv, arch)
    return problem.scale * its.kept_by * (off + 3 * U * np.abs(left @ right))


def _other_gradients(problem: Problem, its: Operands, steps: _Steps, arch: Arch) -> dict[str, Floats]:
    """Tolerances of dk, dv and dbias."""
    kind, types = DTYPES[problem.dtype].qkv, DTYPES[problem.dtype]
    by_key, by_key_off = steps.by_score.swapaxes(1, 2), steps.by_score_rounded.swapaxes(1, 2)
    scale = problem.scale * its.kept_by
    dk = scale * (by_key @ its.q)
    dk_off = scale * _product_off(by_key, by_key_off, its.q, 0, kind, arch) + 3 * U * np.abs(dk)
    weights, weights_off = steps.weights.swapaxes(1, 2), steps.weights_off.swapaxes(1, 2)
    dv = its.kept_by * (weights @ its.d_o)
    dv_off = its.kept_by * _product_off(weights, weights_off, its.d_o, 0, kind, arch) + 2 * U * np.abs(dv)
    dbias = its.kept_by * steps.by_score
    dbias_off = its.kept_by * steps.by_score_off + 2 * U * np.abs(dbias)
    return {
        "dk": _shared_tolerance(problem, dk, dk_off, kind, arch),
        "dv": _shared_tolerance(problem, dv, dv_off, kind, arch),
        "dbias": dbias_off + np.where(dbias_off > 0, stored(dbias, dbias_off, types.bias, "fp32", arch), 0.0),
    }


def _shared_tolerance(problem: Problem, exact: Floats, off: Floats, kind: str, arch: Arch) -> Floats:
    """Of gradients of each head, stored, and of their sums where heads share keys and values."""
    each = off + stored(exact, off, kind, "fp32", arch)
    if problem.heads == problem.kv_heads:
        return each
    reach = unshared(problem, np.abs(exact) + each)
    sums_off = unshared(problem, each) + problem.heads // problem.kv_heads * STEP["fp32"] * reach
    return sums_off + stored(unshared(problem, exact), sums_off, kind, "fp32", arch)


def dq_tolerance(problem: Problem, exact: Floats, off: Floats, arch: Arch) -> Floats:
    """With the error of storing dq in its type."""
    return off + stored(exact, off, DTYPES[problem.dtype].qkv, "fp32", arch)


def convert_off(problem: Problem, given: Arrays, arch: Arch) -> Floats:
    """The error of adding the parts of dq; a single one is taken as it is."""
    off = outputs(problem)
    for sequence in sequences(problem, given):
        parts = wide(rows(problem, given, "dq_acc", sequence))
        if len(parts) > 1:
            bound = summed(np.abs(parts).sum(axis=0), len(parts), "fp32", arch, whole=all_whole(parts))
            rows(problem, off, "dq", sequence)[...] = bound
    return off["dq"]
