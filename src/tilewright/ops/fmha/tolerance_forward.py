"""The allowed error of attention's results: a bound for each element, for whole rows and for parts of them.

Imports NumPy: import this module only where arrays are at hand.

A result is Σ P v / Σ p. Each exponential p has the error of `softmax_rounding`; Σ p has their weighted mean and its own
roundings. P is p, after dropout and scaling, rounded to the operand type of the second GEMM: an error of half an ulp,
or less than the smallest value of the type. It is rounded when m is the largest score so far, which makes P larger, not
smaller. `block_gemm.rounding` has the error of the GEMM's sums. A division or a reciprocal follows, then the result is
stored.

Values have random signs. So errors that differ from key to key add like independent numbers, and errors that all keys
of a row have in common (of the divisor, of rescaling, of truncating every P) are proportional to the result. That is
the deviation; the limit is the sum of all errors, or as many deviations as `block_gemm.rounding` allows.

The LSE is m + log Σ p: it has the errors of Σ p and of the logarithm, and a few roundings of m and of the sum.

Combining uses exponentials of the parts' LSEs, which have errors themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.rounding import (
    STEP,
    Sizes,
    all_whole,
    exactly,
    flushes,
    sizes_of,
    stored,
    summed,
    tightened,
    wide,
    without_subnormals,
)
from tilewright.ops.fmha.collected import Collected, rows_of
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.dropout import factor
from tilewright.ops.fmha.families import COMBINE, SPLITKV
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.reference_forward import (
    Scores,
    joined,
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
    Errors,
    U,
    bias_of,
    errors,
    rounded_constant,
    rounded_weights,
    score_error,
    sums_error,
    ulps_of,
)
from tilewright.ops.fmha.stages import stage
from tilewright.ops.fmha.types import DTYPES
from tilewright.ops.tolerance import Tolerance

# The largest number of waves that each sum a part of the keys, in kernels that add the parts at the end: an upper bound
# of the additional additions.
_WAVES = 16


class How(NamedTuple):
    """The properties of a kernel that its errors depend on: keys of one tile, and the rounding of a probability."""

    tile: int
    ulps: float


def how(config: Config, problem: Problem) -> How:
    """Return the properties of a kernel with this config."""
    return How(config.tile["n0"], ulps_of(DTYPES[problem.dtype].p, config.pipeline))


class Off(NamedTuple):
    """Errors of results, (head, query, element), and of their LSE, (head, query), before anything is stored."""

    o: Tolerance
    lse: Tolerance


def attended(
    problem: Problem, of_scores: Scores, score_errors: Tolerance, v: Floats, after: Floats, kernel: How, arch: Arch
) -> Off:
    """Return the errors of attention over some keys, where `after` are their weights after dropout."""
    keys = v.shape[1]
    tiles = max(1, -(-keys // kernel.tile))
    off = errors(of_scores, score_errors, tiles)
    largest, log_sum = of_scores.largest, np.log(of_scores.total)
    lse = largest + log_sum
    sums = _sums(of_scores, off, keys, tiles)
    scaled = after * (problem.scale_p if problem.static_quant else 1.0)
    changed = scaled * (0.0 if _weight_factor(problem) == 1.0 else 3 * U)
    rounded = _rounded(problem, scaled, off.flat, 1 / of_scores.total, kernel.ulps, arch)
    each = off.exponentials.times(scaled) + Tolerance(changed, changed) + rounded
    result, sizes = np.abs(scaled @ v), sizes_of(np.matmul, scaled, v, keys)
    # Errors that all weights of a row have in common: that of the divisor, and losses in the same direction.
    same = Tolerance(sums.limit, sums.deviation + off.rescaling + _bias(problem, off.flat, kernel.ulps, arch))
    common = RECIPROCAL + 2 * U
    o = Tolerance(result * (same.limit + common)[..., None], result * (same.deviation + common)[..., None])
    o = o + weighted(each, v) + Tolerance(0.0, off.rescaling[..., None] * sizes.norm)
    o = tightened(o + _summed(problem, scaled, v, sizes, off.flat, of_scores.total, arch))
    own = U * (3 * np.abs(largest) + 2 * np.abs(lse)) + LOG * (np.abs(log_sum) + 1)
    return Off(o, Tolerance(sums.limit + own, sums.deviation + off.rescaling + own))


def weighted(each: Tolerance, values: Floats) -> Tolerance:
    """Return the error of a product of exact values and weights with independent errors."""
    return Tolerance(each.limit @ np.abs(values), np.sqrt(np.square(each.deviation) @ np.square(values)))


def _sums(of_scores: Scores, off: Errors, keys: int, tiles: int) -> Tolerance:
    """Return the relative error of the sum of a row's exponentials; the deviation excludes that of rescaling."""
    p, plain = of_scores.probabilities, np.where(off.flat, 0.0, 1.0)
    limit = (p * off.exponentials.limit).sum(axis=-1)
    deviation = np.sqrt(np.square(p * off.exponentials.deviation).sum(axis=-1))
    own = sums_error(keys, tiles)
    return Tolerance(limit + plain * own.limit, deviation + plain * own.deviation)


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, 0.0)


