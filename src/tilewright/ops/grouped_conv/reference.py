"""Reference results of convolutions, and random inputs.

Imports NumPy: import this module only where arrays are used.

An output at position p is the sum over filter taps t of input[p · stride + t · dilation] · weight[t], in the padded
input. So a convolution is a matrix product of the elements that all taps read with their weights, for each group. The
gradients are its transposes: for the input gradient, each tap adds its products to the elements that it read; for the
weight gradient, the elements that the taps read are multiplied by the gradient of the output.

Integer inputs contain wide numbers, so that a lost bit of an operand shows; see `block_gemm.random_values`. Sums of an
output, or of an input gradient, run over taps and channels. One channel of A has wide numbers; of the weights that they
are multiplied by, one tap of some columns is 1 or -1, all others are 0. Another channel has the wide numbers in the
weights.

Sums of a weight gradient run over positions. One channel of a gradient is 0 except for a wide number at one position,
where all of the image is 1, -1 or 0. One channel of the image is 1 or -1 everywhere: the weights of this pair of
channels always contain the wide number. Another pair has the wide number in the image, in another image of the batch:
wide numbers are never multiplied by each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats, is_integer
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.random_values import (
    APART,
    LEAST_TERMS,
    WHOLE_NUMBERS,
    choose_small_integers,
    draw_signs,
    draw_values,
    draw_wide_numbers,
    far_factor,
)
from tilewright.ops.block_gemm.rounding import to_float64
from tilewright.ops.grouped_conv.config import BACKWARD_DATA, BACKWARD_WEIGHT, FORWARD
from tilewright.ops.grouped_conv.gemm_sizes import compute_gemm_sizes
from tilewright.ops.grouped_conv.problem import Problem
from tilewright.ops.grouped_conv.tensors import list_tensors

# Elements of the windows that are copied at once: 32 MB in float64. Taps of larger problems are processed one by one.
AT_ONCE = 1 << 22
# The number of multiplications up to which OpenBLAS uses one thread (SMP_THRESHOLD_MIN · GEMM_MULTITHREAD_THRESHOLD),
# the number up to which products are divided into such parts, and the depth of the parts.
ONE_THREAD, OF_TRIALS, DEPTH = 1 << 18, 1 << 26, 256


def make_inputs(problem: Problem, seed: int, arch: Arch) -> dict[str, NDArray[Any]]:
    """Inputs by name, as NumPy arrays in the GPU's encoding; the same for the same seed.

    Seed 0 gives integers: their sums are exact, so that a kernel's result is either right or wrong. Other seeds give
    normally distributed numbers.
    """
    sizes = compute_gemm_sizes(problem)
    generator = np.random.default_rng([seed, problem.g, *sizes])
    types = (problem.dtype_a, problem.dtype_b, problem.dtype_c)
    small = choose_small_integers(types, sizes.k, arch, problem.k_batch)
    made = {t.name: draw_values(generator, t, seed, small, arch) for t in list_tensors(problem) if not t.output}
    if seed == WHOLE_NUMBERS and not is_integer(problem.dtype_a):
        a, b = made.values()
        put_wide_numbers(generator, problem, a, b, arch)
    return made


def compute_reference(problem: Problem, given: Mapping[str, NDArray[Any]], arch: Arch) -> dict[str, NDArray[Any]]:  # noqa: ARG001
    """The output by name in float64, from logical arrays by name. Nothing is rounded to the output's type."""
    first, second, output = list_tensors(problem)
    return {output.name: compute_convolution(problem, to_float64(given[first.name]), to_float64(given[second.name]))}


def compute_convolution(problem: Problem, a: NDArray[Any], b: NDArray[Any]) -> Floats:
    """The result of a problem from its A and B, in the order of `list_tensors`, computed in their type."""
    return _DIRECTIONS[problem.direction](problem, a, b)


def _compute_forward(problem: Problem, image: Floats, weight: Floats) -> Floats:
    c, k = problem.group_channels
    columns = weight.reshape(problem.g, k, -1, c)
    output = np.zeros((problem.g, _count_positions(problem), k))
    for taps, seen in iterate_windows(problem, image):
        output += multiply_matrices(seen, columns[:, :, taps].reshape(problem.g, k, -1).swapaxes(1, 2))
    return _join_groups(output, (problem.n, *problem.output_size))


def _compute_backward_data(problem: Problem, grad: Floats, weight: Floats) -> Floats:
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


