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
from tilewright.ops.block_gemm.rounding import all_whole, exactly, stored, wide
from tilewright.ops.fmha import families
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.reference_backward import dot_do_o
from tilewright.ops.fmha.reference_caches import appended, rotation_size
from tilewright.ops.fmha.reference_forward import left_out, visible
from tilewright.ops.fmha.sequences import Arrays, rows, sequences
from tilewright.ops.fmha.softmax_rounding import U
from tilewright.ops.fmha.tensors import tensors
from tilewright.ops.fmha.tolerance_backward import convert_off, d_off, dq_tolerance, gradients_off
from tilewright.ops.fmha.tolerance_forward import (
    combine_off,
    forward_off,
    how,
    result_tolerance,
    split_forward_off,
    splitkv_off,
)
from tilewright.ops.fmha.types import DTYPES
from tilewright.ops.tolerance import Tolerance

_ATTENTION = (families.FORWARD, families.PAGEDKV, families.BATCH_PREFILL)


def tolerance(
    config: Config | tuple[Config, ...],
    problem: Problem,
    inputs: Mapping[str, NDArray[Any]],
    expected: Mapping[str, NDArray[Any]],
    arch: Arch,
) -> dict[str, Tolerance]:
    """Return the allowed error of each output's elements. Several configs are those of a problem's stages."""
    first = config[0] if isinstance(config, tuple) else config
    allowed = _bounds(first, problem, inputs, expected, arch)
    limits = {name: each.limit for name, each in allowed.items()}
    for sequence in sequences(problem, inputs):
        if "randval" in allowed:
            seen = visible(problem, sequence.queries, sequence.keys)
            rows(problem, limits, "randval", sequence)[...] = np.where(seen, 0.0, np.inf)
        if left_out(problem, sequence):
            for name in allowed.keys() & {"o", "lse", "randval"}:
                rows(problem, limits, name, sequence)[...] = np.inf
    return {tensor.name: allowed[tensor.name] for tensor in tensors(problem) if tensor.output}


def tolerance_basis(config: Config, problem: Problem) -> Hashable:
    """The part of a config that the tolerance depends on: the loop over keys, in families that have one."""
    return how(config, problem) if problem.family in (*_ATTENTION, families.SPLITKV) else ()


def _bounds(config: Config, problem: Problem, given: Arrays, exact: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Return the bounds of all outputs; those of random numbers are infinite."""
    family = problem.family
    sizes = {name: np.shape(exact[name]) for name in exact if name == "randval"}
    allowed = {name: Tolerance(np.full(size, np.inf), np.zeros(size)) for name, size in sizes.items()}
    if family == families.FORWARD and problem.num_splits > 0:
        off = split_forward_off(config, problem, given, arch)
        return {**result_tolerance(problem, off, exact, arch), **allowed}
    if family in _ATTENTION:
        return {**result_tolerance(problem, forward_off(config, problem, given, arch), exact, arch), **allowed}
    if family == families.SPLITKV:
        return splitkv_off(config, problem, given, arch)
    if family == families.COMBINE:
        return result_tolerance(problem, combine_off(problem, given), exact, arch)
    if family == families.APPENDKV:
        return _appended(problem, given, exact, arch)
    return {**_gradient_bounds(problem, given, exact, arch), **allowed}


def _gradient_bounds(problem: Problem, given: Arrays, exact: Arrays, arch: Arch) -> dict[str, Tolerance]:
    family = problem.family
    if family == families.DOT_DO_O:
        return {"d": d_off(problem, given, arch)}
    if family == families.CONVERT_DQ:
        return {"dq": dq_tolerance(problem, wide(exact["dq"]), convert_off(problem, given, arch), arch)}
    if family == families.DQ_DK_DV:
        return gradients_off(problem, given, arch, exactly(wide(given["d"])))
    d = dot_do_o(problem, given, arch)
    made = gradients_off(problem, {**given, **d}, arch, d_off(problem, given, arch))
    return {**made, "dq": dq_tolerance(problem, wide(exact["dq"]), made["dq"], arch)}


def _appended(problem: Problem, given: Arrays, exact: Arrays, arch: Arch) -> dict[str, Tolerance]:
    """Return the bounds of appendkv: a rotated element is a stored sum of two products, all others are copies."""
    kind = DTYPES[problem.dtype].qkv
    old = {name: np.zeros(np.shape(given[name])) for name in ("q", "k", "v")}
    sizes = appended(problem, given, old, lambda values, at: rotation_size(problem, given, values, at))
    turned = [wide(given[name]) for name in ("q", "k_new", "rotary_cos", "rotary_sin") if name in given]
    allowed = {"v": exactly(old["v"])}
    for name in ("q", "k"):
        product = 0.0 if all_whole(*turned) else 3 * U * sizes[name]
        off = exactly(sizes[name]) + Tolerance(product, product)
        rounded = off + stored(wide(exact[name]), off, kind, "fp32", arch)
        allowed[name] = rounded.times(sizes[name] > 0)
    return allowed
