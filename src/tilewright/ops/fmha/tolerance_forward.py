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
from tilewright.ops.block_gemm.matrix_product import multiply_matrices
from tilewright.ops.block_gemm.rounding import (
    STEP,
    ProductMagnitudes,
    add_store_error,
    compute_magnitudes,
    compute_sum_error,
    drop_subnormals,
    has_only_integers,
    is_flushed,
    make_exact_tolerance,
    reduce_limit,
    to_float64,
)
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.dropout import dropout_scale
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kinds.combine import COMBINE
from tilewright.ops.fmha.kinds.splitkv import SPLITKV
from tilewright.ops.fmha.output_tolerances import OutputTolerances, select_tolerance_rows
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.reference_forward import (
    Scores,
    apply_dropout,
    compute_scores,
    compute_splitkv,
    join_parts,
    result_scale,
    select_keys,
    split_keys,
)
from tilewright.ops.fmha.sequences import Arrays, TokenSequence, iterate_sequences, repeat_kv_heads, select_rows
from tilewright.ops.fmha.softmax_rounding import (
    EXP,
    LOG,
    RECIPROCAL,
    SoftmaxErrors,
    U,
    compute_constant_rounding,
    compute_exponential_sum_error,
    compute_score_error,
    compute_sink_error,
    compute_softmax_errors,
    compute_weight_rounding,
    get_rounding_bias,
    get_rounding_ulps,
)
from tilewright.ops.fmha.stages import make_stage
from tilewright.ops.tolerance import Tolerance

# The largest number of waves that each sum a part of the keys, in kernels that add the parts at the end: an upper bound
# of the additional additions.
_WAVES = 16


class ForwardRounding(NamedTuple):
    """The properties of a kernel that its errors depend on: keys of one tile, and the rounding of a probability."""

    tile: int
    ulps: float


def get_forward_rounding(config: Config, problem: Problem) -> ForwardRounding:
    """Return the properties of a kernel with this config."""
    return ForwardRounding(config.tile["n0"], get_rounding_ulps(DTYPES[problem.dtype].p, config.pipeline))


class ResultErrors(NamedTuple):
    """Errors of results, (head, query, element), and of their LSE, (head, query), before anything is stored."""

    o: Tolerance
    lse: Tolerance


