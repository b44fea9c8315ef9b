"""Random inputs of convolutions.

Imports NumPy: import this module only where arrays are used.

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

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import is_integer
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
from tilewright.ops.grouped_conv.implicit_gemm import compute_gemm_sizes
from tilewright.ops.grouped_conv.kind import find_kind
from tilewright.ops.grouped_conv.problem import Problem
from tilewright.ops.grouped_conv.tensors import list_tensors


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
        find_kind(problem).put_wide_numbers(generator, problem, a, b, arch)
    return made


# The axes of the channels in the weights (g, k, *filter, c).
_AXES = {"c": -1, "k": 1}


def put_in_channels(
    generator: np.random.Generator, problem: Problem, a: NDArray[Any], b: NDArray[Any], arch: Arch
) -> None:
    """Put wide numbers into one channel of A and another of the weights. Does nothing if there are too few."""
    summed = find_kind(problem).summed_channels
    (column,) = set(_AXES) - {summed}
    # By summed channel: (channel, n, *size, g) and (channel, g, column, *filter).
    a, weight = np.moveaxis(a, -1, 0), np.moveaxis(b, (_AXES[summed], 0, _AXES[column]), (0, 1, 2))
    if len(weight) < LEAST_TERMS:
        return
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


def put_in_positions(
    generator: np.random.Generator, problem: Problem, grad: NDArray[Any], image: NDArray[Any], arch: Arch
) -> None:
    """Put wide numbers into one position of both operands. Does nothing if there are too few terms or channels."""
    if compute_gemm_sizes(problem).k < LEAST_TERMS or min(problem.group_channels) <= 2:
        return
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
