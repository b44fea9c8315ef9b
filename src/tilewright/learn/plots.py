"""Pictures of how well kernels are chosen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import choose
from tilewright.base.extras import need_packages

if TYPE_CHECKING:
    from tilewright.select.portfolio import Portfolio

# Told apart also without colours by their order in legends; from the palette of Okabe and Ito.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666")
SUFFIXES = (".png", ".svg", ".pdf")
# As many points can carry their numbers without touching.
LABELLED = 16


def need_matplotlib(what: str) -> None:
    """Raise when there is nothing to draw with."""
    need_packages(what, ("matplotlib",), "plots")


def new_figure(width: float, height: float, columns: int = 1, rows: int = 1) -> tuple[Any, Any]:
    """A figure and its axes, drawn without a screen, in sizes that can be read on a page."""
    need_matplotlib("a picture")
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  (an extra)
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns)
    for each in figure.axes:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(alpha=0.3, linewidth=0.6)
    return figure, axes


# What files of a format would otherwise say about the day on which they were drawn.
_UNDATED = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def save(figure: Any, path: Path) -> None:
    """Write a figure in the format of its suffix. The same figure gives the same bytes."""
    from matplotlib import rc_context  # noqa: PLC0415  (an extra)

    choose("format of a picture", path.suffix.lower(), SUFFIXES)
    with rc_context({"svg.hashsalt": "tilewright"}):
        figure.savefig(path, metadata=_UNDATED.get(path.suffix.lower()))


def draw_coverage(axes: Any, portfolio: Portfolio, label: str = "mean", colour: str = COLOURS[0]) -> None:
    """Mean efficiency against the number of kernels, with its numbers while they have room."""
    counts = range(1, len(portfolio.order) + 1)
    percents = [100 * share for share in portfolio.coverage]
    axes.plot(counts, percents, marker="o", markersize=4, color=colour, label=label)
    if len(portfolio.order) <= LABELLED:
        for count, percent in zip(counts, percents, strict=True):
            text = axes.annotate(f"{percent:.1f}", (count, percent), (0, 7), textcoords="offset points", ha="center")
            text.set(size=8, color=colour, bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5})


def coverage_plot(portfolio: Portfolio, path: Path, title: str) -> None:
    """Draw what the first one, two, … kernels achieve: mean, P10, and how many problems they compute."""
    figure, axes = new_figure(7.0, 4.2)
    draw_coverage(axes, portfolio, "mean efficiency")
    counts = range(1, len(portfolio.order) + 1)
    axes.plot(counts, [100 * each for each in portfolio.low], marker="v", markersize=4, color=COLOURS[1], label="P10")
    axes.plot(counts, [100 * each for each in portfolio.supported], "--", color=COLOURS[-1], label="problems computed")
    axes.set_title(title, fontsize=11)
    axes.set_xlabel("kernels kept")
    axes.set_ylabel("% of the best kernel for each problem")
    axes.set_ylim(top=104)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(loc="lower right", frameon=False)
    save(figure, path)
