"""The allowed error of attention's gradients: a bound for each element.

Imports NumPy: import this module only where arrays are at hand.

With the names of `reference_backward`: a probability is 2^(score - LSE), with the error of `softmax_rounding`. It is
rounded to the operands' type before it is multiplied by do. K · (do vᵀ) - d has the error of its sum and that of d;
times the probability it is dS, which is rounded to the operands' type, too. `block_gemm.rounding` has the errors of
sums in GEMMs. Partial sums of dq are added in fp32 in any order. dk and dv of each head are stored; where heads share
keys, the stored values are added in fp32 and stored again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.rounding import (
    STEP,
    Sizes,
    all_whole,
    flushes,
    sizes_of,
    stored,
    summed,
    tightened,
    wide,
    without_subnormals,
)
from tilewright.ops.fmha.collected import Collected, rows_of
from tilewright.ops.fmha.dropout import kept_share
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.reference_backward import Operands, operands
from tilewright.ops.fmha.sequences import Arrays, rows, sequences, unshared
from tilewright.ops.fmha.softmax_rounding import EXP, U, bias_of, dot_error, rounded_weights, score_error, ulps_of
from tilewright.ops.fmha.stages import keys_of_a_part
from tilewright.ops.fmha.tolerance_forward import weighted
from tilewright.ops.fmha.types import DTYPES
from tilewright.ops.tolerance import Tolerance

# The smallest number of keys in a tile: dq is a sum of at most one part per 16 keys.
_LEAST_KEYS = 16


@dataclass(frozen=True, slots=True)
class _Steps:
    """The operands of the last GEMMs and their errors: (head, query, key)."""

    weights: Floats
    weights_off: Tolerance
    by_score: Floats
    by_score_off: Tolerance  # before it is rounded
    by_score_rounded: Tolerance  # after it is rounded


def d_off(problem: Problem, given: Arrays, arch: Arch) -> Tolerance:
    """Return the error of d, (…, head, query)."""
    o, d_o = wide(given["o"]), wide(given["d_o"])
    products = np.abs(o * d_o)
    sizes = Sizes(products.sum(axis=-1), np.sqrt(np.square(products).sum(axis=-1)))
    off = summed(sizes, o.shape[-1] + 1, "fp32", arch, whole=all_whole(o, d_o))
    if problem.p_drop > 0:
        off = off + Tolerance(2 * U * sizes.magnitude, 2 * U * sizes.magnitude)
    off = off.times(kept_share(problem))
    if problem.layout != "bshd":
        return off
    return Tolerance(*(np.ascontiguousarray(each.swapaxes(-1, -2)) for each in (off.limit, off.deviation)))


def gradients_off(problem: Problem, given: Arrays, arch: Arch, d_errors: Tolerance) -> dict[str, Tolerance]:
    """Return errors of dq (`dq` or `dq_acc`, before it is stored), and tolerances of dk, dv and dbias."""
    off = Collected(problem)
    keys = keys_of_a_part(problem) if "dq_acc" in off else problem.seqlen_k
    for sequence in sequences(problem, given):
        its = operands(problem, given, sequence)
        steps = _steps(problem, its, rows_of(problem, {"d": d_errors}, "d", sequence), arch)
        for name, each in _other_gradients(problem, its, steps, arch).items():
            off.put(name, sequence, each)
        if "dq" in off:
            off.put("dq", sequence, _dq_off(problem, its, steps, slice(None), arch))
            continue
        for i, first in enumerate(range(0, sequence.keys, keys)):
            off.put("dq_acc", sequence, _dq_off(problem, its, steps, slice(first, first + keys), arch), i)
    return off.tolerances()


def _steps(problem: Problem, its: Operands, d_errors: Tolerance, arch: Arch) -> _Steps:
    kind = DTYPES[problem.dtype].qkv
    lse = np.abs(_lse(its))[..., None]
    score = np.where(its.of_scores.visible, np.abs(its.of_scores.final), 0.0)
    exponent = U * (2 * score + 4 * lse) + EXP
    of_p = score_error(problem, its.of_scores, its.q, its.k, arch) + Tolerance(exponent, exponent)
    p, weights = its.probabilities, its.weights
    inner = np.where(its.keep, its.by_weight, 0.0) - its.d[..., None]
    dot = dot_error(its.d_o, its.v, kind, arch).times(its.keep)
    difference = U * (np.abs(inner) + dot.limit)
    of_d = Tolerance(d_errors.limit[..., None], d_errors.deviation[..., None])
    inner_off = dot + of_d + Tolerance(difference, difference)
    by_score = p * inner
    product = 2 * U * np.abs(by_score)
    off = inner_off.times(p) + of_p.times(np.abs(by_score)) + Tolerance(product, product)
    rounded = _rounded(np.abs(by_score) + off.limit, p > 0, kind, arch)
    return _Steps(
        weights, of_p.times(weights) + _rounded(weights, weights > 0, kind, arch), by_score, off, off + rounded
    )


def _rounded(values: Floats, some: NDArray[np.bool_], kind: str, arch: Arch) -> Tolerance:
    """Return the error of rounding weights to the operands' type."""
    lost = np.where(some, rounded_weights(values, np.ones((1, 1, 1)), kind, ulps_of(kind), arch), 0.0)
    return Tolerance(lost, lost / 3**0.5)