def _compute_backward_weight(problem: Problem, grad: Floats, image: Floats) -> Floats:
    c, k = problem.group_channels
    columns = group_positions(grad).swapaxes(1, 2)
    weight = np.zeros((problem.g, k, math.prod(problem.filter_size), c))
    for taps, seen in iterate_windows(problem, image):
        weight[:, :, taps] = multiply_matrices(columns, seen).reshape(problem.g, k, -1, c)
    return weight.reshape(problem.g, k, *problem.filter_size, c)


_DIRECTIONS: Mapping[str, Callable[[Problem, Floats, Floats], Floats]] = {
    FORWARD: _compute_forward,
    BACKWARD_DATA: _compute_backward_data,
    BACKWARD_WEIGHT: _compute_backward_weight,
}


def multiply_matrices(a: Floats, b: Floats) -> Floats:
    """a @ b of stacks of matrices; in trials in parts that BLAS computes with one thread.

    With several threads BLAS busy-waits for the last one: if other processes run, a product of 1 ms takes 90 ms.
    """
    g, m, k = a.shape
    n = b.shape[2]
    if not ONE_THREAD < m * n * k <= OF_TRIALS:
        plain: Floats = np.matmul(a, b)
        return plain
    depth = min(DEPTH, k)
    parts = -(-m // max(ONE_THREAD // (depth * n), 2))
    rows, longer = divmod(m, parts)  # a remainder of one row would be another BLAS function, which uses threads
    cut = longer * (rows + 1)
    product = np.zeros((g, m, n), a.dtype)
    for first in range(0, k, depth):
        right = b[:, None, first : first + depth]
        for some, height in ((slice(cut), rows + 1), (slice(cut, m), rows)):
            left = a[:, some, first : first + depth]
            product[:, some] += (left.reshape(g, -1, height, left.shape[2]) @ right).reshape(g, -1, n)
    return product


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


def put_wide_numbers(
    generator: np.random.Generator, problem: Problem, a: NDArray[Any], b: NDArray[Any], arch: Arch
) -> None:
    """Put wide numbers into A and B. Does nothing if there are too few terms or channels."""
    if problem.direction == BACKWARD_WEIGHT:
        if compute_gemm_sizes(problem).k >= LEAST_TERMS and min(problem.group_channels) > 2:
            _put_in_positions(generator, problem, a, b, arch)
        return
    # By summed channel: (channel, n, *size, g) and (channel, g, column, *filter).
    weight = np.moveaxis(b, 1, 0) if problem.direction == BACKWARD_DATA else np.moveaxis(b, (-1, 0, 1), (0, 1, 2))
    if problem.direction == BACKWARD_DATA:  # (k, g, *filter, c)
        weight = np.moveaxis(weight, -1, 2)
    if len(weight) >= LEAST_TERMS:
        _put_in_channels(generator, problem, np.moveaxis(a, -1, 0), weight, arch)


def _put_in_channels(
    generator: np.random.Generator, problem: Problem, a: NDArray[Any], weight: NDArray[Any], arch: Arch
) -> None:
    of_a, of_b = generator.choice(len(weight), 2, replace=False)
    first, second = (tuple(int(generator.integers(size)) for size in problem.filter_size) for _ in range(2))
    a[of_a] = draw_wide_numbers(generator, a.shape[1:], problem.dtype_a, arch)
    a[of_b] = draw_signs(generator, a.shape[1:])
    weight[of_a] = weight[of_b] = 0
    met, wide = (weight[channel][:, i::APART] for i, channel in enumerate((of_a, of_b)))
    met[(..., *first)] = draw_signs(generator, met.shape[:2])
    far = far_factor(problem.dtype_a, problem.dtype_c, weight.shape[2])
    if far:
        weight[(of_a, slice(None), slice(2, None, APART), *first)] = far
    wide[(..., *second)] = draw_wide_numbers(generator, wide.shape[:2], problem.dtype_b, arch)


def _put_in_positions(
    generator: np.random.Generator, problem: Problem, grad: NDArray[Any], image: NDArray[Any], arch: Arch
) -> None:
    pairs = [(grad, image, problem.dtype_a, 0)]
    if problem.n > 1:
        pairs.append((image, grad, problem.dtype_b, problem.n - 1))
    for channel, (wide, met, dtype, number) in enumerate(pairs):
        met[number] = np.sign(met[number].astype(np.float64))
        met[..., channel] = draw_signs(generator, met.shape[:-1])
        wide[..., channel] = 0
        # In the middle, where taps do not read padding.
        at = (number, *(size // 2 for size in wide.shape[1:-2]))
        wide[(*at, slice(None), channel)] = draw_wide_numbers(generator, wide.shape[-2:-1], dtype, arch)
