"""Reference results of convolutions, and the allowed error of each element.

Imports NumPy: import this module only where arrays are used.

An output at position p is the sum over filter taps t of input[p · stride + t · dilation] · weight[t], in the padded
input. So a convolution is a matrix product of the elements that all taps read with their weights, for each group. The
gradients are its transposes: for the input gradient, each tap adds its products to the elements that it read; for the
weight gradient, the elements that the taps read are multiplied by the gradient of the output.

**Allowed errors.** Each element is a sum of products, summed and stored as described in `block_gemm.rounding`; the sum
of absolute products is the same convolution of absolute values. Positions in the padding add zeros, which are exact.

Parts of a weight gradient (split-K) are added atomically: in C's type, or in fp32 if a second kernel converts them
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

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats, is_integer
from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.ops.block_gemm.matrix_product import multiply_matrices
from tilewright.ops.block_gemm.rounding import (
    add_store_error,
    compute_add_error,
    compute_flush_error,
    compute_product_error,
    compute_rounding_error,
    has_only_integers,
    make_exact_tolerance,
    repeat_error,
    to_float64,
)
from tilewright.ops.grouped_conv.config import Config
from tilewright.ops.grouped_conv.implicit_gemm import ImplicitGemm, compute_gemm_sizes
from tilewright.ops.grouped_conv.kind import find_kind
from tilewright.ops.grouped_conv.kinds import KINDS
from tilewright.ops.grouped_conv.problem import Problem
from tilewright.ops.grouped_conv.tensors import list_tensors
from tilewright.ops.tolerance import Tolerance

# Elements of the windows that are copied at once: 32 MB in float64. Taps of larger problems are processed one by one.
AT_ONCE = 1 << 22


def compute_reference(problem: Problem, given: Mapping[str, NDArray[Any]], arch: Arch) -> dict[str, NDArray[Any]]:  # noqa: ARG001
    """The output by name in float64, from logical arrays by name. Nothing is rounded to the output's type."""
    first, second, output = list_tensors(problem)
    return {output.name: compute_convolution(problem, to_float64(given[first.name]), to_float64(given[second.name]))}


def compute_convolution(problem: Problem, a: NDArray[Any], b: NDArray[Any]) -> Floats:
    """The result of a problem from its A and B, in the order of `list_tensors`, computed in their type."""
    result: Floats = find_kind(problem).reference(problem, a, b)
    return result


def compute_forward(problem: Problem, image: Floats, weight: Floats) -> Floats:
    c, k = problem.group_channels
    columns = weight.reshape(problem.g, k, -1, c)
    output = np.zeros((problem.g, _count_positions(problem), k))
    for taps, seen in iterate_windows(problem, image):
        output += multiply_matrices(seen, columns[:, :, taps].reshape(problem.g, k, -1).swapaxes(1, 2))
    return _join_groups(output, (problem.n, *problem.output_size))


def compute_backward_data(problem: Problem, grad: Floats, weight: Floats) -> Floats:
    c, k = problem.group_channels
    rows, columns = group_positions(grad), weight.reshape(problem.g, k, -1, c)
    image = np.zeros((problem.g, problem.n, *problem.padded_size, c))
    places = _list_tap_slices(problem)
    for taps in _split_taps(problem, c):
        added = multiply_matrices(rows, columns[:, :, taps].reshape(problem.g, k, -1))
        added = added.reshape(problem.g, len(rows[0]), -1, c)
        for number, place in enumerate(places[taps]):
            seen = image[place]
            seen += added[:, :, number].reshape(seen.shape)
    return np.ascontiguousarray(np.moveaxis(image[_unpadded_slices(problem)], 0, -2))


def compute_backward_weight(problem: Problem, grad: Floats, image: Floats) -> Floats:
    c, k = problem.group_channels
    columns = group_positions(grad).swapaxes(1, 2)
    weight = np.zeros((problem.g, k, math.prod(problem.filter_size), c))
    for taps, seen in iterate_windows(problem, image):
        weight[:, :, taps] = multiply_matrices(columns, seen).reshape(problem.g, k, -1, c)
    return weight.reshape(problem.g, k, *problem.filter_size, c)