def compute_attention_errors(
    problem: Problem,
    of_scores: Scores,
    score_errors: Tolerance,
    v: Floats,
    after: Floats,
    kernel: ForwardRounding,
    arch: Arch,
) -> ResultErrors:
    """Return the errors of attention over some keys, where `after` are their weights after dropout."""
    keys = v.shape[1]
    tiles = max(1, -(-keys // kernel.tile))
    off = compute_softmax_errors(of_scores, score_errors, tiles)
    largest, log_sum = of_scores.largest, np.log(of_scores.total)
    lse = largest + log_sum
    sums = _compute_sum_errors(of_scores, off, keys, tiles)
    scaled = after * (problem.scale_p if problem.static_quant else 1.0)
    changed = scaled * (0.0 if _weight_factor(problem) == 1.0 else 3 * U)
    rounded = _compute_rounding_error(problem, scaled, off.flat, 1 / of_scores.total, kernel.ulps, arch)
    each = off.exponentials.scale(scaled) + Tolerance(changed, changed) + rounded
    result, sizes = np.abs(multiply_matrices(scaled, v)), compute_magnitudes(multiply_matrices, scaled, v, keys)
    # Errors that all weights of a row have in common: that of the divisor, and losses in the same direction.
    same = Tolerance(
        sums.limit, sums.deviation + off.rescaling + _compute_common_loss(problem, off.flat, kernel.ulps, arch)
    )
    common = RECIPROCAL + 2 * U
    o = Tolerance(result * (same.limit + common)[..., None], result * (same.deviation + common)[..., None])
    rescaled = off.rescaling[..., None] * sizes.norm
    o = o + compute_weighted_error(each, v) + Tolerance(np.zeros_like(rescaled), rescaled)
    o = reduce_limit(o + _compute_gemm_error(problem, scaled, v, sizes, off.flat, of_scores.total, arch))
    own = U * (3 * np.abs(largest) + 2 * np.abs(lse)) + LOG * (np.abs(log_sum) + 1)
    return ResultErrors(o, Tolerance(sums.limit + own, sums.deviation + off.rescaling + own))


def compute_weighted_error(each: Tolerance, values: Floats) -> Tolerance:
    """Return the error of a product of exact values and weights with independent errors."""
    squares = multiply_matrices(np.square(each.deviation), np.square(values))
    return Tolerance(multiply_matrices(each.limit, np.abs(values)), np.sqrt(squares))


def _compute_sum_errors(of_scores: Scores, off: SoftmaxErrors, keys: int, tiles: int) -> Tolerance:
    """Return the relative error of the sum of a row's exponentials; the deviation excludes that of rescaling."""
    p, plain = of_scores.probabilities, np.where(off.flat, 0.0, 1.0)
    limit = (p * off.exponentials.limit).sum(axis=-1)
    deviation = np.sqrt(np.square(p * off.exponentials.deviation).sum(axis=-1))
    own, of_sink = compute_exponential_sum_error(keys, tiles), plain * compute_sink_error(of_scores)
    return Tolerance(limit + plain * own.limit + of_sink, deviation + plain * own.deviation + of_sink)


def _replace_infinite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, 0.0)


def _weight_factor(problem: Problem) -> float:
    """The factor of the exponentials before they are rounded."""
    dropped = dropout_scale(problem) if problem.p_drop > 0 else 1.0
    return dropped * (problem.scale_p if problem.static_quant else 1.0)


def _compute_rounding_error(
    problem: Problem, scaled: Floats, flat: NDArray[np.bool_], share: Floats, ulps: float, arch: Arch
) -> Tolerance:
    """Return the error of rounding weights to their type. `share` is the weight of an exponential of 1.

    In a row with equal scores all weights are rounded in the same way: `_compute_common_loss` has their common error.
    """
    name = DTYPES[problem.dtype].p
    usual = compute_weight_rounding(scaled, share[..., None], name, ulps, arch) * (scaled > 0)
    if not flat.any():
        return Tolerance(usual, usual / 3**0.5)
    same = compute_constant_rounding(_weight_factor(problem), name, ulps, arch) * share[..., None] * (scaled > 0)
    rows_flat = flat[..., None]
    return Tolerance(np.where(rows_flat, same, usual), np.where(rows_flat, 0.0, usual / 3**0.5))


def _compute_common_loss(problem: Problem, flat: NDArray[np.bool_], ulps: float, arch: Arch) -> Floats:
    """Return the relative loss that all weights of a row have in common when they are rounded."""
    name, usual = DTYPES[problem.dtype].p, _weight_factor(problem)
    same = compute_constant_rounding(usual, name, ulps, arch) / usual
    return np.where(flat, same, get_rounding_bias(name, ulps, arch))


def _compute_gemm_error(
    problem: Problem,
    scaled: Floats,
    v: Floats,
    sizes: ProductMagnitudes,
    flat: NDArray[np.bool_],
    total: Floats,
    arch: Arch,
) -> Tolerance:
    """Return the error of the second GEMM's sums; `total` is the sum of exponentials that finally divides them."""
    terms, divisor = v.shape[1] + _WAVES, total[..., None]
    undivided = ProductMagnitudes(sizes.magnitude * divisor, sizes.norm * divisor)
    whole = has_only_integers(v) and _weight_factor(problem) == 1.0
    bound = compute_sum_error(undivided, terms, "fp32", arch, whole=False)
    if whole and flat.any():
        exact, rows_flat = compute_sum_error(undivided, terms, "fp32", arch, whole=True), flat[..., None]
        bound = Tolerance(
            np.where(rows_flat, exact.limit, bound.limit), np.where(rows_flat, exact.deviation, bound.deviation)
        )
    bound = bound.scale(1 / divisor)
    kind = DTYPES[problem.dtype].qkv
    if is_flushed(kind, arch):
        lost = multiply_matrices(scaled, np.abs(v - drop_subnormals(v, kind, arch)))
        bound = bound + Tolerance(lost, lost)
    return bound


def _gather_scores(
    problem: Problem, given: Arrays, sequence: TokenSequence, arch: Arch
) -> tuple[Scores, Tolerance, Floats]:
    """Return the scores of a sequence, their errors, and the values."""
    of_scores = compute_scores(problem, given, sequence)
    q = to_float64(select_rows(problem, given, "q", sequence))
    k = repeat_kv_heads(problem, to_float64(select_rows(problem, given, "k", sequence)))
    v = repeat_kv_heads(problem, to_float64(select_rows(problem, given, "v", sequence)))
    return of_scores, compute_score_error(problem, of_scores, q, k, arch), v


def compute_forward_errors(config: Config, problem: Problem, given: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Return the errors of o and lse before o is stored."""
    off = OutputTolerances(problem)
    for sequence in iterate_sequences(problem, given):
        of_scores, score_errors, v = _gather_scores(problem, given, sequence, arch)
        after = apply_dropout(problem, of_scores.probabilities, sequence)
        found = compute_attention_errors(
            problem, of_scores, score_errors, v, after, get_forward_rounding(config, problem), arch
        )
        off.set_rows("o", sequence, found.o.scale(result_scale(problem) / _probability_scale(problem)))
        off.set_rows("lse", sequence, found.lse.scale(np.isfinite(of_scores.lse)))
    return off.get_tolerances()


def _probability_scale(problem: Problem) -> float:
    return problem.scale_p if problem.static_quant else 1.0


def compute_splitkv_errors(config: Config, problem: Problem, given: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Return the errors of o_acc and lse_acc."""
    off = OutputTolerances(problem)
    for sequence in iterate_sequences(problem, given):
        of_scores, score_errors, v = _gather_scores(problem, given, sequence, arch)
        for i, part in enumerate(split_keys(problem, sequence.keys)):
            its, at = select_keys(of_scores, part), (..., part)
            its_errors = Tolerance(score_errors.limit[at], score_errors.deviation[at])
            found = compute_attention_errors(
                problem, its, its_errors, v[:, part], its.probabilities, get_forward_rounding(config, problem), arch
            )
            off.set_rows("o_acc", sequence, found.o, i)
            off.set_rows("lse_acc", sequence, found.lse.scale(np.isfinite(its.lse)), i)
    return off.get_tolerances()


def compute_combine_errors(
    problem: Problem, given: Arrays, given_off: Mapping[str, Tolerance] | None = None
) -> dict[str, Tolerance]:
    """Return the errors of o and lse before o is stored, where the parts have the errors `given_off`."""
    off = OutputTolerances(problem)
    for sequence in iterate_sequences(problem, given):
        o_acc = to_float64(select_rows(problem, given, "o_acc", sequence))
        lse_acc = to_float64(select_rows(problem, given, "lse_acc", sequence))
        o_off, lse_off = make_exact_tolerance(o_acc), make_exact_tolerance(lse_acc)
        if given_off is not None:
            o_off, lse_off = (
                select_tolerance_rows(problem, given_off, name, sequence) for name in ("o_acc", "lse_acc")
            )
        lse, shares = join_parts(lse_acc)
        found = _merge_part_errors(o_acc, lse_acc, o_off, lse_off, lse, shares)
        off.set_rows("o", sequence, found.o.scale(problem.scale_o if problem.static_quant else 1.0))
        off.set_rows("lse", sequence, found.lse.scale(np.isfinite(lse)))
    return off.get_tolerances()


def _merge_part_errors(
    o_acc: Floats, lse_acc: Floats, o_off: Tolerance, lse_off: Tolerance, lse: Floats, shares: Floats
) -> ResultErrors:
    known = np.isfinite(lse_acc)
    base = _replace_infinite(lse_acc.max(axis=0, initial=-np.inf))
    below = np.where(known, np.abs(lse_acc - base), 0.0)
    log_sum = _replace_infinite(lse) - base
    terms = len(lse_acc) + _WAVES
    # exp(x) is 2^(x · log2(e)): two roundings of the exponent, one of the difference, and one of the exponential.
    own = (shares * (U * 3 * below + EXP)).sum(axis=0) + terms * STEP["fp32"]
    own = own + LOG * (np.abs(log_sum) + 1) + U * np.abs(_replace_infinite(lse))
    of_lse = Tolerance(own, own) + _sum_over_parts(lse_off.scale(shares))
    distance = np.where(known, np.abs(lse_acc - _replace_infinite(lse)), 0.0)
    exponent = U * 3 * distance + EXP
    of_share = (of_lse + lse_off + Tolerance(exponent, exponent)).scale(known)
    rounding = terms * STEP["fp32"] + 2 * U
    size = shares[..., None] * np.abs(o_acc)
    # The errors of a row's shares have the error of the LSE in common.
    o = Tolerance(
        (size * (of_share.limit[..., None] + rounding)).sum(axis=0),
        (size * (of_share.deviation[..., None] + rounding)).sum(axis=0),
    )
    return ResultErrors(o + _sum_over_parts(o_off.scale(shares[..., None])), of_lse)


def _sum_over_parts(each: Tolerance) -> Tolerance:
    """Return the error of a sum over parts, the first dimension."""
    return Tolerance(each.limit.sum(axis=0), np.sqrt(np.square(each.deviation).sum(axis=0)))


def compute_split_forward_errors(config: Config, problem: Problem, given: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Return the errors of o and lse of a forward problem with two kernels, from the config of the first."""
    first, second = make_stage(problem, SPLITKV), make_stage(problem, COMBINE)
    between = compute_splitkv(first, given, arch)
    return compute_combine_errors(second, {**given, **between}, compute_splitkv_errors(config, first, given, arch))


def compute_result_tolerance(
    problem: Problem, off: Mapping[str, Tolerance], exact: Arrays, arch: Arch
) -> dict[str, Tolerance]:
    """Add the error of storing o; an LSE is computed in the type in which it is stored."""
    allowed = dict(off)
    if "o" in allowed:
        allowed["o"] = add_store_error(to_float64(exact["o"]), allowed["o"], DTYPES[problem.dtype].o, "fp32", arch)
    return allowed
