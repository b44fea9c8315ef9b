"""The report of an evaluation: one page with its plots, and the plots next to it as PNG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilewright.base.atomic_write import create_folder, write_atomically, write_text
from tilewright.bench.report.style import BEST, QUIET, SECOND, Picture, create_figure, render_picture, set_plain_numbers
from tilewright.learn.dataset import Dataset
from tilewright.learn.efficiency import Efficiency, compute_efficiencies
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
from tilewright.ops.fields import format_tokens
from tilewright.ops.problem_text import list_problem_fields
from tilewright.ops.problem_values import format_problem_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

PAGE = "report.html"
# The number of worst problems to show: as many as a person can look into.
WORST = 12
COLUMNS = ("mean", "median", "P10", "minimum", "top 1", "top 5")
# One colour for each method in all plots; they also differ in lightness, for colour-blind readers.
_COLOURS = {
    LEARNED: BEST,
    ANALYTICAL: SECOND,
    NEIGHBOUR: "#3f8f5b",
    ONE_BEST: QUIET,
    RANDOM: "#c4c4c4",
}
# The most points of a scatter plot: more would hide each other.
_MOST_POINTS = 6000


def describe_problems(data: Dataset) -> tuple[str, ...]:
    """Each problem by the fields that differ: `n=2 c=64 k=256`."""
    fields = [list_problem_fields(problem, data.kernels[0].config) for problem in data.problems]
    shared = _find_shared(fields)
    return tuple(
        " ".join(f"{name}={format_problem_value(value)}" for name, value in own.items() if name not in shared)
        or "the problem"
        for own in fields
    )


def describe_kernels(data: Dataset) -> tuple[str, ...]:
    """Each kernel by the parts of its name that differ: `b128x128x64 w4x4x1 compv3`."""
    tokens = [format_tokens(kernel.config) for kernel in data.kernels]
    everywhere = set(tokens[0]).intersection(*tokens) if len(tokens) > 1 else set()
    return tuple(" ".join(token for token in own if token not in everywhere) for own in tokens)


def _find_shared(fields: Sequence[Mapping[str, Any]]) -> set[str]:
    first, *others = fields
    if not others:
        return set()
    return {name for name, value in first.items() if all(each.get(name) == value for each in others)}


@dataclass(frozen=True)
class LearningPlot:
    """A plot of the page: its file name, a heading, and a description."""

    name: str
    title: str
    text: str
    picture: Picture


@dataclass(frozen=True)
class WorstChoice:
    """A problem with a bad choice: the chosen kernel, and the best one."""

    problem: str
    efficiency: float
    analytical: float
    chosen: str
    chosen_us: float
    best: str
    best_us: float

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def write_report(
    folder: Path | str, found: Evaluation, *, curve: Sequence[CurvePoint] = (), ranker: bool = False
) -> tuple[Path, ...]:
    """Write the page and its plots into a folder; returns the files, the page first."""
    folder = Path(folder)
    create_folder(folder)
    plots = _make_plots(found, curve, ranker)
    page = folder / PAGE
    write_text(page, _render_page(found, plots))
    pictures = [folder / f"{plot.name}.png" for plot in plots]
    for plot, path in zip(plots, pictures, strict=True):
        with write_atomically(path) as draft:
            draft.write_bytes(plot.picture.png)
    return (page, *pictures)


def find_worst_choices(found: Evaluation, most: int = WORST) -> tuple[WorstChoice, ...]:
    """The problems of the first split with the worst choices, worst first."""
    data, judged = found.data, found.judged[0]
    problems = np.unique(data.problem)
    learned = compute_efficiencies(data.problem, data.us, judged.scores[LEARNED])
    analytical = compute_efficiencies(data.problem, data.us, judged.scores[ANALYTICAL])
    words, kernels = describe_problems(data), describe_kernels(data)
    rows = []
    for i in np.argsort(learned, kind="stable")[:most]:
        mine = np.flatnonzero(data.problem == problems[i])
        chosen = mine[np.argmin(judged.scores[LEARNED][mine])]
        best = mine[np.argmin(data.us[mine])]
        rows.append(
            WorstChoice(
                problem=words[problems[i]],
                efficiency=float(learned[i]),
                analytical=float(analytical[i]),
                chosen=kernels[data.kernel[chosen]],
                chosen_us=float(data.us[chosen]),
                best=kernels[data.kernel[best]],
                best_us=float(data.us[best]),
            )
        )
    return tuple(rows)


def _make_plots(found: Evaluation, curve: Sequence[CurvePoint], ranker: bool) -> list[LearningPlot]:
    worst = find_worst_choices(found)
    plots = [
        LearningPlot(
            "efficiency",
            "Efficiency of the choices",
            "The lower and further right a line, the better: few problems are far from their best.",
            _plot_efficiency_cdf(found),
        ),
        LearningPlot(
            "predicted",
            "Predicted against measured",
            "Left: times as estimated without any measurement. Right: how much slower than its problem's best each "
            "kernel is, as predicted; only this order determines a choice.",
            _plot_predictions(found, ranker),
        ),
        LearningPlot(
            "worst",
            "Worst problems",
            f"The {len(worst)} problems whose learned choice was furthest from the best "
            f"({found.judged[0].split.name}).",
            _plot_worst_problems(
                [each.problem for each in worst],
                [each.efficiency for each in worst],
                [each.analytical for each in worst],
            ),
        ),
    ]
    if any(found.gain.values()):
        text = "The features that the trees split by. A feature that is redundant with another shares its gain with it."
        plots.append(LearningPlot("features", "Feature importance", text, _plot_feature_importance(found.gain)))
    if curve:
        text = "How many problems must be measured before a model pays off. Means over several draws."
        plots.append(LearningPlot("curve", "Learning curve", text, _plot_learning_curve(curve)))
    return plots


def _render_page(found: Evaluation, plots: Sequence[LearningPlot]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415

    templates = Path(__file__).with_name("templates")
    environment = Environment(loader=FileSystemLoader(templates), undefined=StrictUndefined, autoescape=True)
    data = found.data
    facts = [
        ("problems", f"{len(np.unique(data.problem)):,}"),
        ("kernels", f"{len(np.unique(data.kernel)):,}"),
        ("rows with a time", f"{len(data):,}"),
        ("features", f"{len(data.names)}"),
        ("digest of the rows", data.digest),
    ]
    return environment.get_template("report.html.j2").render(
        title=f"Choosing {data.op.name} kernels on {data.arch.name}",
        subject=found.subject,
        seen=found.seen,
        facts=facts,
        columns=COLUMNS,
        splits=[
            {
                "name": judged.split.name,
                "doc": judged.split.doc,
                "rows": [{"method": name, "figures": format_figures(judged.figures[name])} for name in METHODS],
            }
            for judged in found.judged
        ],
        plots=plots,
        worst=[_make_worst_row(each) for each in find_worst_choices(found)],
    )


def format_figures(found: Efficiency) -> tuple[str, ...]:
    """Figures in percent, in the order of `COLUMNS`."""
    values = (found.mean, found.median, found.p10, found.minimum, found.top1, found.top5)
    return tuple(f"{100 * value:.2f}" if i < 3 else f"{100 * value:.1f}" for i, value in enumerate(values))


def _make_worst_row(each: WorstChoice) -> dict[str, str]:
    return {
        "problem": each.problem,
        "efficiency": f"{100 * each.efficiency:.1f}",
        "chosen": each.chosen,
        "chosen_us": f"{each.chosen_us:.4g}",
        "best": each.best,
        "best_us": f"{each.best_us:.4g}",
    }


@render_picture
def _plot_efficiency_cdf(found: Evaluation) -> Figure:
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
                color=_COLOURS[name],
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
def _plot_predictions(found: Evaluation, ranker: bool) -> Figure:
    """Estimates over times, and each kernel's slowdown compared with the best, predicted and measured."""
    data, judged = found.data, found.judged[0]
    drawn = np.random.default_rng(0).permutation(len(data))[:_MOST_POINTS]
    figure, (left, right) = create_figure(10.4, 4.6, columns=2)
    _draw_scatter(left, data.estimate[drawn], data.us[drawn], _COLOURS[ANALYTICAL])
    off = np.abs(np.log(data.estimate / data.us))
    left.set_title(f"analytical: median error {100 * float(np.expm1(np.median(off))):.0f} %")
    left.set_xlabel("estimated, µs")
    left.set_ylabel("measured, µs")
    measured = data.us / data.best
    learned = _compute_slowdown(data.problem, judged.scores[LEARNED])
    if ranker:
        learned = _compute_slowdown(data.problem, _compute_ranks(data.problem, judged.scores[LEARNED]))
    _draw_scatter(right, learned[drawn], measured[drawn], _COLOURS[LEARNED])
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
def _plot_worst_problems(labels: Sequence[str], learned: Sequence[float], analytical: Sequence[float]) -> Figure:
    """The problems with the worst choices, worst on top, with the efficiency of the analytical order."""
    figure, (axes,) = create_figure(8.6, 0.34 * len(labels) + 1.1)
    place = np.arange(len(labels))
    axes.barh(place, [100 * e for e in learned], height=0.62, color=_COLOURS[LEARNED], label=LEARNED)
    axes.plot(
        [100 * e for e in analytical], place, "D", color=_COLOURS[ANALYTICAL], markersize=5, label=ANALYTICAL, zorder=4
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
def _plot_feature_importance(gain: Mapping[str, float], most: int = 20) -> Figure:
    """The features with the highest gain."""
    first = sorted(gain.items(), key=lambda pair: -pair[1])[:most]
    figure, (axes,) = create_figure(6.4, 0.25 * len(first) + 0.9)
    place = np.arange(len(first))
    axes.barh(place, [100 * share for _, share in first], height=0.66, color=_COLOURS[LEARNED])
    axes.set_yticks(place, [name for name, _ in first], fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("share of the total gain of all splits, %")
    return figure


@render_picture
def _plot_learning_curve(curve: Sequence[CurvePoint]) -> Figure:
    """Mean efficiency over the number of measured problems."""
    figure, (axes,) = create_figure(6.4, 3.4)
    problems = [point.problems for point in curve]
    axes.plot(problems, [100 * p.learned for p in curve], "o-", color=_COLOURS[LEARNED], label=LEARNED)
    axes.plot(problems, [100 * p.analytical for p in curve], "--", color=_COLOURS[ANALYTICAL], label=ANALYTICAL)
    axes.set_xscale("log")
    axes.set_xticks(problems, [str(n) for n in problems])
    axes.minorticks_off()
    axes.set_xlabel("training problems")
    axes.set_ylabel("mean efficiency, %")
    axes.legend(loc="center right")
    return figure
