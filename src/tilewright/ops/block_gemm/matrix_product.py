"""Matrix products of references, in parts that BLAS computes with one thread.

Imports NumPy: import this module only where arrays are used.

The threads of OpenBLAS wait busily for each other, and go on for some 30 ms after a product: one of 311x256x128, which
takes 0.6 ms with one thread, costs 11 ms of CPU time with two, and more with each further one. The trials of a kernel
are dozens of such products.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The number of multiplications up to which OpenBLAS uses one thread (SMP_THRESHOLD_MIN · GEMM_MULTITHREAD_THRESHOLD),
# the number up to which products are divided into such parts, and the depth of the parts.
ONE_THREAD, OF_TRIALS, DEPTH = 1 << 18, 1 << 28, 256


def multiply_matrices(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """a @ b of matrices, or of stacks of equally many."""
    *stack, m, k = a.shape
    n = b.shape[-1]
    if not ONE_THREAD < m * n * k <= OF_TRIALS:
        plain: NDArray[Any] = np.matmul(a, b)
        return plain
    depth = min(DEPTH, k)
    height, width = _choose_part(m, n, ONE_THREAD // depth)
    rows, columns = -(-m // height), -(-n // width)
    left = _extend(a, -2, rows * height).reshape(*a.shape[:-2], rows, 1, height, k)
    right = _extend(b, -1, columns * width).reshape(*b.shape[:-2], 1, k, columns, width).swapaxes(-2, -3)
    product = np.empty((*stack, rows * height, columns * width), np.result_type(a, b))
    parts = product.reshape(*stack, rows, height, columns, width).swapaxes(-2, -3)
    np.matmul(left[..., :depth], right[..., :depth, :], out=parts)
    for first in range(depth, k, depth):
        parts += left[..., first : first + depth] @ right[..., first : first + depth, :]
    return product[..., :m, :n]


def _choose_part(m: int, n: int, area: int) -> tuple[int, int]:
    """Rows and columns of parts of about equal sizes, at most `area` elements.

    At least two of each: for one, NumPy calls another BLAS function, which uses threads.
    """
    m, n = max(m, 2), max(n, 2)
    height = min(m, max(math.isqrt(area), area // n))
    width = min(n, area // height)
    return -(-m // -(-m // height)), -(-n // -(-n // width))


def _extend(values: NDArray[Any], axis: int, size: int) -> NDArray[Any]:
    """The values, with zeros at the end of an axis."""
    if values.shape[axis] == size:
        return values
    shape = list(values.shape)
    shape[axis] = size
    wide = np.zeros(shape, values.dtype)
    wide[tuple(map(slice, values.shape))] = values
    return wide
