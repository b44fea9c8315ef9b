"""The allowed error of attention's results compared with the reference: a derived bound for each element.

Imports NumPy: import this module only where arrays are at hand.

The derivations for results are in `softmax_rounding` and `tolerance_forward`. Elements with an infinite bound are not
checked: random numbers of masked pairs, since kernels skip tiles without visible keys, and results of skipped
sequences.

**Gradients**, with the names of `reference_backward`: a probability is 2^(score - LSE), with the error of
`softmax_rounding`. It is rounded to the operands' type before it is multiplied by do. K · (do vᵀ) - d has the error of
its sum and that of d; times the probability it is dS, which is rounded to the operands' type, too.
`block_gemm.rounding` has the errors of sums in GEMMs. Partial sums of dq are added in fp32 in any order. dk and dv of
each head are stored; where heads share keys, the stored values are added in fp32 and stored again.

**Values that are truncated twice.** bf16 is truncated when it is stored, which takes half an ulp from a number on
average. Where heads share keys, a gradient loses this from the value of each head and from their sum. The means of
these losses are not independent, but add up with the signs of the values; only what remains is independent.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats, compute_spacing
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.matrix_product import multiply_matrices
from tilewright.ops.block_gemm.rounding import (
    STEP,
    ProductMagnitudes,
    add_store_error,
    compute_magnitudes,
    compute_store_error,
    compute_sum_error,
    drop_subnormals,
    has_only_integers,
    is_flushed,
    make_exact_tolerance,
    reduce_limit,
    to_float64,
)
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.dropout import keep_probability
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kind import find_computation
from tilewright.ops.fmha.output_tolerances import OutputTolerances, select_tolerance_rows
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.reference_backward import GradientOperands, compute_dot_do_o, compute_operands
from tilewright.ops.fmha.reference_caches import append_tokens, compute_rotation_magnitude
from tilewright.ops.fmha.reference_forward import build_visibility_mask, is_left_out
from tilewright.ops.fmha.sequences import Arrays, iterate_sequences, select_rows, sum_shared_heads
from tilewright.ops.fmha.softmax_rounding import (
    EXP,
    U,
    compute_dot_error,
    compute_score_error,
    compute_weight_rounding,
    get_rounding_bias,
    get_rounding_ulps,
)
from tilewright.ops.fmha.stages import get_keys_per_part
from tilewright.ops.fmha.tensors import list_tensors
from tilewright.ops.fmha.tolerance_forward import (
    compute_combine_errors,
    compute_forward_errors,
    compute_result_tolerance,
    compute_split_forward_errors,
    compute_splitkv_errors,
    compute_weighted_error,
    get_forward_rounding,
)
from tilewright.ops.tolerance import Tolerance

# The smallest number of keys in a tile: dq is a sum of at most one part per 16 keys.
_LEAST_KEYS = 16


def compute_tolerance(
    config: Config | tuple[Config, ...],
    problem: Problem,
    inputs: Mapping[str, NDArray[Any]],
    expected: Mapping[str, NDArray[Any]],
    arch: Arch,
) -> dict[str, Tolerance]:
    """Return the allowed error of each output's elements. Several configs are those of a problem's stages."""
    first = config[0] if isinstance(config, tuple) else config
    allowed = find_computation(problem).tolerance(first, problem, inputs, expected, arch)
    if "randval" in expected:
        size = np.shape(expected["randval"])
        allowed["randval"] = Tolerance(np.full(size, np.inf), np.zeros(size))
    limits = {name: each.limit for name, each in allowed.items()}
    for sequence in iterate_sequences(problem, inputs):
        if "randval" in allowed:
            seen = build_visibility_mask(problem, sequence.queries, sequence.keys)
            select_rows(problem, limits, "randval", sequence)[...] = np.where(seen, 0.0, np.inf)
        if is_left_out(problem, sequence):
            for name in allowed.keys() & {"o", "lse", "randval"}:
                select_rows(problem, limits, name, sequence)[...] = np.inf
    return {tensor.name: allowed[tensor.name] for tensor in list_tensors(problem) if tensor.output}


def tolerance_basis(config: Config, problem: Problem) -> Hashable:
    """The part of a config that the tolerance depends on: the loop over keys, in kernels that have one."""
    return get_forward_rounding(config, problem) if find_computation(problem).loops_over_keys else ()


def bound_forward(config: Config, problem: Problem, given: Arrays, exact: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Return the bounds of attention in one kernel, or in two if the keys are split."""
    if problem.num_splits == 0:
        return bound_attention(config, problem, given, exact, arch)
    off = compute_split_forward_errors(config, problem, given, arch)
    return compute_result_tolerance(problem, off, exact, arch)


