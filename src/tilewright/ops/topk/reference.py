"""Random inputs of a top-k, its reference outputs, the allowed error of each element, and problems to try.

Imports NumPy: import this module only where arrays are used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats, find_largest, to_numpy_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.rounding import to_float64
from tilewright.ops.rule import is_legal
from tilewright.ops.tolerance import Tolerance
from tilewright.ops.topk.config import Config, count_lanes, count_rows, get_common_fields
from tilewright.ops.topk.problem import Problem
from tilewright.ops.topk.rules import FIT_RULES

U = 2.0**-24  # the rounding error of fp32
SMALLEST_NORMAL = 2.0**-126  # of fp32: kernels may have 0 for smaller weights
# Logits are multiples of 1/64 up to 8: fp32 has their differences exactly.
STEPS, LARGEST = 64, 8
# In fp32, exponentials overflow above 88.7 and are 0 below -103.3, and different logits have equal weights.
EXTREME = 200


def make_inputs(problem: Problem, seed: int, arch: Arch) -> dict[str, NDArray[Any]]:
    """Logits. Those of seed 0 are whole numbers, so that many of a row are equal. Of ten rows, eight are extreme."""
    generator = np.random.default_rng([seed, problem.rows, problem.experts, problem.k])
    step = 1 if seed == 0 else STEPS
    values = generator.integers(-LARGEST * step, LARGEST * step + 1, (problem.rows, problem.experts)) / step
    few = generator.random(values.shape) < 0.2
    one = int(generator.integers(problem.experts))
    kinds = (slice(kind, None, 10) for kind in range(1, 10))
    negative, large, outlier, some_nan, all_nan, infinite, few_left, masked, limits = kinds
    # Lanes without an element must lose against negative logits, too. Sigmoid of 0 in their place would be 0.5.
    values[negative] = -np.maximum(np.abs(values[negative]), 1 / step)
    values[large] *= EXTREME / LARGEST
    values[outlier] -= EXTREME
    values[outlier, one] = EXTREME
    values[some_nan][few[some_nan]] = np.nan
    values[all_nan] = np.nan
    values[infinite] = np.copysign(np.where(few[infinite], np.inf, values[infinite]), values[infinite])
    values[few_left][~few[few_left]] = -np.inf
    values[masked] = -np.inf
    values[limits] = np.copysign(find_largest(problem.dtype, arch), values[limits])
    return {"x": values.astype(to_numpy_dtype(problem.dtype, arch))}


def compute_reference(problem: Problem, given: Mapping[str, NDArray[Any]], arch: Arch) -> dict[str, Floats]:  # noqa: ARG001
    """Weights in float64 and the exact indices. Both activations grow with x, so that x itself is compared.

    NaN is the largest logit, as for torch. A row with NaN or +infinity, or with nothing but -infinity, has no softmax.
    """
    x = to_float64(given["x"])
    missing = np.isnan(x)
    indices = np.lexsort((np.where(missing, 0, -x), ~missing), axis=1)[:, : problem.k]
    with np.errstate(over="ignore", invalid="ignore"):
        if problem.activation == "sigmoid":
            weights = 1 / (1 + np.exp(-x))
        else:
            exponentials = np.exp(x - x.max(axis=1, keepdims=True))
            weights = exponentials / exponentials.sum(axis=1, keepdims=True)
    return {"weights": np.take_along_axis(weights, indices, axis=1), "indices": indices.astype(np.float64)}


def compute_tolerance(
    config: Config,
    problem: Problem,
    inputs: Mapping[str, NDArray[Any]],
    reference: Mapping[str, NDArray[Any]],
    arch: Arch,
) -> dict[str, Tolerance]:
    """The allowed error of each element: none of indices, and of weights that are NaN; others are computed in fp32.

    An exponential has the error of its argument, which is multiplied by log2(e), and three roundings. A sum has the
    mean error of its terms, and one for each step: the elements of a lane, then the halvings of lanes.
    """
    x, weights = to_float64(inputs["x"]), to_float64(reference["weights"])
    indices = to_float64(reference["indices"]).astype(np.int64)
    if problem.activation == "sigmoid":
        chosen = np.nan_to_num(np.take_along_axis(x, indices, axis=1))
        # exp(-x), which is a part 1 - weight of the sum, the sum and the quotient.
        factors = [(1 - weights) * (np.abs(chosen) + 3) + 4] * 2
    else:
        with np.errstate(invalid="ignore"):
            below = np.nan_to_num(x.max(axis=1, keepdims=True) - x)
        whole = np.exp(-below)
        of_sum = (whole * (below + 3)).sum(axis=1, keepdims=True) / whole.sum(axis=1, keepdims=True)
        chosen = np.take_along_axis(below, indices, axis=1)
        steps = config.experts / count_lanes(config, arch) + math.log2(arch.wave_size)
        # The exponentials, the sum and the quotient.
        factors = [chosen + 3 + of_sum + count + 4 for count in (steps, math.sqrt(steps))]
    limits, deviations = (np.where(np.isnan(weights), 0, weights * U * each + SMALLEST_NORMAL) for each in factors)
    exact = np.zeros_like(weights)
    return {"weights": Tolerance(limits, deviations), "indices": Tolerance(exact, exact)}


def list_trials(config: Config, arch: Arch) -> tuple[Problem, ...]:
    """Problems at the edges of a kernel: one row, more and fewer than a work-group has, short rows, one result, all,
    many work-groups."""
    whole, vector, rows = config.experts, config.vector, count_rows(config, arch)
    sizes = (
        (rows + 1, whole, min(8, whole), 0),
        (1, whole, 1, 0),
        (3, whole - vector, min(4, whole - vector), vector),
        (rows - 1, vector, vector, 3 * vector),
        (2 * rows + 3, whole // 2 + vector, 2, 0),
        (2, min(whole, 64), min(whole, 64), 0),
        (11 * rows, min(whole, 7 * vector), 1, 0),
        (20, min(whole - vector, 12 * vector), min(whole - vector, 12 * vector), 0),
    )
    found = [
        Problem(**get_common_fields(config), rows=count, experts=experts, k=k, stride_x=experts + gap)
        for count, experts, k, gap in sizes
        if count > 0 and 0 < k <= experts
    ]
    return tuple(problem for problem in found if is_legal(FIT_RULES, config, problem, arch))
