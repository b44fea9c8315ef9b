"""Heat maps of kernels × problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.bench.record import STATUSES
from tilewright.bench.report.figures import Heat
from tilewright.bench.report.style import BAD, Places, create_figure, cut_label, render_picture
from tilewright.bench.report.tooltips import compute_box, make_cell_tooltips

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The most columns of a figure that can have their own labels.
WORDED = 40
# The share of failed results from which a cell is marked.
MANY_FAILED = 0.25
# The columns of a figure that are labelled with their work.
TICKS = 8
# Inches per row of a heat map, and of the colour bar above it.
ROW, SCALE = 0.19, 0.16


@dataclass(frozen=True, eq=False)
class Panel:
    """A heat map of a figure: its label, the limits of its colours, and the texts at these."""

    heat: Heat
    label: str
    low: float
    high: float
    colours: str
    ends: str = ""


@render_picture
def plot_heat_maps(panels: Sequence[Panel], kernels: Sequence[str], problems: Sequence[str]) -> tuple[Figure, Places]:
    """Kernels × problems, panels with the same kernels side by side. Cells without a correct result show why."""
    first = panels[0].heat
    rows, columns = first.mean.shape
    worded = columns <= WORDED // len(panels) and bool((first.members == 1).all())
    figure, found = create_figure(11.6, ROW * rows + (2.5 if worded else 1.2), columns=len(panels))
    for axes, panel in zip(found, panels, strict=True):
        _draw_heat(figure, axes, panel)
        _set_column_labels(axes, panel.heat, problems if worded else None, TICKS // len(panels))
    shown = [kernels[kernel] for kernel in first.kernels]
    found[0].set_yticks(np.arange(rows) + 0.5, [cut_label(name) for name in shown], fontsize=7)
    for axes in found[1:]:
        axes.set_yticks([])

    def list_cells() -> list[dict[str, Any]]:
        boxes = [compute_box(axes, 0, columns, 0, rows) for axes in found]
        told = [(each, panel.label, panel.heat.mean) for each, panel in zip(boxes, panels, strict=True)]
        return [
            make_cell_tooltips(told, shown, _describe_columns(first, problems), first.status.ravel().tolist(), STATUSES)
        ]

    return figure, list_cells


def _describe_columns(heat: Heat, problems: Sequence[str]) -> list[str]:
    """The problem of each column, or the first and the last of several."""
    order = np.argsort(heat.columns, kind="stable")
    ends = np.cumsum(heat.members)
    words = []
    for start, end in zip(ends - heat.members, ends, strict=True):
        own = [problems[problem] for problem in order[start:end]]
        words.append(own[0] if len(own) == 1 else f"{len(own)} problems, {own[0]} … {own[-1]}")
    return words


def _draw_heat(figure: Figure, axes: Axes, panel: Panel) -> None:
    rows, columns = panel.heat.mean.shape
    image = axes.pcolormesh(
        panel.heat.mean,
        cmap=_make_colormap(panel.colours),
        vmin=panel.low,
        vmax=panel.high,
        edgecolors="white",
        linewidth=0.4 if columns <= 60 else 0,
    )
    _mark_failures(axes, panel.heat)
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    share = SCALE / figure.get_figheight()
    figure.colorbar(image, ax=axes, label=panel.label + panel.ends, location="top", fraction=share, aspect=40, pad=0.01)


def _make_colormap(name: str) -> Any:
    """A colour map whose light end cannot be mistaken for an empty cell."""
    from matplotlib import colormaps  # noqa: PLC0415
    from matplotlib.colors import ListedColormap  # noqa: PLC0415

    return ListedColormap(colormaps[name](np.linspace(0.09, 1, 256)))


def _set_column_labels(axes: Axes, heat: Heat, problems: Sequence[str] | None, ticks: int) -> None:
    if problems is not None:
        words = [cut_label(problems[problem], 34) for problem in np.argsort(heat.columns, kind="stable")]
        place = np.arange(len(words)) + 0.5
        axes.set_xticks(place, words, fontsize=7, rotation=50, ha="right", rotation_mode="anchor")
        return
    _set_work_ticks(axes, heat, ticks)
    few, most = int(heat.members.min()), int(heat.members.max())
    many = "" if most == 1 else f", {most} per column" if few == most else f", {few} or {most} per column"
    axes.set_xlabel(f"problems by work{many}; operations below the marks")


def _set_work_ticks(axes: Axes, heat: Heat, most: int) -> None:
    """Label some columns, evenly spaced, with their operations."""
    if np.isnan(heat.work).any():
        axes.set_xticks([])
        return
    last = len(heat.work) - 1
    columns = np.unique(np.linspace(0, last, min(most, last + 1)).round().astype(int))
    axes.set_xticks(columns + 0.5, [format_operations(heat.work[column]) for column in columns], fontsize=7)
    axes.tick_params(axis="x", length=3)


def format_operations(count: float) -> str:
    """`1.2 GFLOP`, in powers of a thousand."""
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= unit:
            return f"{count / unit:.3g} {name}FLOP"
    return f"{count:.3g} FLOP"


def _mark_failures(axes: Axes, found: Heat) -> None:
    """A red cross if all results failed, a dot if many failed; grey without results."""
    from matplotlib.patches import Rectangle  # noqa: PLC0415

    without = np.isnan(found.mean)
    for row, column in np.argwhere(without & (found.failed > 0)):
        axes.add_patch(Rectangle((column, row), 1, 1, facecolor="#f6d5d2", linewidth=0))
    for row, column in np.argwhere(without & (found.apart > 0) & ~(found.failed > 0)):
        axes.add_patch(Rectangle((column, row), 1, 1, facecolor="#e4e4e4", linewidth=0))
    size = 4.2 if found.mean.shape[1] <= 60 else 2.6
    for places, mark in ((without & (found.failed > 0), "x"), (~without & (found.failed >= MANY_FAILED), ".")):
        rows, columns = np.nonzero(places)
        axes.plot(columns + 0.5, rows + 0.5, mark, color=BAD, ms=size, mew=0.9, linestyle="none")
