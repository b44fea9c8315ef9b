"""The tooltips of a picture: positions as fractions of its width and height, and texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.bench.report.columns import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Digits of a fraction: a tenth of a pixel in a picture 1,000 wide.
_DIGITS = 4


@dataclass(frozen=True)
class GroupLabels:
    """Names of the kernels and problems of a group, and labels of their values."""

    kernels: Sequence[str]
    problems: Sequence[str]


def to_picture_position(axes: Axes, x: Floats, y: Floats) -> Floats:
    """Positions of points in the picture, from its upper left corner. Valid only after the figure has been drawn."""
    pixels = axes.transData.transform(np.column_stack([x, y]))
    figure = axes.get_figure(root=True)
    assert figure is not None
    found = figure.transFigure.inverted().transform(pixels)
    return np.column_stack([found[:, 0], 1 - found[:, 1]]).round(_DIGITS)


def compute_box(axes: Axes, left: float, right: float, top: float, bottom: float) -> list[float]:
    """A rectangle of an axis, as left, top, right, bottom in the picture."""
    (x0, y0), (x1, y1) = to_picture_position(axes, np.array([left, right]), np.array([top, bottom])).tolist()
    return [min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)]


def make_point_tooltips(
    axes: Axes, x: Floats, y: Floats, kernel: Sequence[int], problem: Sequence[int], named: GroupLabels, label: str
) -> dict[str, Any]:
    """Points, each of a kernel and a problem; the value shown is `y`."""
    shown_kernels, kernels = _drop_unused(kernel, named.kernels)
    shown_problems, problems = _drop_unused(problem, named.problems)
    return {
        "kind": "points",
        "label": label,
        "at": to_picture_position(axes, x, y).tolist(),
        "values": [round_short(value) for value in y.tolist()],
        "kernel": shown_kernels,
        "problem": shown_problems,
        "kernels": kernels,
        "problems": problems,
    }


def _drop_unused(codes: Sequence[int], names: Sequence[str]) -> tuple[list[int], list[str]]:
    """Codes and names, without unused names."""
    used = sorted(set(codes))
    place = {code: i for i, code in enumerate(used)}
    return [place[code] for code in codes], [names[code] for code in used]


def make_area_tooltips(found: Iterable[tuple[list[float], str]]) -> dict[str, Any]:
    """Rectangles with a text for each."""
    listed = list(found)
    return {"kind": "areas", "boxes": [each for each, _ in listed], "texts": [text for _, text in listed]}


def make_cell_tooltips(
    panels: Sequence[tuple[list[float], str, Floats]],
    rows: Sequence[str],
    columns: Sequence[str],
    status: Sequence[int],
    statuses: Sequence[str],
) -> dict[str, Any]:
    """Maps of the same rows and columns: their boxes, labels and values. `status` is -1 if there is none."""
    return {
        "kind": "cells",
        "rows": list(rows),
        "columns": list(columns),
        "status": list(status),
        "statuses": [each.replace("_", " ") for each in statuses],
        "panels": [
            {"box": place, "label": label, "values": [round_short(value) for value in values.ravel().tolist()]}
            for place, label, values in panels
        ],
    }


def round_short(value: float) -> float | None:
    """Three digits; None for nan."""
    return None if np.isnan(value) else float(f"{value:.3g}")