def _lse(its: Operands) -> Floats:
    """Return the LSE that the probabilities were computed with; 0 where a row has none."""
    found = its.of_scores.lse
    return np.where(np.isfinite(found), found, 0.0)


def _product_off(
    left: Floats, left_off: Tolerance, right: Floats, extra_terms: int, kind: str, arch: Arch
) -> Tolerance:
    """Return the error of left @ right: left has errors, and right may have subnormals, which some GPUs flush to 0."""
    reach, terms = np.abs(left) + left_off.limit, left.shape[-1] + extra_terms
    off = weighted(left_off, right) + summed(sizes_of(np.matmul, reach, right, terms), terms, "fp32", arch, whole=False)
    if flushes(kind, arch):
        lost = reach @ np.abs(right - without_subnormals(right, kind, arch))
        off = off + Tolerance(lost, lost)
    cut_off = bias_of(kind, ulps_of(kind), arch) * np.abs(left @ right)
    return tightened(off + Tolerance(0.0, cut_off))


def _dq_off(problem: Problem, its: Operands, steps: _Steps, part: slice, arch: Arch) -> Tolerance:
    left, right = steps.by_score[..., part], its.k[:, part]
    tiles = -(-right.shape[1] // _LEAST_KEYS)
    rounded = steps.by_score_rounded
    left_off = Tolerance(rounded.limit[..., part], rounded.deviation[..., part])
    off = _product_off(left, left_off, right, tiles, DTYPES[problem.dtype].qkv, arch)
    return _scaled(off, np.abs(left @ right), problem.scale * its.kept_by, 3)


def _scaled(off: Tolerance, size: Floats, factor: float, steps: int) -> Tolerance:
    """Return the error of numbers of a given size after multiplying by a factor, with `steps` roundings."""
    own = steps * U * size
    return (off + Tolerance(own, own)).times(factor)


def _other_gradients(problem: Problem, its: Operands, steps: _Steps, arch: Arch) -> dict[str, Tolerance]:
    """Return the tolerances of dk, dv and dbias."""
    kind, types = DTYPES[problem.dtype].qkv, DTYPES[problem.dtype]
    scale = problem.scale * its.kept_by
    by_key = steps.by_score.swapaxes(1, 2)
    dk = by_key @ its.q
    dk_off = _scaled(_product_off(by_key, _turned(steps.by_score_rounded), its.q, 0, kind, arch), np.abs(dk), scale, 3)
    by_key = steps.weights.swapaxes(1, 2)
    dv = by_key @ its.d_o
    dv_off = _product_off(by_key, _turned(steps.weights_off), its.d_o, 0, kind, arch)
    dv_off = _scaled(dv_off, np.abs(dv), its.kept_by, 2)
    dbias = its.kept_by * steps.by_score
    dbias_off = _scaled(steps.by_score_off, np.abs(steps.by_score), its.kept_by, 2)
    stored_bias = stored(dbias, dbias_off, types.bias, "fp32", arch).times(dbias_off.limit > 0)
    return {
        "dk": _shared_tolerance(problem, scale * dk, dk_off, kind, arch),
        "dv": _shared_tolerance(problem, its.kept_by * dv, dv_off, kind, arch),
        "dbias": dbias_off + stored_bias,
    }


def _turned(off: Tolerance) -> Tolerance:
    """Swap queries and keys."""
    return Tolerance(off.limit.swapaxes(1, 2), off.deviation.swapaxes(1, 2))


def _shared_tolerance(problem: Problem, exact: Floats, off: Tolerance, kind: str, arch: Arch) -> Tolerance:
    """Return the tolerance of each head's stored gradient, or of the sum over heads that share keys and values."""
    each = off + stored(exact, off, kind, "fp32", arch)
    if problem.heads == problem.kv_heads:
        return each
    own = problem.heads // problem.kv_heads * STEP["fp32"] * unshared(problem, np.abs(exact) + each.limit)
    together = Tolerance(unshared(problem, each.limit), np.sqrt(unshared(problem, np.square(each.deviation))))
    sums_off = together + Tolerance(own, own)
    return sums_off + stored(unshared(problem, exact), sums_off, kind, "fp32", arch)


def dq_tolerance(problem: Problem, exact: Floats, off: Tolerance, arch: Arch) -> Tolerance:
    """Add the error of storing dq in its type."""
    return off + stored(exact, off, DTYPES[problem.dtype].qkv, "fp32", arch)


def convert_off(problem: Problem, given: Arrays, arch: Arch) -> Tolerance:
    """Return the error of adding the parts of dq; a single part has none."""
    off = Collected(problem)
    for sequence in sequences(problem, given):
        parts = wide(rows(problem, given, "dq_acc", sequence))
        if len(parts) > 1:
            sizes = Sizes(np.abs(parts).sum(axis=0), np.sqrt(np.square(parts).sum(axis=0)))
            off.put("dq", sequence, summed(sizes, len(parts), "fp32", arch, whole=all_whole(parts)))
    return off.tolerances()["dq"]
