"""Portfolios: the few of many kernels that are worth building for given problems.

The efficiency of a kernel for a problem is the best time that any kernel has for it, over this kernel's time; a kernel
that cannot compute the problem has none, 0. A portfolio is as good as the mean efficiency of its best kernel for each
problem, so kernels for problems that nothing else computes come early. To choose the best set of a given size is a
hard problem; adding the kernel that helps most, again and again, is never far off: efficiency gained has diminishing
returns, and so the greedy choice has at least 1 − 1/e of what is best (Nemhauser, Wolsey and Fisher, 1978).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilewright.base.errors import InvalidValueError

Matrix = NDArray[np.float64]

# Gains below this are rounding of sums, not gains.
NOTHING = 1e-12
# So many kernels are looked at in one go: enough to be fast, few enough to stop early.
_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Portfolio:
    """Kernels by their column, the most useful first, and what the first one, two, … of them achieve.

    `coverage` is the mean efficiency over the problems that any kernel can compute, `low` the efficiency that nine of
    ten problems reach (P10), `supported` the share of the problems that can be computed at all.
    """

    order: tuple[int, ...]
    coverage: tuple[float, ...]
    low: tuple[float, ...]
    supported: tuple[float, ...]


def choose(times: ArrayLike, keep: int, weights: ArrayLike | None = None, *, swap: bool = True) -> Portfolio:
    """The `keep` kernels that together lose least, or fewer if more would add nothing.

    `times` has a row for each problem and a column for each kernel, nan where the kernel cannot compute the problem.
    `weights` say how much each problem counts, the same for all without them. Of kernels that help equally the first
    is taken. With `swap` each chosen kernel is once exchanged for another if that is better for the whole set.
    """
    matrix, share = _checked(times, weights)
    kernels = matrix.shape[1]
    if not 1 <= keep <= kernels:
        raise InvalidValueError(f"cannot keep {keep:,} of {kernels:,} kernels: keep at least 1, at most {kernels:,}")
    rows = _efficiency(matrix)
    order = _greedy(rows, share, range(kernels), keep)
    if swap:
        # What came in by a swap may be worth more than what came first.
        order = _greedy(rows, share, sorted(_swapped(rows, share, order)), keep)
    return judge(matrix, order, weights)


def judge(times: ArrayLike, order: Sequence[int], weights: ArrayLike | None = None) -> Portfolio:
    """What kernels in this order achieve on problems, also on others than they were chosen for."""
    matrix, share = _checked(times, weights)
    reached = np.maximum.accumulate(_efficiency(matrix)[list(order)], axis=0)
    return Portfolio(
        tuple(int(index) for index in order),
        tuple((reached * share).sum(axis=1).tolist()),
        tuple(np.percentile(reached[:, share > 0], 10, axis=1).tolist()),
        tuple(((reached > 0) * share).sum(axis=1).tolist()),
    )


def _checked(times: ArrayLike, weights: ArrayLike | None) -> tuple[Matrix, Matrix]:
    """The matrix, and what each problem counts of 1: nothing where no kernel computes it."""
    matrix = np.asarray(times, dtype=np.float64)
    if matrix.ndim != 2 or not matrix.size:
        raise InvalidValueError(f"times must be a matrix of problems × kernels, got one of shape {matrix.shape}")
    if not np.all(np.isnan(matrix) | (np.isfinite(matrix) & (matrix > 0))):
        raise InvalidValueError("times must be above zero, or nan where a kernel cannot compute a problem")
    share = np.ones(len(matrix)) if weights is None else np.asarray(weights, dtype=np.float64)
    if share.shape != (len(matrix),) or not np.all(np.isfinite(share) & (share >= 0)):
        raise InvalidValueError(f"weights must be {len(matrix):,} numbers, none below zero, one for each problem")
    share = np.where(np.isnan(matrix).all(axis=1), 0.0, share)
    if not share.sum():
        raise InvalidValueError(f"none of the {matrix.shape[1]:,} kernels computes any of the problems that count")
    return matrix, share / share.sum()


def _efficiency(matrix: Matrix) -> Matrix:
    """Kernels × problems, each kernel's values side by side in memory."""
    shortest = np.where(np.isnan(matrix), np.inf, matrix).min(axis=1)
    return np.ascontiguousarray(np.nan_to_num(shortest[:, None] / matrix, nan=0.0).T)


def _greedy(rows: Matrix, share: Matrix, among: Sequence[int], keep: int) -> list[int]:
    """Kernels of `among`, each the one that adds most to those before it."""
    left = np.asarray(among, dtype=np.int64)
    # What a kernel would add never grows, so what it would have added earlier is a bound, and most are not looked at.
    bounds = np.full(len(left), np.inf)
    reached = np.zeros(rows.shape[1])
    order: list[int] = []
    while len(order) < keep and len(left):
        place, gain = _best_addition(rows, share, reached, left, bounds)
        if gain <= NOTHING:
            break
        order.append(int(left[place]))
        left, bounds = np.delete(left, place), np.delete(bounds, place)
        reached = np.maximum(reached, rows[order[-1]])
    return order


def _best_addition(
    rows: Matrix, share: Matrix, reached: Matrix, left: NDArray[np.int64], bounds: Matrix
) -> tuple[int, float]:
    """The place in `left` of the kernel that adds most, the first of equals, and what it adds; tightens `bounds`."""
    best, gain = 0, 0.0
    by_bound = np.argsort(-bounds, kind="stable")
    for start in range(0, len(by_bound), _AT_ONCE):
        part = by_bound[start : start + _AT_ONCE]
        if bounds[part[0]] < gain - NOTHING:
            break
        # Sums along rows are the same for equal rows, wherever they lie; those of a matrix product need not be.
        bounds[part] = (np.maximum(rows[left[part]] - reached, 0.0) * share).sum(axis=1)
        top = float(bounds[part].max())
        first = int(part[bounds[part] == top].min())
        if top > gain or (top == gain and first < best):
            best, gain = first, top
    return best, gain


def _swapped(rows: Matrix, share: Matrix, order: Sequence[int]) -> list[int]:
    """The kernels after each was once offered for exchange, the last first: it was chosen with the others in view."""
    kept = list(order)
    for place in reversed(range(len(kept))):
        others = kept[:place] + kept[place + 1 :]
        reached = rows[others].max(axis=0) if others else np.zeros(rows.shape[1])
        mine = float((np.maximum(rows[kept[place]] - reached, 0.0) * share).sum())
        found, gain = _best_addition(rows, share, reached, np.arange(len(rows)), np.full(len(rows), np.inf))
        if gain > mine + NOTHING:
            kept[place] = found
    return kept
