"""Numbers to try a kernel with.

Imports NumPy: import this module only where arrays are at hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import format_of, is_integer, numpy_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.execution import Tensor

# Whole numbers that fp32 sums exactly in any order, with a margin for partial sums.
EXACT_SUM = 2**23
WHOLE_NUMBERS = 0  # the seed that asks for them


def drawn(generator: np.random.Generator, tensor: Tensor, seed: int, most: int, arch: Arch) -> NDArray[Any]:
    """Values of a tensor in the GPU's encoding: whole numbers up to `most` for seed 0, else normally distributed.

    Integers are always whole numbers up to `most`.
    """
    if seed == WHOLE_NUMBERS or is_integer(tensor.dtype):
        values: NDArray[Any] = generator.integers(-most, most, tensor.shape, endpoint=True)
    else:
        values = generator.standard_normal(tensor.shape)
    return values.astype(numpy_dtype(tensor.dtype, arch))


def largest_factor(dtypes: tuple[str, str, str], terms: int, arch: Arch, parts: int = 1) -> int:
    """The largest whole number to draw for A and B, so that sums of `terms` products are exact in C.

    With several parts, the sum of their absolute values should be, too.
    """
    dtype_a, dtype_b, dtype_c = dtypes
    if is_integer(dtype_a):
        return 127
    # A sum of k products of numbers up to r has a deviation of about sqrt(k) · r² / 3. Four of them should be
    # within the whole numbers of C's type, and all sums within those of fp32.
    held = EXACT_SUM if is_integer(dtype_c) else min(format_of(dtype_c, arch).integers, EXACT_SUM)
    typical = int((held / (4 / 3 * terms**0.5) / parts) ** 0.5)
    certain = int((EXACT_SUM / terms) ** 0.5)
    exact = min(format_of(kind, arch).integers for kind in (dtype_a, dtype_b))
    return max(1, min(typical, certain, exact))