def _weight_factor(problem: Problem) -> float:
    """The factor of the exponentials before they are rounded."""
    dropped = factor(problem) if problem.p_drop > 0 else 1.0
    return dropped * (problem.scale_p if problem.static_quant else 1.0)


def _rounded(
    problem: Problem, scaled: Floats, flat: NDArray[np.bool_], share: Floats, ulps: float, arch: Arch
) -> Tolerance:
    """Return the error of rounding weights to their type. `share` is the weight of an exponential of 1.

    In a row with equal scores all weights are rounded in the same way: `_compute_common_loss` has their common error.
    """
    name = DTYPES[problem.dtype].p
    usual = np.where(scaled > 0, rounded_weights(scaled, share[..., None], name, ulps, arch), 0.0)
    same = rounded_constant(_weight_factor(problem), name, ulps, arch) * share[..., None] * (scaled > 0)
    rows_flat = flat[..., None]
    return Tolerance(np.where(rows_flat, same, usual), np.where(rows_flat, 0.0, usual / 3**0.5))


def _bias(problem: Problem, flat: NDArray[np.bool_], ulps: float, arch: Arch) -> Floats:
    """Return the relative loss that all weights of a row have in common when they are rounded."""
    name, usual = DTYPES[problem.dtype].p, _weight_factor(problem)
    same = rounded_constant(usual, name, ulps, arch) / usual
    return np.where(flat, same, bias_of(name, ulps, arch))


def _summed(
    problem: Problem,
    scaled: Floats,
    v: Floats,
    sizes: Sizes,
    flat: NDArray[np.bool_],
    total: Floats,
    arch: Arch,
) -> Tolerance:
    """Return the error of the second GEMM's sums; `total` is the sum of exponentials that finally divides them."""
    terms, divisor = v.shape[1] + _WAVES, total[..., None]
    undivided = Sizes(sizes.magnitude * divisor, sizes.norm * divisor)
    whole = all_whole(v) and _weight_factor(problem) == 1.0
    exact = summed(undivided, terms, "fp32", arch, whole=whole)
    usual = summed(undivided, terms, "fp32", arch, whole=False)
    rows_flat = flat[..., None]
    bound = Tolerance(
        np.where(rows_flat, exact.limit, usual.limit), np.where(rows_flat, exact.deviation, usual.deviation)
    ).times(1 / divisor)
    kind = DTYPES[problem.dtype].qkv
    if flushes(kind, arch):
        lost = scaled @ np.abs(v - without_subnormals(v, kind, arch))
        bound = bound + Tolerance(lost, lost)
    return bound


def _parts_of(problem: Problem, given: Arrays, sequence: Sequence, arch: Arch) -> tuple[Scores, Tolerance, Floats]:
    """Return the scores of a sequence, their errors, and the values."""
    of_scores = scores(problem, given, sequence)
    q = wide(rows(problem, given, "q", sequence))
    k = shared(problem, wide(rows(problem, given, "k", sequence)))
    v = shared(problem, wide(rows(problem, given, "v", sequence)))
    return of_scores, score_error(problem, of_scores, q, k, arch), v


