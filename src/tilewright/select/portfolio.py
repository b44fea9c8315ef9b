"""Portfolios: small sets of kernels that are worth building for given problems.

The efficiency of a kernel for a problem is the best time of all kernels divided by this kernel's time; it is 0 if the
kernel does not support the problem. The value of a portfolio is the mean efficiency of its best kernel for each
problem, so kernels for problems that no other kernel supports are chosen early. Finding the best set of a given size is
hard. Repeatedly adding the kernel with the largest gain is close: gains have diminishing returns, so the greedy choice
reaches at least 1 − 1/e of the optimum (Nemhauser, Wolsey and Fisher, 1978).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.base.events import report_task
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.select.chain import estimate_times
from tilewright.select.select import CandidatePool

Matrix = NDArray[np.float64]

# Smaller gains are rounding errors.
NOTHING = 1e-12
# Kernels that are evaluated at once: enough to be fast, few enough to stop early.
_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Portfolio:
    """Kernels by their column, the most useful first, and the results of the first one, two, … of them.

    `coverage` is the mean efficiency over the problems that any kernel supports, `low` the efficiency that nine of ten
    problems reach (P10), `supported` the share of problems that a chosen kernel supports.
    """

    order: tuple[int, ...]
    coverage: tuple[float, ...]
    low: tuple[float, ...]
    supported: tuple[float, ...]


def choose_portfolio(times: ArrayLike, keep: int, weights: ArrayLike | None = None, *, swap: bool = True) -> Portfolio:
    """Choose the `keep` kernels with the highest coverage, or fewer if more add nothing.

    `times` has a row for each problem and a column for each kernel, nan if the kernel does not support the problem.
    `weights` has a weight for each problem; by default all are equal. Of kernels with equal gain the first is chosen.
    With `swap`, each chosen kernel is then exchanged once for another if that improves the whole set.
    """
    matrix, share = _check_inputs(times, weights)
    kernels = matrix.shape[1]
    if not 1 <= keep <= kernels:
        raise InvalidValueError(f"cannot keep {keep:,} of {kernels:,} kernels: keep at least 1, at most {kernels:,}")
    rows = _compute_efficiency(matrix)
    order = _choose_greedily(rows, share, range(kernels), keep)
    if swap:
        # A swapped-in kernel may be more useful than those before it.
        order = _choose_greedily(rows, share, sorted(_swap_kernels(rows, share, order)), keep)
    return evaluate_portfolio(matrix, order, weights)


def evaluate_portfolio(times: ArrayLike, order: Sequence[int], weights: ArrayLike | None = None) -> Portfolio:
    """Evaluate kernels in this order on problems, which may differ from those that they were chosen for."""
    matrix, share = _check_inputs(times, weights)
    reached = np.maximum.accumulate(_compute_efficiency(matrix)[list(order)], axis=0)
    return Portfolio(
        tuple(int(index) for index in order),
        tuple((reached * share).sum(axis=1).tolist()),
        tuple(np.percentile(reached[:, share > 0], 10, axis=1).tolist()),
        tuple(((reached > 0) * share).sum(axis=1).tolist()),
    )


def _check_inputs(times: ArrayLike, weights: ArrayLike | None) -> tuple[Matrix, Matrix]:
    """The matrix, and the weight of each problem: their sum is 1, and problems that no kernel supports have 0."""
    matrix = np.asarray(times, dtype=np.float64)
    if matrix.ndim != 2 or not matrix.size:
        raise InvalidValueError(f"times must be a matrix of problems × kernels, got one of shape {matrix.shape}")
    if not np.all(np.isnan(matrix) | (np.isfinite(matrix) & (matrix > 0))):
        raise InvalidValueError("times must be above zero, or nan if a kernel does not support a problem")
    share = np.ones(len(matrix)) if weights is None else np.asarray(weights, dtype=np.float64)
    if share.shape != (len(matrix),) or not np.all(np.isfinite(share) & (share >= 0)):
        raise InvalidValueError(f"weights must be {len(matrix):,} numbers of at least zero, one for each problem")
    share = np.where(np.isnan(matrix).all(axis=1), 0.0, share)
    if not share.sum():
        raise InvalidValueError(f"none of the {matrix.shape[1]:,} kernels supports a problem with a weight above zero")
    return matrix, share / share.sum()


def _compute_efficiency(matrix: Matrix) -> Matrix:
    """Efficiency, kernels × problems, with each kernel's values contiguous in memory."""
    shortest = np.where(np.isnan(matrix), np.inf, matrix).min(axis=1)
    return np.ascontiguousarray(np.nan_to_num(shortest[:, None] / matrix, nan=0.0).T)


