"""How far attention's results may be from exact ones: a bound for each element, for whole rows and for parts of them.

Imports NumPy: import this module only where arrays are at hand.

A result is Σ P v / Σ p. Each exponential p is off by what `softmax_rounding` says, and Σ p by the weighted mean of that
and by its own roundings. P is p, after dropout and scaling, rounded to the type that the second GEMM takes: half an
ulp, or less than the smallest value of the type. It is rounded when m is the largest score so far, which makes it only
larger. The GEMM sums as `block_gemm.rounding` says. A division or a reciprocal follows, then the result is stored.

The LSE is m + log Σ p: the error of Σ p, that of the logarithm, and a few roundings of m and of the sum.

Combining takes exponentials of the parts' LSEs, which are off themselves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.rounding import STEP, all_whole, flushes, stored, summed, wide, without_subnormals
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.dropout import factor
from tilewright.ops.fmha.families import COMBINE, SPLITKV
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.reference_forward import (
    Scores,
    joined,
    outputs,
    part_of,
    parts,
    result_scale,
    scores,
    splitkv,
    weights,
)
from tilewright.ops.fmha.sequences import Arrays, Sequence, rows, sequences, shared
from tilewright.ops.fmha.softmax_rounding import (
    EXP,
    LOG,
    RECIPROCAL,
    U,
    errors,
    rounded_constant,
    rounded_weights,
    score_error,
    sums_error,
    ulps_of,
)
from tilewright.ops.fmha.stages import stage
from tilewright.ops.fmha.types import DTYPES

# Waves that may each sum a part of the keys, in kernels that join them at the end: at most so many more additions.
_WAVES = 16


class How(NamedTuple):
    """What of a kernel counts: keys of one tile, and what rounding a probability costs."""

    tile: int
    ulps: float


def how(config: Config, problem: Problem) -> How:
    """What counts of a kernel with this config."""
    return How(config.tile["n0"], ulps_of(DTYPES[problem.dtype].p, config.pipeline))


class Off(NamedTuple):
    """Errors of results, (head, query, element), and of their LSE, (head, query), before anything is stored."""

    o: Floats
    lse: Floats


def attended(
    problem: Problem, of_scores: Scores, score_errors: Floats, v: Floats, after: Floats, kernel: How, arch: Arch
) -> Off:
    """Those of attention over some keys, when `after` are their weights after dropout."""
    keys = v.shape[1]
    tiles = max(1, -(-keys // kernel.tile))
    off = errors(of_scores, score_errors, tiles)
    largest, log_sum = of_scores.largest, np.log(of_scores.total)
    lse = largest + log_sum
    p, plain = of_scores.probabilities, np.where(off.flat, 0.0, 1.0)
    sums = (p * off.exponentials).sum(axis=-1) + plain * sums_error(keys, tiles)
    changed = _weight_factor(problem)
    scaled = after * (problem.scale_p if problem.static_quant else 1.0)
    each = scaled * (off.exponentials + (0.0 if changed == 1.0 else 3 * U)) + _rounded(
        problem, scaled, off.flat, 1 / of_scores.total, kernel.ulps, arch
    )
    o = np.abs(scaled @ v) * (sums + RECIPROCAL + 2 * U)[..., None]
    o = o + each @ np.abs(v) + _summed(problem, scaled, v, off.flat, of_scores.total, arch)
    return Off(o, sums + U * (3 * np.abs(largest) + 2 * np.abs(lse)) + LOG * (np.abs(log_sum) + 1))


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, 0.0)


def _weight_factor(problem: Problem) -> float:
    """What exponentials are multiplied by before they are rounded."""
    dropped = factor(problem) if problem.p_drop > 0 else 1.0
    return dropped * (problem.scale_p if problem.static_quant else 1.0)


def _rounded(
    problem: Problem, scaled: Floats, flat: NDArray[np.bool_], share: Floats, ulps: float, arch: Arch
) -> Floats:
    """The error of rounding weights to their type. `share` is the weight of an exponential of 1."""
    name = DTYPES[problem.dtype].p
    usual = np.where(scaled > 0, rounded_weights(scaled, share[..., None], name, ulps, arch), 0.0)
    same = rounded_constant(_weight_factor(problem), name, ulps, arch) * share[..., None] * (scaled > 0)
    return np.where(flat[..., None], same, usual)


def _summed(problem: Problem, scaled: Floats, v: Floats, flat: NDArray[np.bool_], total: Floats, arch: Arch) -> Floats:
    """The error of the second GEMM's sums; `total` is the sum of exponentials that they are divided by at the end."""
    terms = v.shape[1] + _WAVES
    magnitude = scaled @ np.abs(v)
    undivided = magnitude * total[..., None]
    whole = all_whole(v) and _weight_factor(problem) == 1.0
    exact = summed(undivided, terms, "fp32", arch, whole=whole)
    bound = np.where(flat[..., None], exact, summed(undivided, terms, "fp32", arch, whole=False)) / total[..., None]
    kind = DTYPES[problem.dtype].qkv
    if flushes(kind, arch):
        bound = bound + magnitude - scaled @ np.abs(without_subnormals(v, kind, arch))
    return np.asarray(bound)