def iterate_windows(problem: Problem, image: Floats) -> Iterator[tuple[slice, Floats]]:
    """The elements that filter taps read for every output, all at once or one by one: (groups, positions, taps and
    channels).

    Positions and taps are in their order. The slice selects the taps.
    """
    c = problem.group_channels[0]
    padded = np.zeros((problem.g, problem.n, *problem.padded_size, c), image.dtype)
    padded[_unpadded_slices(problem)] = np.moveaxis(image, -2, 0)
    groups, images, *along, channels = padded.strides
    steps = [size * step for size, step in zip(along, problem.stride, strict=True)]
    apart = [size * step for size, step in zip(along, problem.dilation, strict=True)]
    shape = (problem.g, problem.n, *problem.output_size, *problem.filter_size, c)
    seen = as_strided(padded, shape, (groups, images, *steps, *apart, channels), writeable=False)
    for taps in _split_taps(problem, c):
        one = taps.stop - taps.start == 1
        tap = np.unravel_index(taps.start, problem.filter_size) if one else (slice(None),) * problem.ndim
        yield taps, seen[(..., *tap, slice(None))].reshape(problem.g, _count_positions(problem), -1)


def _split_taps(problem: Problem, channels: int) -> Iterator[slice]:
    """Filter taps that are computed at once: all if they are small, because few matrix products are fast."""
    taps = math.prod(problem.filter_size)
    step = taps if taps * problem.g * _count_positions(problem) * channels <= AT_ONCE else 1
    return (slice(first, first + step) for first in range(0, taps, step))


def _list_tap_slices(problem: Problem) -> list[tuple[slice, ...]]:
    """For every filter tap the part of the padded input that it reads, after the dimensions of groups and images."""
    by_dimension = [
        [slice(i * apart, i * apart + (size - 1) * step + 1, step) for i in range(taps)]
        for taps, apart, size, step in zip(
            problem.filter_size, problem.dilation, problem.output_size, problem.stride, strict=True
        )
    ]
    return [(slice(None), slice(None), *place) for place in itertools.product(*by_dimension)]


def _unpadded_slices(problem: Problem) -> tuple[slice, ...]:
    """The position of the input in the padded input, after the dimensions of groups and images."""
    within = [slice(left, left + size) for left, size in zip(problem.left_pad, problem.input_size, strict=True)]
    return (slice(None), slice(None), *within)


def group_positions(values: Floats) -> Floats:
    """(n, …, g, channels) as (g, positions, channels)."""
    g, channels = values.shape[-2:]
    return np.ascontiguousarray(values.reshape(-1, g, channels).swapaxes(0, 1))


def _join_groups(values: Floats, shape: tuple[int, ...]) -> Floats:
    """The inverse of `group_positions`."""
    g, _, channels = values.shape
    return np.ascontiguousarray(values.swapaxes(0, 1)).reshape(*shape, g, channels)


def _count_positions(problem: Problem) -> int:
    return problem.n * math.prod(problem.output_size)


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
    return {output.name: add_store_error(exact, off, config.dtype_c, computed, arch)}


def tolerance_basis(config: Config, problem: Problem) -> Hashable:
    """The part of a config that the tolerance depends on: types, and for split sums the stored type and the step."""
    split = (ImplicitGemm(config).dtype_c, config.mma.k) if problem.k_batch > 1 else ()
    return config.dtype_a, config.dtype_b, config.dtype_c, config.dtype_acc, split


def _compute_sum_error(config: Config, problem: Problem, a: Floats, b: Floats, arch: Arch) -> Tolerance:
    """The error of the sums of products, before anything is stored."""
    terms, product = compute_gemm_sizes(problem).k, partial(compute_convolution, problem)
    bound = compute_product_error(product, a, b, terms, config.dtype_acc, arch)
    return bound + compute_flush_error(product, (a, b), (config.dtype_a, config.dtype_b), arch)


def _compute_parts_error(
    config: Config, problem: Problem, operands: tuple[Floats, Floats], off: Floats, name: str, arch: Arch
) -> Tolerance:
    """The error of storing and adding the parts of a split sum in a type, if their own errors are up to `off`."""
    kind = find_kind(problem)
    if not kind.has_field("split_k"):
        able = ", ".join(other.name for other in KINDS if other.has_field("split_k"))
        raise InvalidValueError(
            f"k_batch is {problem.k_batch}, but only sums of {able} are split, not those of {kind.name}: use k_batch 1"
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