def _choose_greedily(rows: Matrix, share: Matrix, among: Sequence[int], keep: int) -> list[int]:
    """Choose kernels of `among`, each with the largest gain over those before it."""
    left = np.asarray(among, dtype=np.int64)
    # The gain of a kernel never grows, so an earlier gain is a bound, and most kernels need not be evaluated.
    bounds = np.full(len(left), np.inf)
    reached = np.zeros(rows.shape[1])
    order: list[int] = []
    while len(order) < keep and len(left):
        place, gain = _find_best_addition(rows, share, reached, left, bounds)
        if gain <= NOTHING:
            break
        order.append(int(left[place]))
        left, bounds = np.delete(left, place), np.delete(bounds, place)
        reached = np.maximum(reached, rows[order[-1]])
    return order


def _find_best_addition(
    rows: Matrix, share: Matrix, reached: Matrix, left: NDArray[np.int64], bounds: Matrix
) -> tuple[int, float]:
    """The index in `left` of the kernel with the largest gain, the first of equals, and its gain; updates `bounds`."""
    best, gain = 0, 0.0
    by_bound = np.argsort(-bounds, kind="stable")
    for start in range(0, len(by_bound), _AT_ONCE):
        part = by_bound[start : start + _AT_ONCE]
        if bounds[part[0]] < gain - NOTHING:
            break
        # Sums along rows are identical for equal rows; those of a matrix product may differ.
        bounds[part] = (np.maximum(rows[left[part]] - reached, 0.0) * share).sum(axis=1)
        top = float(bounds[part].max())
        first = int(part[bounds[part] == top].min())
        if top > gain or (top == gain and first < best):
            best, gain = first, top
    return best, gain


def _swap_kernels(rows: Matrix, share: Matrix, order: Sequence[int]) -> list[int]:
    """Try to exchange each kernel once, the last first."""
    kept = list(order)
    for place in reversed(range(len(kept))):
        others = kept[:place] + kept[place + 1 :]
        reached = rows[others].max(axis=0) if others else np.zeros(rows.shape[1])
        mine = float((np.maximum(rows[kept[place]] - reached, 0.0) * share).sum())
        found, gain = _find_best_addition(rows, share, reached, np.arange(len(rows)), np.full(len(rows), np.inf))
        if gain > mine + NOTHING:
            kept[place] = found
    return kept


def predict_times(op: Op, arch: Arch, kernels: Sequence[Kernel], problems: Sequence[Any]) -> Matrix:
    """Estimated microseconds, problems × kernels; nan if a kernel does not support the unpadded problem."""
    if op.cost is None:
        raise InvalidValueError(f"{op.name} has no time estimates: use measured times")
    if not kernels:
        raise InvalidValueError(f"there are no {op.name} kernels to estimate: pass at least one")
    pool = CandidatePool.create(arch, kernels)
    times = np.full((len(problems), len(kernels)), np.nan)
    known: dict[Any, int] = {}  # a list may name a problem more than once
    with report_task("estimating", len(problems)) as advance:
        for row, problem in enumerate(problems):
            part = pool.get_candidates(problem)
            assert part is not None, "problems and kernels are of one op"
            if problem in known:
                times[row] = times[known[problem]]
            elif places := part.find_supporting(problem):
                times[row, places] = estimate_times(part, problem, places)
            known.setdefault(problem, row)
            advance()
    return times
