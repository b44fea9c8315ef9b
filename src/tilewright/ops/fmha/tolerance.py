"""The allowed error of attention's results compared with the reference: a derived bound for each element.

Imports NumPy: import this module only where arrays are at hand.

The derivations are in `softmax_rounding`, `tolerance_forward` and `tolerance_backward`. Elements with an infinite bound
are not checked: random numbers of masked pairs, since kernels skip tiles without visible keys, and results of skipped
sequences.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.rounding import compute_store_error, has_only_integers, make_exact_tolerance, to_float64
from tilewright.ops.fmha import families
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.families import DTYPES
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.reference_backward import compute_dot_do_o
from tilewright.ops.fmha.reference_caches import append_tokens, compute_rotation_magnitude
from tilewright.ops.fmha.reference_forward import build_visibility_mask, is_left_out
from tilewright.ops.fmha.sequences import Arrays, iterate_sequences, select_rows
from tilewright.ops.fmha.softmax_rounding import U
from tilewright.ops.fmha.tensors import list_tensors
from tilewright.ops.fmha.tolerance_backward import (
    compute_convert_error,
    compute_d_error,
    compute_dq_tolerance,
    compute_gradient_errors,
)
from tilewright.ops.fmha.tolerance_forward import (
    compute_combine_errors,
    compute_forward_errors,
    compute_result_tolerance,
    compute_split_forward_errors,
    compute_splitkv_errors,
    get_forward_rounding,
)
from tilewright.ops.tolerance import Tolerance

_ATTENTION = (families.FORWARD, families.PAGEDKV, families.BATCH_PREFILL)


def compute_tolerance(
    config: Config | tuple[Config, ...],
    problem: Problem,
    inputs: Mapping[str, NDArray[Any]],
    expected: Mapping[str, NDArray[Any]],
    arch: Arch,
) -> dict[str, Tolerance]:
    """Return the allowed error of each output's elements. Several configs are those of a problem's stages."""
    first = config[0] if isinstance(config, tuple) else config
    allowed = _compute_bounds(first, problem, inputs, expected, arch)
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
    """The part of a config that the tolerance depends on: the loop over keys, in families that have one."""
    return get_forward_rounding(config, problem) if problem.family in (*_ATTENTION, families.SPLITKV) else ()


def _compute_bounds(config: Config, problem: Problem, given: Arrays, exact: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Return the bounds of all outputs; those of random numbers are infinite."""
    family = problem.family
    sizes = {name: np.shape(exact[name]) for name in exact if name == "randval"}
    allowed = {name: Tolerance(np.full(size, np.inf), np.zeros(size)) for name, size in sizes.items()}
    if family == families.FORWARD and problem.num_splits > 0:
        off = compute_split_forward_errors(config, problem, given, arch)
        return {**compute_result_tolerance(problem, off, exact, arch), **allowed}
    if family in _ATTENTION:
        return {
            **compute_result_tolerance(problem, compute_forward_errors(config, problem, given, arch), exact, arch),
            **allowed,
        }
    if family == families.SPLITKV:
        return compute_splitkv_errors(config, problem, given, arch)
    if family == families.COMBINE:
        return compute_result_tolerance(problem, compute_combine_errors(problem, given), exact, arch)
    if family == families.APPENDKV:
        return _compute_append_bounds(problem, given, exact, arch)
    return {**_compute_gradient_bounds(problem, given, exact, arch), **allowed}


def _compute_gradient_bounds(problem: Problem, given: Arrays, exact: Arrays, arch: Arch) -> dict[str, Tolerance]:
    family = problem.family
    if family == families.DOT_DO_O:
        return {"d": compute_d_error(problem, given, arch)}
    if family == families.CONVERT_DQ:
        return {
            "dq": compute_dq_tolerance(
                problem, to_float64(exact["dq"]), compute_convert_error(problem, given, arch), arch
            )
        }
    if family == families.DQ_DK_DV:
        return compute_gradient_errors(problem, given, arch, make_exact_tolerance(to_float64(given["d"])))
    d = compute_dot_do_o(problem, given, arch)
    made = compute_gradient_errors(problem, {**given, **d}, arch, compute_d_error(problem, given, arch))
    return {**made, "dq": compute_dq_tolerance(problem, to_float64(exact["dq"]), made["dq"], arch)}


def _compute_append_bounds(problem: Problem, given: Arrays, exact: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Return the bounds of appendkv: a rotated element is a stored sum of two products, all others are copies."""
    kind = DTYPES[problem.dtype].qkv
    old = {name: np.zeros(np.shape(given[name])) for name in ("q", "k", "v")}
    sizes = append_tokens(
        problem, given, old, lambda values, at: compute_rotation_magnitude(problem, given, values, at)
    )
    turned = [to_float64(given[name]) for name in ("q", "k_new", "rotary_cos", "rotary_sin") if name in given]
    allowed = {"v": make_exact_tolerance(old["v"])}
    for name in ("q", "k"):
        product = 0.0 if has_only_integers(*turned) else 3 * U * sizes[name]
        off = make_exact_tolerance(sizes[name]) + Tolerance(product, product)
        rounded = off + compute_store_error(to_float64(exact[name]), off, kind, "fp32", arch)
        allowed[name] = rounded.scale(sizes[name] > 0)
    return allowed
