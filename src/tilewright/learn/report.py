"""The report of an evaluation: one page with its plots, and the plots next to it as PNG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.bench.report.style import Picture
from tilewright.learn import report_plots
from tilewright.learn.dataset import Dataset
from tilewright.learn.efficiency import Efficiency, compute_efficiencies
from tilewright.learn.evaluation import ANALYTICAL, LEARNED, METHODS, CurvePoint, Evaluation
from tilewright.ops.fields import format_tokens
from tilewright.ops.problem_text import list_problem_fields
from tilewright.ops.problem_values import format_problem_value


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


PAGE = "report.html"
# The number of worst problems to show: as many as a person can look into.
WORST = 12
COLUMNS = ("mean", "median", "P10", "minimum", "top 1", "top 5")


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
    folder.mkdir(parents=True, exist_ok=True)
    plots = _make_plots(found, curve, ranker)
    page = folder / PAGE
    page.write_text(_render_page(found, plots), encoding="utf-8")
    for plot in plots:
        (folder / f"{plot.name}.png").write_bytes(plot.picture.png)
    return (page, *(folder / f"{plot.name}.png" for plot in plots))


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
            report_plots.plot_efficiency_cdf(found),
        ),
        LearningPlot(
            "predicted",
            "Predicted against measured",
            "Left: times as estimated without any measurement. Right: how much slower than its problem's best each "
            "kernel is, as predicted; only this order determines a choice.",
            report_plots.plot_predictions(found, ranker),
        ),
        LearningPlot(
            "worst",
            "Worst problems",
            f"The {len(worst)} problems whose learned choice was furthest from the best "
            f"({found.judged[0].split.name}).",
            report_plots.plot_worst_problems(
                [each.problem for each in worst],
                [each.efficiency for each in worst],
                [each.analytical for each in worst],
            ),
        ),
    ]
    if any(found.gain.values()):
        text = "The features that the trees split by. A feature that is redundant with another shares its gain with it."
        plots.append(
            LearningPlot("features", "Feature importance", text, report_plots.plot_feature_importance(found.gain))
        )
    if curve:
        text = "How many problems must be measured before a model pays off. Means over several draws."
        plots.append(LearningPlot("curve", "Learning curve", text, report_plots.plot_learning_curve(curve)))
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
