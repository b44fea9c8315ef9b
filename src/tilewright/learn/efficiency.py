"""How good choices are: the best measured time of a problem over the measured time of the chosen kernel.

Rows are pairs of a problem and a kernel with their time. All numbers are shares of one, not per cent.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilewright.base.errors import InvalidValueError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Efficiency over problems. `top1` and `top5`: how often a best kernel was ranked first, or among five."""

    mean: float
    median: float
    p10: float
    minimum: float
    top1: float
    top5: float
    problems: int

    def to_json(self) -> dict[str, float | int]:
        return asdict(self)


def judge(problem: ArrayLike, us: ArrayLike, score: ArrayLike, kernel: ArrayLike | None = None) -> Efficiency:
    """What choosing the row with the lowest score of each problem would reach.

    Of equal scores the earlier row counts as lower. A row whose time is nan was not measured: it is not a row, for
    best and for choice. With `kernel` a kernel that stands twice in a problem is refused: two timings of one kernel
    would make the best one a matter of luck.
    """
    ranked = _rank(problem, us, score, kernel)
    chosen = ranked.best / ranked.us[ranked.start]
    top1, top5 = (_hit(ranked, top).mean() for top in (1, 5))
    return _summary(chosen, float(top1), float(top5))


def efficiencies(problem: ArrayLike, us: ArrayLike, score: ArrayLike) -> Floats:
    """The efficiency of each problem's choice, problems in the order of their numbers."""
    ranked = _rank(problem, us, score, None)
    return ranked.best / ranked.us[ranked.start]


def judge_random(problem: ArrayLike, us: ArrayLike) -> Efficiency:
    """What choosing blindly reaches on average: a problem's efficiency is the mean over its rows."""
    ranked = _rank(problem, us, np.zeros(len(np.asarray(us))), None)
    rows = np.bincount(ranked.number)
    share = np.bincount(ranked.number, ranked.best[ranked.number] / ranked.us) / rows
    best = np.bincount(ranked.number, ranked.us == ranked.best[ranked.number])
    missed = np.ones(len(rows))
    for drawn in range(5):  # the chance that five drawn one after the other are all not the best
        missed *= np.clip(rows - best - drawn, 0, None) / np.maximum(rows - drawn, 1)
    return _summary(share, float((best / rows).mean()), float((1 - missed).mean()))


@dataclass(frozen=True, slots=True)
class _Ranked:
    """Measured rows, sorted by problem and then by score. Problems are numbered from 0 without gaps."""

    number: Integers
    us: Floats
    start: Integers  # of each problem: its first row
    best: Floats  # of each problem: its best time


def _rank(problem: ArrayLike, us: ArrayLike, score: ArrayLike, kernel: ArrayLike | None) -> _Ranked:
    problems, times, scores = (np.asarray(problem), np.asarray(us, float), np.asarray(score, float))
    measured = ~np.isnan(times)
    problems, times, scores = problems[measured], times[measured], scores[measured]
    _check(times, scores)
    if kernel is not None:
        _check_once(problems, np.asarray(kernel)[measured])
    order = np.lexsort((scores, problems))
    problems, times = problems[order], times[order]
    new = np.ones(len(problems), bool)
    new[1:] = problems[1:] != problems[:-1]
    start = np.flatnonzero(new)
    return _Ranked(np.cumsum(new) - 1, times, start, np.minimum.reduceat(times, start))


def _check(times: Floats, scores: Floats) -> None:
    if not len(times):
        raise InvalidValueError("there is no measured row to judge. Give at least one time that is not nan.")
    wrong = ~(np.isfinite(times) & (times > 0))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InvalidValueError(
            f"{int(wrong.sum())} times are not above zero and finite, the first is {times[row]} (measured row {row}). "
            "Write nan for a run that failed."
        )
    if np.isnan(scores).any():
        raise InvalidValueError(f"{int(np.isnan(scores).sum())} scores are nan: no rank follows from them.")


def _check_once(problems: NDArray[Any], kernels: NDArray[Any]) -> None:
    order = np.lexsort((kernels, problems))
    problems, kernels = problems[order], kernels[order]
    twice = (problems[1:] == problems[:-1]) & (kernels[1:] == kernels[:-1])
    if twice.any():
        place = int(np.flatnonzero(twice)[0])
        raise InvalidValueError(
            f"{int(twice.sum())} rows repeat a kernel of their problem, the first is kernel {kernels[place]} "
            f"of problem {problems[place]}. Join repeats, by their median for example."
        )


def _hit(ranked: _Ranked, top: int) -> NDArray[np.bool_]:
    """Of each problem: whether a row with its best time is among the first `top`."""
    place = np.arange(len(ranked.us)) - ranked.start[ranked.number]
    best = (ranked.us == ranked.best[ranked.number]) & (place < top)
    return np.bincount(ranked.number, best) > 0


def _summary(share: Floats, top1: float, top5: float) -> Efficiency:
    return Efficiency(
        mean=float(share.mean()),
        median=float(np.median(share)),
        p10=float(np.percentile(share, 10)),
        minimum=float(share.min()),
        top1=top1,
        top5=top5,
        problems=len(share),
    )
