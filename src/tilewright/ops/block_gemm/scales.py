"""Scales of rows and columns: random ones to test a kernel with, and the error of products with them.

Imports NumPy: import this module only where arrays are used.

A sum is multiplied by two scales in fp32, each with a rounding. Scales of seed 0 are powers of two, so that integers
remain exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats, find_format, to_numpy_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.random_values import WHOLE_NUMBERS
from tilewright.ops.block_gemm.rounding import to_float64
from tilewright.ops.execution import Tensor
from tilewright.ops.tolerance import Tolerance

U = 2.0**-24  # the rounding error of fp32
# Scales are between 1 and 2 to this power: the scale of another row gives a wrong result. Those of one element together
# are at least 2**-10, so that integers remain normal numbers of fp16, and at most 1, so that they remain finite.
LEAST_EXPONENT = -5


def draw_scales(generator: np.random.Generator, tensor: Tensor, seed: int, arch: Arch) -> NDArray[Any]:
    """Scales: powers of two for seed 0, else numbers between them."""
    exponents = generator.uniform(LEAST_EXPONENT, 0, tensor.shape)
    powers = 2.0 ** (np.rint(exponents) if seed == WHOLE_NUMBERS else exponents)
    return powers.astype(to_numpy_dtype(tensor.dtype, arch))


def multiply_scales(scale_a: NDArray[Any], scale_b: NDArray[Any]) -> Floats:
    """The factor of each element of C, from a scale for each row and one for each column."""
    return to_float64(scale_a)[:, None] * to_float64(scale_b)[None, :]


def bound_scaled_error(
    summed: Tolerance, scale_a: NDArray[Any], scale_b: NDArray[Any], exact: Floats, arch: Arch
) -> Tolerance:
    """The error of sums, `summed`, after two products with scales. `exact` are the results without errors."""
    scaled = summed.scale(np.abs(multiply_scales(scale_a, scale_b)))
    # Products with powers of two are not rounded, unless a result is below the normal numbers of fp32.
    powers = all(bool(np.all(np.frexp(to_float64(each))[0] == 0.5)) for each in (scale_a, scale_b))
    smallest = find_format("fp32", arch).smallest_normal
    rounded = np.where((exact == 0) | (powers & (np.abs(exact) > smallest)), 0.0, 2 * U * np.abs(exact) + smallest)
    return scaled + Tolerance(rounded * (1 + U) + 2 * U * scaled.limit * (not powers), rounded)
