"""The allowed error of a convolution's result: a bound for each element.

Imports NumPy: import this module only where arrays are used.

Each element is a sum of products, summed and stored as described in `block_gemm.rounding`; the sum of absolute products
is the same convolution of absolute values. Positions in the padding add zeros, which are exact.

**Split-K.** Parts of a weight gradient are added atomically: in C's type, or in fp32 if a second kernel converts them
(`two_stage`), which then rounds again. The kernel chooses the positions of a part, but a part is a sequence of complete
mma steps in the order of positions, and parts do not overlap. With S the sums of the first 0, 1, 2 … steps, each part
is a difference of two of them, so that

- |part| is at most R = max S - min S, and storing k_batch parts has at most k_batch roundings of R,
- Σ|part| is at most k_batch · R, and at most the sum of |steps|: the smaller one bounds all sums of parts,
- the errors of the parts' own sums together are at most that of the complete sum: their magnitudes add up to its.

Adding may itself increase a sum beyond a power of two, where an ulp is twice as large: the bound for the sums includes
the errors of adding.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats, is_integer
from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.ops.block_gemm.rounding import (
    compute_add_error,
    compute_flush_error,
    compute_magnitudes,
    compute_rounding_error,
    compute_store_error,
    compute_sum_error,
    has_only_integers,
    make_exact_tolerance,
    repeat_error,
    to_float64,
)
from tilewright.ops.grouped_conv.config import BACKWARD_WEIGHT, Config
from tilewright.ops.grouped_conv.gemm_sizes import compute_gemm_sizes
from tilewright.ops.grouped_conv.implicit_gemm import ImplicitGemm
from tilewright.ops.grouped_conv.problem import Problem
from tilewright.ops.grouped_conv.reference import (
    compute_convolution,
    group_positions,
    iterate_windows,
    multiply_matrices,
)
from tilewright.ops.grouped_conv.tensors import list_tensors
from tilewright.ops.tolerance import Tolerance


def compute_tolerance(
    config: Config,
    problem: Problem,
    inputs: Mapping[str, NDArray[Any]],
    reference: Mapping[str, NDArray[Any]],
    arch: Arch,
) -> dict[str, Tolerance]:
    """The allowed error of each element of the result."""
    first, second, output = list_tensors(problem)
    exact = to_float64(reference[output.name])
    if is_integer(config.dtype_acc):
        return {output.name: make_exact_tolerance(exact)}
    a, b = to_float64(inputs[first.name]), to_float64(inputs[second.name])
    off, computed = _compute_sum_error(config, problem, a, b, arch), config.dtype_acc
    if problem.k_batch > 1:
        computed = ImplicitGemm(config).dtype_c  # the type of stored parts
        off = off + _compute_parts_error(config, problem, (a, b), off.limit, computed, arch)
    return {output.name: off + compute_store_error(exact, off, config.dtype_c, computed, arch)}


def tolerance_basis(config: Config, problem: Problem) -> Hashable:
    """The part of a config that the tolerance depends on: types, and for split sums the stored type and the step."""
    split = (ImplicitGemm(config).dtype_c, config.mma.k) if problem.k_batch > 1 else ()
    return config.dtype_a, config.dtype_b, config.dtype_c, config.dtype_acc, split


def _compute_sum_error(config: Config, problem: Problem, a: Floats, b: Floats, arch: Arch) -> Tolerance:
    """The error of the sums of products, before anything is stored."""
    terms, product = compute_gemm_sizes(problem).k, partial(compute_convolution, problem)
    bound = compute_sum_error(
        compute_magnitudes(product, a, b, terms), terms, config.dtype_acc, arch, whole=has_only_integers(a, b)
    )
    return bound + compute_flush_error(product, (a, b), (config.dtype_a, config.dtype_b), arch)


def _compute_parts_error(
    config: Config, problem: Problem, operands: tuple[Floats, Floats], off: Floats, name: str, arch: Arch
) -> Tolerance:
    """The error of storing and adding the parts of a split sum in a type, if their own errors are up to `off`."""
    if problem.direction != BACKWARD_WEIGHT:
        raise InvalidValueError(
            f"k_batch is {problem.k_batch}, but only sums of {BACKWARD_WEIGHT} are split, not those of "
            f"{problem.direction}: use k_batch 1"
        )
    largest, together = _compute_reach(problem, *operands, config.mma.k)
    whole = (off == 0) & has_only_integers(*operands)
    count = problem.k_batch
    each = (
        make_exact_tolerance(off)
        if name == config.dtype_acc
        else compute_rounding_error(largest + off, name, arch, exact=whole)
    )
    reach = together + off + count * each.limit
    growth = compute_add_error(reach, count, name, arch, exact=whole).limit
    return repeat_error(each, count, name) + compute_add_error(reach + growth, count, name, arch, exact=whole)


def _compute_reach(problem: Problem, grad: Floats, image: Floats, step: int) -> tuple[Floats, Floats]:
    """R and the bound for Σ|part| of each weight, see above. Parts consist of steps of `step` positions."""
    rows = _split_steps(group_positions(grad), step).swapaxes(-1, -2)
    c, k = problem.group_channels
    largest = np.zeros((problem.g, k, math.prod(problem.filter_size), c))
    together = np.zeros_like(largest)
    for taps, seen in iterate_windows(problem, image):
        steps = multiply_matrices(rows, _split_steps(seen, step)).reshape(problem.g, -1, k, seen.shape[2])
        sums = np.cumsum(steps, axis=1)
        spread = np.maximum(sums.max(axis=1), 0.0) - np.minimum(sums.min(axis=1), 0.0)
        reach = np.minimum(problem.k_batch * spread, np.abs(steps).sum(axis=1))
        largest[:, :, taps], together[:, :, taps] = (each.reshape(problem.g, k, -1, c) for each in (spread, reach))
    shape = (problem.g, k, *problem.filter_size, c)
    return largest.reshape(shape), together.reshape(shape)


def _split_steps(values: Floats, step: int) -> Floats:
    """(g, positions, channels) as (g · steps, positions of a step, channels), the last step padded with zeros."""
    filled = np.pad(values, [(0, 0), (0, -values.shape[1] % step), (0, 0)])
    return filled.reshape(-1, step, values.shape[2])
