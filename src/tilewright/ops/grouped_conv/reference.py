"""What a convolution's result should be, and inputs to try it with.

Imports NumPy: import this module only where arrays are at hand.

An output at position p is the sum over filter taps t of input[p · stride + t · dilation] · weight[t], in the input with
its pads. So a convolution is one small matrix product per tap and group, over all positions at once. The gradients are
its transposes: by the input, each tap adds what it read back where it read it; by the weights, each tap multiplies
what it read with the gradient of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats, is_integer
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.draw import WHOLE_NUMBERS, drawn, small_numbers
from tilewright.ops.block_gemm.rounding import wide
from tilewright.ops.grouped_conv.config import BACKWARD_DATA, BACKWARD_WEIGHT, FORWARD
from tilewright.ops.grouped_conv.gemm_sizes import gemm_sizes
from tilewright.ops.grouped_conv.problem import Problem
from tilewright.ops.grouped_conv.tensors import tensors
from tilewright.ops.grouped_conv.wide_inputs import put_wide_numbers


def inputs(problem: Problem, seed: int, arch: Arch) -> dict[str, NDArray[Any]]:
    """Inputs by name, as NumPy arrays in the GPU's encoding; the same for the same seed.

    Seed 0 gives whole numbers: their sums are exact, so that a kernel's result is either right or wrong. Other seeds
    give normally distributed numbers.
    """
    sizes = gemm_sizes(problem)
    generator = np.random.default_rng([seed, problem.g, *sizes])
    types = (problem.dtype_a, problem.dtype_b, problem.dtype_c)
    small = small_numbers(types, sizes.k, arch, problem.k_batch)
    made = {t.name: drawn(generator, t, seed, small, arch) for t in tensors(problem) if not t.output}
    if seed == WHOLE_NUMBERS and not is_integer(problem.dtype_a):
        a, b = made.values()
        put_wide_numbers(generator, problem, a, b, arch)
    return made


def reference(problem: Problem, given: Mapping[str, NDArray[Any]], arch: Arch) -> dict[str, NDArray[Any]]:  # noqa: ARG001
    """The output by name in float64, from logical arrays by name. Nothing is rounded to the output's type."""
    first, second, output = tensors(problem)
    return {output.name: convolved(problem, wide(given[first.name]), wide(given[second.name]))}


def convolved(problem: Problem, a: NDArray[Any], b: NDArray[Any]) -> Floats:
    """The result of a problem from its A and B, in the order of `tensors`, multiplied in their type."""
    return _DIRECTIONS[problem.direction](problem, a, b)


def _forward(problem: Problem, image: Floats, weight: Floats) -> Floats:
    output = np.zeros((problem.g, _positions(problem), problem.group_channels[1]))
    for tap, seen in windows(problem, image):
        output += seen @ weight[inner(tap)].swapaxes(1, 2)
    return _by_position(output, (problem.n, *problem.output_size))


def _backward_data(problem: Problem, grad: Floats, weight: Floats) -> Floats:
    c = problem.group_channels[0]
    rows = by_group(grad)
    image = np.zeros((problem.g, problem.n, *problem.padded_size, c))
    for tap, place in _taps(problem):
        seen = image[inner(place)]
        seen += (rows @ weight[inner(tap)]).reshape(seen.shape)
    unpadded = [slice(left, left + size) for left, size in zip(problem.left_pad, problem.input_size, strict=True)]
    return np.ascontiguousarray(np.moveaxis(image[inner(unpadded)], 0, -2))


def _backward_weight(problem: Problem, grad: Floats, image: Floats) -> Floats:
    c, k = problem.group_channels
    columns = by_group(grad).swapaxes(1, 2)
    weight = np.zeros((problem.g, k, *problem.filter_size, c))
    for tap, seen in windows(problem, image):
        weight[inner(tap)] = columns @ seen
    return weight


_DIRECTIONS: Mapping[str, Callable[[Problem, Floats, Floats], Floats]] = {
    FORWARD: _forward,
    BACKWARD_DATA: _backward_data,
    BACKWARD_WEIGHT: _backward_weight,
}


def windows(problem: Problem, image: Floats) -> Iterator[tuple[tuple[int, ...], Floats]]:
    """For each filter tap what it reads for every output: (groups, positions, channels), positions in their order."""
    pads = zip(problem.left_pad, problem.right_pad, strict=True)
    padded = np.pad(np.moveaxis(image, -2, 0), [(0, 0), (0, 0), *pads, (0, 0)])
    for tap, place in _taps(problem):
        yield tap, padded[inner(place)].reshape(problem.g, -1, problem.group_channels[0])


def _taps(problem: Problem) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Every filter tap, and the part of the padded input that it reads."""
    for tap in np.ndindex(*problem.filter_size):
        starts = [i * step for i, step in zip(tap, problem.dilation, strict=True)]
        ends = zip(starts, problem.output_size, problem.stride, strict=True)
        yield tap, tuple(slice(start, start + (size - 1) * step + 1, step) for start, size, step in ends)


def inner(place: Iterable[int | slice]) -> tuple[Any, ...]:
    """The index of a place in the spatial dimensions, behind two others."""
    return (slice(None), slice(None), *place)


def by_group(values: Floats) -> Floats:
    """(n, …, g, channels) as (g, positions, channels)."""
    g, channels = values.shape[-2:]
    return np.ascontiguousarray(values.reshape(-1, g, channels).swapaxes(0, 1))


def _by_position(values: Floats, shape: tuple[int, ...]) -> Floats:
    """The inverse of `by_group`."""
    g, _, channels = values.shape
    return np.ascontiguousarray(values.swapaxes(0, 1)).reshape(*shape, g, channels)


def _positions(problem: Problem) -> int:
    return problem.n * int(np.prod(problem.output_size))
