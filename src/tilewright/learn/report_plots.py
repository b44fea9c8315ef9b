"""The plots of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilewright.bench.report.style import BEST, QUIET, SECOND, create_figure, render_picture, set_plain_numbers
from tilewright.learn.efficiency import compute_efficiencies
from tilewright.learn.evaluation import (
    ANALYTICAL,
    LEARNED,
    METHODS,
    NEIGHBOUR,
    ONE_BEST,
    RANDOM,
    CurvePoint,
    Evaluation,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

# One colour for each method in all plots; they also differ in lightness, for colour-blind readers.
COLOURS = {
    LEARNED: BEST,
    ANALYTICAL: SECOND,
    NEIGHBOUR: "#3f8f5b",
    ONE_BEST: QUIET,
    RANDOM: "#c4c4c4",
}
# The most points of a scatter plot: more would hide each other.
MOST_POINTS = 6000


@render_picture
def plot_efficiency_cdf(found: Evaluation) -> Figure:
    """For each split: the share of problems with at most a given efficiency."""
    figure, panels = create_figure(5.2 * len(found.judged), 4.5, columns=len(found.judged))
    for axes, judged in zip(panels, found.judged, strict=True):
        least = 1.0
        for name in reversed(METHODS):
            each = np.sort(compute_efficiencies(found.data.problem, found.data.us, judged.scores[name]))
            share = np.arange(1, len(each) + 1) / len(each)
            if name in (LEARNED, ANALYTICAL, NEIGHBOUR):  # the others may lie far to the left
                least = min(least, float(np.percentile(each, 3)))
            axes.step(
                100 * each,
                100 * share,
                where="post",
                color=COLOURS[name],
                linewidth=2.4 if name == LEARNED else 1.5,
                label=f"{name}, mean {100 * judged.figures[name].mean:.1f} %",
                zorder=3 if name in (LEARNED, ANALYTICAL) else 2,
            )
        axes.set_xlim(max(0, 100 * least - 2), 100.3)
        axes.set_ylim(0, 100)
        axes.set_title(judged.split.name)
        axes.set_xlabel("efficiency: best time / chosen kernel's time, %")
        axes.set_ylabel("problems at or below it, %")
        handles, labels = axes.get_legend_handles_labels()
        axes.legend(handles[::-1], labels[::-1], loc="upper center", bbox_to_anchor=(0.48, -0.15), ncols=2)
    return figure


@render_picture
def plot_predictions(found: Evaluation, ranker: bool) -> Figure:
    """Estimates over times, and each kernel's slowdown compared with the best, predicted and measured."""
    data, judged = found.data, found.judged[0]
    drawn = np.random.default_rng(0).permutation(len(data))[:MOST_POINTS]
    figure, (left, right) = create_figure(10.4, 4.6, columns=2)
    _draw_scatter(left, data.estimate[drawn], data.us[drawn], COLOURS[ANALYTICAL])
    off = np.abs(np.log(data.estimate / data.us))
    left.set_title(f"analytical: median error {100 * float(np.expm1(np.median(off))):.0f} %")
    left.set_xlabel("estimated, µs")
    left.set_ylabel("measured, µs")
    measured = data.us / data.best
    learned = _compute_slowdown(data.problem, judged.scores[LEARNED])
    if ranker:
        learned = _compute_slowdown(data.problem, _compute_ranks(data.problem, judged.scores[LEARNED]))
    _draw_scatter(right, learned[drawn], measured[drawn], COLOURS[LEARNED])
    right.set_title(f"learned, {judged.split.name}")
    right.set_xlabel("rank in the learned order" if ranker else "predicted time / predicted best")
    right.set_ylabel("measured time / measured best")
    return figure


def _compute_ranks(problem: NDArray[np.int64], scores: Floats) -> Floats:
    """The logarithm of each row's rank in its problem."""
    order = np.lexsort((scores, problem))
    start = np.flatnonzero(np.diff(problem[order], prepend=-1))
    place = np.arange(len(order)) - np.repeat(start, np.diff(start, append=len(order)))
    ranks = np.empty(len(order))
    ranks[order] = np.log1p(place)
    return ranks


def _compute_slowdown(problem: NDArray[np.int64], scores: Floats) -> Floats:
    best = np.full(int(problem.max()) + 1, np.inf)
    np.minimum.at(best, problem, scores)
    return np.asarray(np.exp(np.minimum(scores - best[problem], 50)))


def _draw_scatter(axes: Axes, x: Floats, y: Floats, colour: str) -> None:
    axes.scatter(x, y, s=6, color=colour, alpha=0.25, linewidths=0, rasterized=True)
    low, high = float(min(x.min(), y.min())), float(max(x.max(), y.max()))
    axes.plot([low, high], [low, high], color="#333333", linewidth=0.9)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low / 1.05, high * 1.05)
    axes.set_ylim(low / 1.05, high * 1.05)
    for axis in (axes.xaxis, axes.yaxis):
        set_plain_numbers(axis)


@render_picture
def plot_worst_problems(labels: Sequence[str], learned: Sequence[float], analytical: Sequence[float]) -> Figure:
    """The problems with the worst choices, worst on top, with the efficiency of the analytical order."""
    figure, (axes,) = create_figure(8.6, 0.34 * len(labels) + 1.1)
    place = np.arange(len(labels))
    axes.barh(place, [100 * e for e in learned], height=0.62, color=COLOURS[LEARNED], label=LEARNED)
    axes.plot(
        [100 * e for e in analytical], place, "D", color=COLOURS[ANALYTICAL], markersize=5, label=ANALYTICAL, zorder=4
    )
    axes.set_yticks(place, labels, fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 102)
    axes.set_xlabel("efficiency, %")
    figure.legend(loc="outside upper right", ncols=2)
    return figure


@render_picture
def plot_feature_importance(gain: Mapping[str, float], most: int = 20) -> Figure:
    """The features with the highest gain."""
    first = sorted(gain.items(), key=lambda pair: -pair[1])[:most]
    figure, (axes,) = create_figure(6.4, 0.25 * len(first) + 0.9)
    place = np.arange(len(first))
    axes.barh(place, [100 * share for _, share in first], height=0.66, color=COLOURS[LEARNED])
    axes.set_yticks(place, [name for name, _ in first], fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("share of the total gain of all splits, %")
    return figure


@render_picture
def plot_learning_curve(curve: Sequence[CurvePoint]) -> Figure:
    """Mean efficiency over the number of measured problems."""
    figure, (axes,) = create_figure(6.4, 3.4)
    problems = [point.problems for point in curve]
    axes.plot(problems, [100 * p.learned for p in curve], "o-", color=COLOURS[LEARNED], label=LEARNED)
    axes.plot(problems, [100 * p.analytical for p in curve], "--", color=COLOURS[ANALYTICAL], label=ANALYTICAL)
    axes.set_xscale("log")
    axes.set_xticks(problems, [str(n) for n in problems])
    axes.minorticks_off()
    axes.set_xlabel("training problems")
    axes.set_ylabel("mean efficiency, %")
    axes.legend(loc="center right")
    return figure