def _parts_of(problem: Problem, given: Arrays, sequence: Sequence, arch: Arch) -> tuple[Scores, Floats, Floats]:
    """Scores, their errors, and values of a sequence."""
    of_scores = scores(problem, given, sequence)
    q = wide(rows(problem, given, "q", sequence))
    k = shared(problem, wide(rows(problem, given, "k", sequence)))
    v = shared(problem, wide(rows(problem, given, "v", sequence)))
    return of_scores, score_error(problem, of_scores, q, k, arch), v


def forward_off(config: Config, problem: Problem, given: Arrays, arch: Arch) -> dict[str, NDArray[Any]]:
    """Errors of o and lse before o is stored."""
    off = outputs(problem)
    for sequence in sequences(problem, given):
        of_scores, score_errors, v = _parts_of(problem, given, sequence, arch)
        after = weights(problem, of_scores.probabilities, sequence)
        found = attended(problem, of_scores, score_errors, v, after, how(config, problem), arch)
        rows(problem, off, "o", sequence)[...] = found.o * (result_scale(problem) / _scaled_before(problem))
        if "lse" in off:
            rows(problem, off, "lse", sequence)[...] = np.where(np.isfinite(of_scores.lse), found.lse, 0.0)
    return off


def _scaled_before(problem: Problem) -> float:
    return problem.scale_p if problem.static_quant else 1.0


def splitkv_off(config: Config, problem: Problem, given: Arrays, arch: Arch) -> dict[str, NDArray[Any]]:
    """Errors of o_acc and lse_acc."""
    off = outputs(problem)
    for sequence in sequences(problem, given):
        of_scores, score_errors, v = _parts_of(problem, given, sequence, arch)
        o, lse = rows(problem, off, "o_acc", sequence), rows(problem, off, "lse_acc", sequence)
        for i, part in enumerate(parts(problem, sequence.keys)):
            its = part_of(of_scores, part)
            found = attended(
                problem, its, score_errors[..., part], v[:, part], its.probabilities, how(config, problem), arch
            )
            o[i] = found.o
            lse[i] = np.where(np.isfinite(its.lse), found.lse, 0.0)
    return off


def combine_off(problem: Problem, given: Arrays, given_off: Arrays | None = None) -> dict[str, NDArray[Any]]:
    """Errors of o and lse before o is stored, when parts are off themselves by `given_off`."""
    off = outputs(problem)
    for sequence in sequences(problem, given):
        o_acc = wide(rows(problem, given, "o_acc", sequence))
        lse_acc = wide(rows(problem, given, "lse_acc", sequence))
        o_off, lse_off = np.zeros_like(o_acc), np.zeros_like(lse_acc)
        if given_off is not None:
            o_off, lse_off = (rows(problem, given_off, name, sequence) for name in ("o_acc", "lse_acc"))
        lse, shares = joined(lse_acc)
        found = _combined(o_acc, lse_acc, o_off, lse_off, lse, shares)
        scale = problem.scale_o if problem.static_quant else 1.0
        rows(problem, off, "o", sequence)[...] = found.o * scale
        if "lse" in off:
            rows(problem, off, "lse", sequence)[...] = np.where(np.isfinite(lse), found.lse, 0.0)
    return off


def _combined(o_acc: Floats, lse_acc: Floats, o_off: Floats, lse_off: Floats, lse: Floats, shares: Floats) -> Off:
    known = np.isfinite(lse_acc)
    base = _finite(lse_acc.max(axis=0, initial=-np.inf))
    below = np.where(known, np.abs(lse_acc - base), 0.0)
    log_sum = _finite(lse) - base
    terms = len(lse_acc) + _WAVES
    # exp(x) is 2^(x · log2(e)): two roundings of the exponent, one of the difference, and that of the exponential.
    of_sum = (shares * (U * 3 * below + EXP + lse_off)).sum(axis=0) + terms * STEP["fp32"]
    of_lse = of_sum + LOG * (np.abs(log_sum) + 1) + U * np.abs(_finite(lse))
    distance = np.where(known, np.abs(lse_acc - _finite(lse)), 0.0)
    of_share = np.where(known, of_lse + U * 3 * distance + EXP + lse_off, 0.0)
    each = shares[..., None] * (np.abs(o_acc) * (of_share[..., None] + terms * STEP["fp32"] + 2 * U) + o_off)
    return Off(each.sum(axis=0), of_lse)


def split_forward_off(config: Config, problem: Problem, given: Arrays, arch: Arch) -> dict[str, NDArray[Any]]:
    """Errors of o and lse of a forward problem that two kernels compute, by the config of the first."""
    first, second = stage(problem, SPLITKV), stage(problem, COMBINE)
    between = splitkv(first, given, arch)
    return combine_off(second, {**given, **between}, splitkv_off(config, first, given, arch))


def result_tolerance(problem: Problem, off: Arrays, exact: Arrays, arch: Arch) -> dict[str, NDArray[Any]]:
    """With the error of storing o; an LSE is computed in the type it is stored in."""
    allowed: dict[str, NDArray[Any]] = {name: np.asarray(each) for name, each in off.items()}
    if "o" in allowed:
        allowed["o"] = allowed["o"] + stored(wide(exact["o"]), allowed["o"], DTYPES[problem.dtype].o, "fp32", arch)
    return allowed