def bound_attention(config: Config, problem: Problem, given: Arrays, exact: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Return the bounds of attention in one kernel."""
    return compute_result_tolerance(problem, compute_forward_errors(config, problem, given, arch), exact, arch)


def bound_splitkv(config: Config, problem: Problem, given: Arrays, _: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Return the bounds of partial results."""
    return compute_splitkv_errors(config, problem, given, arch)


def bound_combine(_: Config, problem: Problem, given: Arrays, exact: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Return the bounds of merged results."""
    return compute_result_tolerance(problem, compute_combine_errors(problem, given), exact, arch)


def bound_d(_: Config, problem: Problem, given: Arrays, __: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Return the bounds of d."""
    return {"d": compute_d_error(problem, given, arch)}


def bound_converted(_: Config, problem: Problem, given: Arrays, exact: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Return the bounds of dq from its partial sums."""
    off = compute_convert_error(problem, given, arch)
    return {"dq": compute_dq_tolerance(problem, to_float64(exact["dq"]), off, arch)}


def bound_gradients(_: Config, problem: Problem, given: Arrays, __: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Return the bounds of gradients from a given d."""
    return compute_gradient_errors(problem, given, arch, make_exact_tolerance(to_float64(given["d"])))


def bound_backward(_: Config, problem: Problem, given: Arrays, exact: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Return the bounds of all gradients."""
    d = compute_dot_do_o(problem, given, arch)
    made = compute_gradient_errors(problem, {**given, **d}, arch, compute_d_error(problem, given, arch))
    return {**made, "dq": compute_dq_tolerance(problem, to_float64(exact["dq"]), made["dq"], arch)}


def bound_appended(_: Config, problem: Problem, given: Arrays, exact: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Return the bounds of appendkv: a rotated element is a stored sum of two products, all others are copies."""
    kind = DTYPES[problem.dtype].qkv
    old = {name: np.zeros(np.shape(given[name])) for name in ("q", "k", "v")}
    sizes = append_tokens(
        problem, given, old, lambda values, at: compute_rotation_magnitude(problem, given, values, at)
    )
    turned = [to_float64(given[name]) for name in ("q", "k_new", "rotary_cos", "rotary_sin") if name in given]
    allowed = {"v": make_exact_tolerance(old["v"])}
    for name in ("q", "k"):
        product = np.zeros_like(sizes[name]) if has_only_integers(*turned) else 3 * U * sizes[name]
        off = make_exact_tolerance(sizes[name]) + Tolerance(product, product)
        rounded = add_store_error(to_float64(exact[name]), off, kind, "fp32", arch)
        allowed[name] = rounded.scale(sizes[name] > 0)
    return allowed


@dataclass(frozen=True, slots=True)
class _Intermediates:
    """The operands of the last GEMMs and their errors: (head, query, key)."""

    weights: Floats
    weights_off: Tolerance
    by_score: Floats
    by_score_off: Tolerance  # before it is rounded
    by_score_rounded: Tolerance  # after it is rounded


def compute_d_error(problem: Problem, given: Arrays, arch: Arch) -> Tolerance:
    """Return the error of d, (…, head, query)."""
    o, d_o = to_float64(given["o"]), to_float64(given["d_o"])
    products = np.abs(o * d_o)
    sizes = ProductMagnitudes(products.sum(axis=-1), np.sqrt(np.square(products).sum(axis=-1)))
    off = compute_sum_error(sizes, o.shape[-1] + 1, "fp32", arch, whole=has_only_integers(o, d_o))
    if problem.p_drop > 0:
        off = off + Tolerance(2 * U * sizes.magnitude, 2 * U * sizes.magnitude)
    off = off.scale(keep_probability(problem))
    if problem.layout != "bshd":
        return off
    return Tolerance(*(np.ascontiguousarray(each.swapaxes(-1, -2)) for each in (off.limit, off.deviation)))


def compute_gradient_errors(problem: Problem, given: Arrays, arch: Arch, d_errors: Tolerance) -> dict[str, Tolerance]:
    """Return errors of dq (`dq` or `dq_acc`, before it is stored), and tolerances of dk, dv and dbias."""
    off = OutputTolerances(problem)
    keys = get_keys_per_part(problem) if "dq_acc" in off else problem.seqlen_k
    for sequence in iterate_sequences(problem, given):
        its = compute_operands(problem, given, sequence)
        steps = _compute_intermediates(
            problem, its, select_tolerance_rows(problem, {"d": d_errors}, "d", sequence), arch
        )
        for name, each in _compute_other_tolerances(problem, its, steps, arch).items():
            off.set_rows(name, sequence, each)
        if "dq" in off:
            off.set_rows("dq", sequence, _compute_dq_error(problem, its, steps, slice(None), arch))
            continue
        for i, first in enumerate(range(0, sequence.keys, keys)):
            off.set_rows(
                "dq_acc", sequence, _compute_dq_error(problem, its, steps, slice(first, first + keys), arch), i
            )
    return off.get_tolerances()


def _compute_intermediates(problem: Problem, its: GradientOperands, d_errors: Tolerance, arch: Arch) -> _Intermediates:
    kind = DTYPES[problem.dtype].qkv
    lse = np.abs(_get_finite_lse(its))[..., None]
    score = np.where(its.of_scores.visible, np.abs(its.of_scores.final), 0.0)
    exponent = U * (2 * score + 4 * lse) + EXP
    of_p = compute_score_error(problem, its.of_scores, its.q, its.k, arch) + Tolerance(exponent, exponent)
    p, weights = its.probabilities, its.weights
    inner = np.where(its.keep, its.by_weight, 0.0) - its.d[..., None]
    dot = compute_dot_error(its.d_o, its.v, kind, arch).scale(its.keep)
    difference = U * (np.abs(inner) + dot.limit)
    of_d = Tolerance(d_errors.limit[..., None], d_errors.deviation[..., None])
    inner_off = dot + of_d + Tolerance(difference, difference)
    by_score = p * inner
    product = 2 * U * np.abs(by_score)
    off = inner_off.scale(p) + of_p.scale(np.abs(by_score)) + Tolerance(product, product)
    rounded = _compute_rounding_error(np.abs(by_score) + off.limit, p > 0, kind, arch)
    return _Intermediates(
        weights,
        of_p.scale(weights) + _compute_rounding_error(weights, weights > 0, kind, arch),
        by_score,
        off,
        off + rounded,
    )


def _compute_rounding_error(values: Floats, some: NDArray[np.bool_], kind: str, arch: Arch) -> Tolerance:
    """Return the error of rounding weights to the operands' type."""
    lost = np.where(some, compute_weight_rounding(values, np.ones((1, 1, 1)), kind, get_rounding_ulps(kind), arch), 0.0)
    return Tolerance(lost, lost / 3**0.5)


def _get_finite_lse(its: GradientOperands) -> Floats:
    """Return the LSE that the probabilities were computed with; 0 where a row has none."""
    found = its.of_scores.lse
    return np.where(np.isfinite(found), found, 0.0)


def _compute_product_error(
    left: Floats, left_off: Tolerance, right: Floats, extra_terms: int, kind: str, arch: Arch
) -> Tolerance:
    """Return the error of left @ right: left has errors, and right may have subnormals, which some GPUs flush to 0."""
    reach, terms = np.abs(left) + left_off.limit, left.shape[-1] + extra_terms
    off = compute_weighted_error(left_off, right) + compute_sum_error(
        compute_magnitudes(multiply_matrices, reach, right, terms), terms, "fp32", arch, whole=False
    )
    if is_flushed(kind, arch):
        lost = multiply_matrices(reach, np.abs(right - drop_subnormals(right, kind, arch)))
        off = off + Tolerance(lost, lost)
    cut_off = get_rounding_bias(kind, get_rounding_ulps(kind), arch) * np.abs(multiply_matrices(left, right))
    return reduce_limit(off + Tolerance(np.zeros_like(cut_off), cut_off))


def _compute_dq_error(
    problem: Problem, its: GradientOperands, steps: _Intermediates, part: slice, arch: Arch
) -> Tolerance:
    left, right = steps.by_score[..., part], its.k[:, part]
    tiles = -(-right.shape[1] // _LEAST_KEYS)
    rounded = steps.by_score_rounded
    left_off = Tolerance(rounded.limit[..., part], rounded.deviation[..., part])
    off = _compute_product_error(left, left_off, right, tiles, DTYPES[problem.dtype].qkv, arch)
    return _scale_error(off, np.abs(multiply_matrices(left, right)), problem.scale * its.kept_by, 3)


def _scale_error(off: Tolerance, size: Floats, factor: float, steps: int) -> Tolerance:
    """Return the error of numbers of a given size after multiplying by a factor, with `steps` roundings."""
    own = steps * U * size
    return (off + Tolerance(own, own)).scale(factor)


def _compute_other_tolerances(
    problem: Problem, its: GradientOperands, steps: _Intermediates, arch: Arch
) -> dict[str, Tolerance]:
    """Return the tolerances of dk, dv and dbias."""
    kind, types = DTYPES[problem.dtype].qkv, DTYPES[problem.dtype]
    scale = problem.scale * its.kept_by
    by_key = steps.by_score.swapaxes(1, 2)
    dk = multiply_matrices(by_key, its.q)
    dk_off = _scale_error(
        _compute_product_error(by_key, _transpose_error(steps.by_score_rounded), its.q, 0, kind, arch),
        np.abs(dk),
        scale,
        3,
    )
    by_key = steps.weights.swapaxes(1, 2)
    dv = multiply_matrices(by_key, its.d_o)
    dv_off = _compute_product_error(by_key, _transpose_error(steps.weights_off), its.d_o, 0, kind, arch)
    dv_off = _scale_error(dv_off, np.abs(dv), its.kept_by, 2)
    dbias = its.kept_by * steps.by_score
    dbias_off = _scale_error(steps.by_score_off, np.abs(steps.by_score), its.kept_by, 2)
    stored_bias = compute_store_error(dbias, dbias_off, types.bias, "fp32", arch).scale(dbias_off.limit > 0)
    return {
        "dk": _compute_shared_tolerance(problem, scale * dk, dk_off, kind, arch),
        "dv": _compute_shared_tolerance(problem, its.kept_by * dv, dv_off, kind, arch),
        "dbias": dbias_off + stored_bias,
    }


def _transpose_error(off: Tolerance) -> Tolerance:
    """Swap queries and keys."""
    return Tolerance(off.limit.swapaxes(1, 2), off.deviation.swapaxes(1, 2))


def _compute_shared_tolerance(problem: Problem, exact: Floats, off: Tolerance, kind: str, arch: Arch) -> Tolerance:
    """Return the tolerance of each head's stored gradient, or of the sum over heads that share keys and values."""
    each = add_store_error(exact, off, kind, "fp32", arch)
    if problem.heads == problem.kv_heads:
        return each
    own = problem.heads // problem.kv_heads * STEP["fp32"] * sum_shared_heads(problem, np.abs(exact) + each.limit)
    together = Tolerance(
        sum_shared_heads(problem, each.limit), np.sqrt(sum_shared_heads(problem, np.square(each.deviation)))
    )
    sums_off = together + Tolerance(own, own)
    sums = sum_shared_heads(problem, exact)
    stored = add_store_error(sums, sums_off, kind, "fp32", arch)
    if get_rounding_ulps(kind) < 1:  # rounding takes nothing on average
        return stored
    of_heads = _compute_mean_loss(exact, each, kind, arch)
    of_sums = _compute_mean_loss(sums, stored, kind, arch)
    joint = np.square(sum_shared_heads(problem, of_heads) + of_sums)
    apart = sum_shared_heads(problem, np.square(of_heads)) + np.square(of_sums)
    return Tolerance(stored.limit, np.sqrt(np.maximum(np.square(stored.deviation) + joint - apart, 0.0)))


def _compute_mean_loss(values: Floats, off: Tolerance, kind: str, arch: Arch) -> Floats:
    """Return what truncation takes from values on average, with their signs, if their error after it is `off`.

    It is a part of the error: its square is at most three quarters of the squared deviation.
    """
    return np.where(off.deviation > 0, np.sign(values) * compute_spacing(values, kind, arch) / 2, 0.0)


def compute_dq_tolerance(problem: Problem, exact: Floats, off: Tolerance, arch: Arch) -> Tolerance:
    """Add the error of storing dq in its type."""
    return add_store_error(exact, off, DTYPES[problem.dtype].qkv, "fp32", arch)


def compute_convert_error(problem: Problem, given: Arrays, arch: Arch) -> Tolerance:
    """Return the error of adding the parts of dq; a single part has none."""
    off = OutputTolerances(problem)
    for sequence in iterate_sequences(problem, given):
        parts = to_float64(select_rows(problem, given, "dq_acc", sequence))
        if len(parts) > 1:
            sizes = ProductMagnitudes(np.abs(parts).sum(axis=0), np.sqrt(np.square(parts).sum(axis=0)))
            off.set_rows(
                "dq", sequence, compute_sum_error(sizes, len(parts), "fp32", arch, whole=has_only_integers(parts))
            )
    return off.get_tolerances()["dq"]
