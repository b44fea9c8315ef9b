"""M, N and K of the GEMM inside a convolution, for one group."""

from __future__ import annotations

import math
from typing import NamedTuple

from tilewright.ops.grouped_conv.config import BACKWARD_DATA, FORWARD
from tilewright.ops.grouped_conv.problem import Problem


class GemmSizes(NamedTuple):
    """Sizes of an implicit GEMM. `k` is the number of products that are summed for each element of the result."""

    m: int
    n: int
    k: int


def compute_gemm_sizes(problem: Problem) -> GemmSizes:
    """The GEMM of one group, as in the table in `implicit_gemm`.

    The gradient of the input is computed in several GEMMs if the stride is above 1. These are the sizes of all of them
    together: every element is a sum of at most `k` products.
    """
    c, k = problem.group_channels
    taps = math.prod(problem.filter_size)
    outputs = problem.n * math.prod(problem.output_size)
    if problem.direction == FORWARD:
        return GemmSizes(outputs, k, taps * c)
    if problem.direction == BACKWARD_DATA:
        return GemmSizes(problem.n * math.prod(problem.input_size), c, taps * k)
    return GemmSizes(k, taps * c, outputs)
