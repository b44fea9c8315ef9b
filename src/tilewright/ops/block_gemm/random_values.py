"""Random values to test a kernel with.

Imports NumPy: import this module only where arrays are used.

**Integers** have sums that are exact in any order, so that a kernel's result is either right or wrong. Most are small,
so that C's type can represent sums of many of them; if even -1, 0 and 1 are too large, more of them are 0. Small
integers are the same in a smaller type. Therefore a few are wide: odd, with the first and the last bit of their type's
significand set. A wide number is multiplied by 1, -1 and 0 only, and a sum contains at most one of them: it stays exact
and shows whether a kernel computes with fewer bits than its inputs have. If C has the type of A, one in `APART` lines
has wide numbers of A times 31: an exact sum that C cannot represent, which shows how a kernel rounds its result.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import find_format, is_integer, to_numpy_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.execution import Tensor

# Bound for integers that fp32 sums exactly in any order, with a margin for partial sums.
EXACT_SUM = 2**23
WHOLE_NUMBERS = 0  # the seed for integers
# Wide numbers replace two terms of each sum. Shorter sums would lose too much, and short sums of random numbers show a
# lost bit anyway.
LEAST_TERMS = 8
# One line in this many has a wide number in its sums, so that the others remain unchanged.
APART = 16
_FAR = 31


class SmallIntegers(NamedTuple):
    """Integers up to `most` in magnitude. The share `kept` of them is kept, the others are 0."""

    most: int
    kept: float = 1.0


def draw_values(
    generator: np.random.Generator, tensor: Tensor, seed: int, small: SmallIntegers, arch: Arch
) -> NDArray[Any]:
    """Values of a tensor in the GPU's encoding: small integers for seed 0, else normally distributed numbers.

    Integer types always have integers.
    """
    if seed == WHOLE_NUMBERS or is_integer(tensor.dtype):
        values: NDArray[Any] = generator.integers(-small.most, small.most, tensor.shape, endpoint=True)
        if small.kept < 1:
            values = np.where(generator.random(tensor.shape) < small.kept, values, 0)
    else:
        values = generator.standard_normal(tensor.shape)
    return values.astype(to_numpy_dtype(tensor.dtype, arch))


def choose_small_integers(dtypes: tuple[str, str, str], terms: int, arch: Arch, parts: int = 1) -> SmallIntegers:
    """The integers to draw for A and B, so that sums of `terms` products and a wide number are exact in C.

    With several parts, the sum of their absolute values should be exact, too.
    """
    dtype_a, dtype_b, dtype_c = dtypes
    if is_integer(dtype_a):
        return SmallIntegers(127)
    wide = max(_widest_number(dtype_a, arch), _widest_number(dtype_b, arch))
    held = 2 * EXACT_SUM if is_integer(dtype_c) else min(find_format(dtype_c, arch).integers, 2 * EXACT_SUM)
    held = min(max(held - wide, held // 8), EXACT_SUM)
    # A sum of products of numbers up to r has a deviation of sqrt(terms) · r · (r + 1) / 3. Four deviations should be
    # within the exact integers of C's type, and all sums within those of fp32.
    squares = 3 * held / (4 * terms**0.5 * parts)
    typical = int(((1 + 4 * squares) ** 0.5 - 1) / 2)
    certain = int(((2 * EXACT_SUM - wide) / 2 / terms) ** 0.5)
    exact = min(find_format(kind, arch).integers for kind in (dtype_a, dtype_b))
    return SmallIntegers(max(1, min(typical, certain, exact)), min(1.0, squares / 2))


def draw_wide_numbers(generator: np.random.Generator, shape: tuple[int, ...], name: str, arch: Arch) -> NDArray[Any]:
    """Odd numbers of either sign with as many bits as the type's precision, up to 5/4 of the smallest such number."""
    least = 2 ** (find_format(name, arch).precision - 1)
    odd = 2 * generator.integers(0, max(1, least // 8), shape) + 1
    return np.asarray((least + odd) * draw_signs(generator, shape))


def put_wide_numbers(
    generator: np.random.Generator,
    a: NDArray[Any],
    b: NDArray[Any],
    dtypes: tuple[str, str, str],
    arch: Arch,
    *,
    far: bool = True,
) -> None:
    """Put wide numbers of A into one term of the sums, and wide numbers of B into another.

    Each affects separate columns, or separate rows if there is only one column. With `far`, sums that C cannot
    represent are in a third group of columns.
    """
    (m, k), n = a.shape[-2:], b.shape[-1]
    dtype_a, dtype_b, dtype_c = dtypes
    of_a, of_b = generator.choice(k, 2, replace=False)
    by_column = n > 1
    for term, place in ((of_a, 0), (of_b, 1)):
        rows = by_column | (np.arange(m) % APART == place)
        columns = (not by_column) | (np.arange(n) % APART == place)
        a[..., :, term] = draw_signs(generator, (m,)) * rows
        b[..., term, :] = draw_signs(generator, (n,)) * columns
    factor = far_factor(dtype_a, dtype_c, n)
    if factor and far:
        b[..., of_a, 2::APART] = factor
    a[..., :, of_a] *= np.abs(draw_wide_numbers(generator, a.shape[:-1], dtype_a, arch)).astype(a.dtype)
    b[..., of_b, :] *= np.abs(draw_wide_numbers(generator, (*b.shape[:-2], n), dtype_b, arch)).astype(b.dtype)


def far_factor(dtype_a: str, dtype_c: str, lines: int) -> int:
    """The factor of wide numbers in lines that show how a sum is rounded to C; 0 if there are none."""
    return _FAR if dtype_a == dtype_c and dtype_a in ("fp16", "bf16") and lines >= APART else 0


def draw_signs(generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
    """Random 1 and -1."""
    return 1 - 2 * generator.integers(0, 2, shape)


def _widest_number(name: str, arch: Arch) -> int:
    least = int(2 ** (find_format(name, arch).precision - 1))
    return least + max(1, least // 4)