def forward_off(config: Config, problem: Problem, given: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Return the errors of o and lse before o is stored."""
    off = Collected(problem)
    for sequence in sequences(problem, given):
        of_scores, score_errors, v = _parts_of(problem, given, sequence, arch)
        after = weights(problem, of_scores.probabilities, sequence)
        found = attended(problem, of_scores, score_errors, v, after, how(config, problem), arch)
        off.put("o", sequence, found.o.times(result_scale(problem) / _scaled_before(problem)))
        off.put("lse", sequence, found.lse.times(np.isfinite(of_scores.lse)))
    return off.tolerances()


def _scaled_before(problem: Problem) -> float:
    return problem.scale_p if problem.static_quant else 1.0


def splitkv_off(config: Config, problem: Problem, given: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Return the errors of o_acc and lse_acc."""
    off = Collected(problem)
    for sequence in sequences(problem, given):
        of_scores, score_errors, v = _parts_of(problem, given, sequence, arch)
        for i, part in enumerate(parts(problem, sequence.keys)):
            its, at = part_of(of_scores, part), (..., part)
            its_errors = Tolerance(score_errors.limit[at], score_errors.deviation[at])
            found = attended(problem, its, its_errors, v[:, part], its.probabilities, how(config, problem), arch)
            off.put("o_acc", sequence, found.o, i)
            off.put("lse_acc", sequence, found.lse.times(np.isfinite(its.lse)), i)
    return off.tolerances()


def combine_off(
    problem: Problem, given: Arrays, given_off: Mapping[str, Tolerance] | None = None
) -> dict[str, Tolerance]:
    """Return the errors of o and lse before o is stored, where the parts have the errors `given_off`."""
    off = Collected(problem)
    for sequence in sequences(problem, given):
        o_acc = wide(rows(problem, given, "o_acc", sequence))
        lse_acc = wide(rows(problem, given, "lse_acc", sequence))
        o_off, lse_off = exactly(o_acc), exactly(lse_acc)
        if given_off is not None:
            o_off, lse_off = (rows_of(problem, given_off, name, sequence) for name in ("o_acc", "lse_acc"))
        lse, shares = joined(lse_acc)
        found = _combined(o_acc, lse_acc, o_off, lse_off, lse, shares)
        off.put("o", sequence, found.o.times(problem.scale_o if problem.static_quant else 1.0))
        off.put("lse", sequence, found.lse.times(np.isfinite(lse)))
    return off.tolerances()


def _combined(o_acc: Floats, lse_acc: Floats, o_off: Tolerance, lse_off: Tolerance, lse: Floats, shares: Floats) -> Off:
    known = np.isfinite(lse_acc)
    base = _finite(lse_acc.max(axis=0, initial=-np.inf))
    below = np.where(known, np.abs(lse_acc - base), 0.0)
    log_sum = _finite(lse) - base
    terms = len(lse_acc) + _WAVES
    # exp(x) is 2^(x · log2(e)): two roundings of the exponent, one of the difference, and one of the exponential.
    own = (shares * (U * 3 * below + EXP)).sum(axis=0) + terms * STEP["fp32"]
    own = own + LOG * (np.abs(log_sum) + 1) + U * np.abs(_finite(lse))
    of_lse = Tolerance(own, own) + _over_parts(lse_off.times(shares))
    distance = np.where(known, np.abs(lse_acc - _finite(lse)), 0.0)
    exponent = U * 3 * distance + EXP
    of_share = (of_lse + lse_off + Tolerance(exponent, exponent)).times(known)
    rounding = terms * STEP["fp32"] + 2 * U
    size = shares[..., None] * np.abs(o_acc)
    # The errors of a row's shares have the error of the LSE in common.
    o = Tolerance(
        (size * (of_share.limit[..., None] + rounding)).sum(axis=0),
        (size * (of_share.deviation[..., None] + rounding)).sum(axis=0),
    )
    return Off(o + _over_parts(o_off.times(shares[..., None])), of_lse)


def _over_parts(each: Tolerance) -> Tolerance:
    """Return the error of a sum over parts, the first dimension."""
    return Tolerance(each.limit.sum(axis=0), np.sqrt(np.square(each.deviation).sum(axis=0)))


def split_forward_off(config: Config, problem: Problem, given: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Return the errors of o and lse of a forward problem with two kernels, from the config of the first."""
    first, second = stage(problem, SPLITKV), stage(problem, COMBINE)
    between = splitkv(first, given, arch)
    return combine_off(second, {**given, **between}, splitkv_off(config, first, given, arch))


def result_tolerance(problem: Problem, off: Mapping[str, Tolerance], exact: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Add the error of storing o; an LSE is computed in the type in which it is stored."""
    allowed = dict(off)
    if "o" in allowed:
        allowed["o"] = allowed["o"] + stored(wide(exact["o"]), allowed["o"], DTYPES[problem.dtype].o, "fp32", arch)
    return allowed
