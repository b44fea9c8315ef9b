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
    added,
    all_whole,
    exactly,
    flushed,
    repeated,
    rounded,
    sizes_of,
    stored,
    summed,
    wide,
)
from tilewright.ops.grouped_conv.config import BACKWARD_WEIGHT, Config
from tilewright.ops.grouped_conv.gemm_sizes import gemm_sizes
from tilewright.ops.grouped_conv.implicit_gemm import ImplicitGemm
from tilewright.ops.grouped_conv.problem import Problem
from tilewright.ops.grouped_conv.reference import by_group, convolved, multiplied, windows
from tilewright.ops.grouped_conv.tensors import tensors
from tilewright.ops.tolerance import Tolerance


def tolerance(
    config: Config,
    problem: Problem,
    inputs: Mapping[str, NDArray[Any]],
    reference: Mapping[str, NDArray[Any]],
    arch: Arch,
) -> dict[str, Tolerance]:
    """The allowed error of each element of the result."""
    first, second, output = tensors(problem)
    exact = wide(reference[output.name])
    if is_integer(config.dtype_acc):
        return {output.name: exactly(exact)}
    a, b = wide(inputs[first.name]), wide(inputs[second.name])
    off, computed = _summation(config, problem, a, b, arch), config.dtype_acc
    if problem.k_batch > 1:
        computed = ImplicitGemm(config).dtype_c  # the type of stored parts
        off = off + _parts(config, problem, (a, b), off.limit, computed, arch)
    return {output.name: off + stored(exact, off, config.dtype_c, computed, arch)}


def tolerance_basis(config: Config, problem: Problem) -> Hashable:
    """The part of a config that the tolerance depends on: types, and for split sums the stored type and the step."""
    split = (ImplicitGemm(config).dtype_c, config.mma.k) if problem.k_batch > 1 else ()
    return config.dtype_a, config.dtype_b, config.dtype_c, config.dtype_acc, split


def _summation(config: Config, problem: Problem, a: Floats, b: Floats, arch: Arch) -> Tolerance:
    """The error of the sums of products, before anything is stored."""
    terms, product = gemm_sizes(problem).k, partial(convolved, problem)
    bound = summed(sizes_of(product, a, b, terms), terms, config.dtype_acc, arch, whole=all_whole(a, b))
    return bound + flushed(product, (a, b), (config.dtype_a, config.dtype_b), arch)


def _parts(
    config: Config, problem: Problem, operands: tuple[Floats, Floats], off: Floats, name: str, arch: Arch
) -> Tolerance:
    """The error of storing and adding the parts of a split sum in a type, if their own errors are up to `off`."""
    if problem.direction != BACKWARD_WEIGHT:
        raise InvalidValueError(
            f"k_batch is {problem.k_batch}, but only sums of {BACKWARD_WEIGHT} are split, not those of "
            f"{problem.direction}: use k_batch 1"
        )
    largest, together = _reach(problem, *operands, config.mma.k)
    whole = (off == 0) & all_whole(*operands)
    count = problem.k_batch
    each = exactly(off) if name == config.dtype_acc else rounded(largest + off, name, arch, exact=whole)
    reach = together + off + count * each.limit
    growth = added(reach, count, name, arch, exact=whole).limit
    return repeated(each, count, name) + added(reach + growth, count, name, arch, exact=whole)


def _reach(problem: Problem, grad: Floats, image: Floats, step: int) -> tuple[Floats, Floats]:
    """R and the bound for Σ|part| of each weight, see above. Parts consist of steps of `step` positions."""
    rows = _steps(by_group(grad), step).swapaxes(-1, -2)
    c, k = problem.group_channels
    largest = np.zeros((problem.g, k, math.prod(problem.filter_size), c))
    together = np.zeros_like(largest)
    for taps, seen in windows(problem, image):
        steps = multiplied(rows, _steps(seen, step)).reshape(problem.g, -1, k, seen.shape[2])
        sums = np.cumsum(steps, axis=1)
        spread = np.maximum(sums.max(axis=1), 0.0) - np.minimum(sums.min(axis=1), 0.0)
        reach = np.minimum(problem.k_batch * spread, np.abs(steps).sum(axis=1))
        largest[:, :, taps], together[:, :, taps] = (each.reshape(problem.g, k, -1, c) for each in (spread, reach))
    shape = (problem.g, k, *problem.filter_size, c)
    return largest.reshape(shape), together.reshape(shape)


def _steps(values: Floats, step: int) -> Floats:
    """(g, positions, channels) as (g · steps, positions of a step, channels), the last step padded with zeros."""
    filled = np.pad(values, [(0, 0), (0, -values.shape[1] % step), (0, 0)])
    return filled.reshape(-1, step, values.shape[2])
