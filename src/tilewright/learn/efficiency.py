"""The efficiency of choices: the best measured time of a problem divided by the chosen kernel's time. Also baselines
without a model, which a trained model has to beat.

Rows are pairs of a problem and a kernel with their time. All numbers are fractions of one, not percentages. A baseline
gives a score per row, lower is better, computed from rows of the other folds only. Problems and kernels are numbered
from 0; `fold` is the fold of each row. Times may be nan: such a row is scored, but not learned from.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilewright.base.errors import InvalidValueError, LeakageError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Shrinks the mean of a kernel with few problems towards the overall mean, as if it had two more problems with it.
PRIOR = 2


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Efficiency over problems. `top1` and `top5`: how often a best kernel was ranked first or in the top five."""

    mean: float
    median: float
    p10: float
    minimum: float
    top1: float
    top5: float
    problems: int

    def to_json(self) -> dict[str, float | int]:
        return asdict(self)


def evaluate_scores(problem: ArrayLike, us: ArrayLike, score: ArrayLike, kernel: ArrayLike | None = None) -> Efficiency:
    """The efficiency of choosing the row with the lowest score of each problem.

    On a tie the earlier row wins. A row whose time is nan was not measured, and is ignored. With `kernel`, a kernel
    that occurs twice in a problem is rejected: with two timings of one kernel the best time would be a matter of luck.
    """
    ranked = _rank(problem, us, score, kernel)
    chosen = ranked.best / ranked.us[ranked.start]
    top1, top5 = (_find_hits(ranked, top).mean() for top in (1, 5))
    return _compute_summary(chosen, float(top1), float(top5))


def compute_efficiencies(problem: ArrayLike, us: ArrayLike, score: ArrayLike) -> Floats:
    """The efficiency of each problem's choice, in the order of problem numbers."""
    ranked = _rank(problem, us, score, None)
    return ranked.best / ranked.us[ranked.start]


def evaluate_random(problem: ArrayLike, us: ArrayLike) -> Efficiency:
    """The average efficiency of a random choice: a problem's efficiency is the mean over its rows."""
    ranked = _rank(problem, us, np.zeros(len(np.asarray(us))), None)
    rows = np.bincount(ranked.number)
    share = np.bincount(ranked.number, ranked.best[ranked.number] / ranked.us) / rows
    best = np.bincount(ranked.number, ranked.us == ranked.best[ranked.number])
    missed = np.ones(len(rows))
    for drawn in range(5):  # the probability that none of five random rows is the best
        missed *= np.clip(rows - best - drawn, 0, None) / np.maximum(rows - drawn, 1)
    return _compute_summary(share, float((best / rows).mean()), float((1 - missed).mean()))


@dataclass(frozen=True, slots=True)
class _RankedRows:
    """Measured rows, sorted by problem and then by score. Problems are numbered from 0 without gaps."""

    number: Integers
    us: Floats
    start: Integers  # the first row of each problem
    best: Floats  # the best time of each problem


def _rank(problem: ArrayLike, us: ArrayLike, score: ArrayLike, kernel: ArrayLike | None) -> _RankedRows:
    problems, times, scores = (np.asarray(problem), np.asarray(us, float), np.asarray(score, float))
    measured = ~np.isnan(times)
    problems, times, scores = problems[measured], times[measured], scores[measured]
    _check_values(times, scores)
    if kernel is not None:
        _check_once(problems, np.asarray(kernel)[measured])
    order = np.lexsort((scores, problems))
    problems, times = problems[order], times[order]
    new = np.ones(len(problems), bool)
    new[1:] = problems[1:] != problems[:-1]
    start = np.flatnonzero(new)
    return _RankedRows(np.cumsum(new) - 1, times, start, np.minimum.reduceat(times, start))


def _check_values(times: Floats, scores: Floats) -> None:
    if not len(times):
        raise InvalidValueError("all rows are without a time. Give at least one time that is not nan.")
    wrong = ~(np.isfinite(times) & (times > 0))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InvalidValueError(
            f"{int(wrong.sum())} times are not above zero and finite, the first is {times[row]} (measured row {row}). "
            "Use nan for a failed run."
        )
    if np.isnan(scores).any():
        raise InvalidValueError(f"{int(np.isnan(scores).sum())} scores are nan, so their rows cannot be ranked.")


def _check_once(problems: NDArray[Any], kernels: NDArray[Any]) -> None:
    order = np.lexsort((kernels, problems))
    problems, kernels = problems[order], kernels[order]
    twice = (problems[1:] == problems[:-1]) & (kernels[1:] == kernels[:-1])
    if twice.any():
        place = int(np.flatnonzero(twice)[0])
        raise InvalidValueError(
            f"{int(twice.sum())} rows repeat a kernel of their problem, the first is kernel {kernels[place]} "
            f"of problem {problems[place]}. Merge repeats, for example by their median."
        )


def _find_hits(ranked: _RankedRows, top: int) -> NDArray[np.bool_]:
    """For each problem, whether a row with its best time is among the first `top`."""
    place = np.arange(len(ranked.us)) - ranked.start[ranked.number]
    best = (ranked.us == ranked.best[ranked.number]) & (place < top)
    return np.bincount(ranked.number, best) > 0


def _compute_summary(share: Floats, top1: float, top5: float) -> Efficiency:
    return Efficiency(
        mean=float(share.mean()),
        median=float(np.median(share)),
        p10=float(np.percentile(share, 10)),
        minimum=float(share.min()),
        top1=top1,
        top5=top5,
        problems=len(share),
    )


def score_randomly(rows: int, seed: int) -> Floats:
    """Random scores. The average over all draws is `evaluate_random`."""
    return np.random.default_rng(seed).random(rows)


def score_by_mean(problem: ArrayLike, kernel: ArrayLike, us: ArrayLike, fold: ArrayLike) -> Floats:
    """One order of kernels for all problems: by the mean slowdown that their efficiency in other folds implies."""
    return 1 / _compute_mean_efficiency(_make_fold_table(problem, kernel, us, fold))


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
    table = _make_fold_table(problem, kernel, us, fold)
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


def _make_fold_table(problem: ArrayLike, kernel: ArrayLike, us: ArrayLike, fold: ArrayLike) -> _FoldTable:
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
