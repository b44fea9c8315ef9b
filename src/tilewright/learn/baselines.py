"""Baselines without a model, which a trained model has to beat.

Each gives a score per row, lower is better, computed from rows of the other folds only. Problems and kernels are
numbered from 0; `fold` is the fold of each row. Times may be nan: such a row is scored, but not learned from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilewright.base.errors import LeakageError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Shrinks the mean of a kernel with few problems towards the overall mean, as if it had two more problems with it.
PRIOR = 2


def score_randomly(rows: int, seed: int) -> Floats:
    """Random scores. The average over all draws is `efficiency.evaluate_random`."""
    return np.random.default_rng(seed).random(rows)


def score_by_mean(problem: ArrayLike, kernel: ArrayLike, us: ArrayLike, fold: ArrayLike) -> Floats:
    """One order of kernels for all problems: by the mean slowdown that their efficiency in other folds implies."""
    return 1 / _compute_mean_efficiency(_make_table(problem, kernel, us, fold))


def score_by_nearest(
    problem: ArrayLike,
    kernel: ArrayLike,
    us: ArrayLike,
    fold: ArrayLike,
    points: ArrayLike,
    *,
    only_fastest: bool = False,
) -> Floats:
    """The order of kernels in the nearest problem of the other folds; `points` has a row for each problem.

    A kernel that was not measured there is scored by its mean in other folds. If a problem lists its fastest kernels
    only, kernels that are not listed count as slower.
    """
    table = _make_table(problem, kernel, us, fold)
    near = _find_nearest(np.asarray(points, float), table)
    typical = 1 / _compute_mean_efficiency(table)
    key = table.problem * table.kernels + table.kernel
    usable = np.flatnonzero(~np.isnan(table.share))
    order = usable[np.argsort(key[usable], kind="stable")]
    wanted = near[table.problem] * table.kernels + table.kernel
    place = np.minimum(np.searchsorted(key[order], wanted), len(order) - 1)
    found = key[order][place] == wanted
    slowdown = 1 / np.where(found, table.share[order][place], 1)
    if only_fastest:
        typical = typical + slowdown[found].max(initial=0)
    return np.where(found, slowdown, typical)


@dataclass(frozen=True, slots=True)
class _FoldTable:
    problem: Integers
    kernel: Integers
    fold: Integers  # of each row
    share: Floats  # efficiency of each row's kernel; nan if it was not measured
    kernels: int
    problem_fold: Integers  # of each problem


def _make_table(problem: ArrayLike, kernel: ArrayLike, us: ArrayLike, fold: ArrayLike) -> _FoldTable:
    problems, kernels, folds = (np.asarray(each, np.int64) for each in (problem, kernel, fold))
    times = np.asarray(us, float)
    best = np.full(problems.max() + 1, np.inf)
    np.fmin.at(best, problems, times)
    problem_fold = np.full(problems.max() + 1, -1, np.int64)
    problem_fold[problems] = folds
    split = problem_fold[problems] != folds
    if split.any():
        raise LeakageError(
            f"{len(np.unique(problems[split]))} problems have rows in several folds, for example problem "
            f"{problems[split][0]}. Put all rows of a problem into one fold."
        )
    return _FoldTable(problems, kernels, folds, best[problems] / times, int(kernels.max()) + 1, problem_fold)


def _compute_mean_efficiency(table: _FoldTable) -> Floats:
    """For each row, the mean efficiency of its kernel over the other folds."""
    names, fold = np.unique(table.fold, return_inverse=True)
    measured = ~np.isnan(table.share)
    cell = (fold * table.kernels + table.kernel)[measured]
    size = len(names) * table.kernels
    shape = (len(names), table.kernels)
    total = np.bincount(cell, table.share[measured], size).reshape(shape)
    count = np.bincount(cell, minlength=size).reshape(shape)
    total, count = total.sum(0) - total, count.sum(0) - count
    prior = total.sum(1, keepdims=True) / np.maximum(count.sum(1, keepdims=True), 1)
    mean = (total + PRIOR * prior) / (count + PRIOR)
    return np.asarray(mean[fold, table.kernel], float)


def _find_nearest(points: Floats, table: _FoldTable) -> Integers:
    """For each problem, the nearest problem of the other folds."""
    from scipy.spatial import cKDTree  # noqa: PLC0415

    near = np.zeros(len(table.problem_fold), np.int64)
    measured = np.bincount(table.problem, ~np.isnan(table.share), len(near)) > 0
    present = table.problem_fold >= 0
    for fold in np.unique(table.problem_fold[present]):
        here = np.flatnonzero(table.problem_fold == fold)
        elsewhere = np.flatnonzero(present & measured & (table.problem_fold != fold))
        near[here] = elsewhere[cKDTree(points[elsewhere]).query(points[here])[1]]
    return near
