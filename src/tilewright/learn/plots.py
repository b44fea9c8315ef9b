"""Pictures of how well kernels are chosen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.atomic_write import write_atomically
from tilewright.base.errors import choose
from tilewright.base.extras import require_packages
from tilewright.bench.report import style
from tilewright.bench.report.style import BLUE, DPI, GREEN, ORANGE, PINK, SKY, STYLE, VERMILION

if TYPE_CHECKING:
    from tilewright.select.portfolio import Portfolio

# Ordered so that neighbours differ most.
COLOURS = (BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, "#666666")
SUFFIXES = (".png", ".svg", ".pdf")


def require_matplotlib(what: str) -> None:
    """Raise if Matplotlib is missing."""
    require_packages(what, ("matplotlib",), "plots")


def create_figure(width: float, height: float, columns: int = 1, rows: int = 1) -> tuple[Any, Any]:
    """A figure and its axes, drawn without a screen, in sizes that are readable on a page."""
    require_matplotlib("a picture")
    from matplotlib import rc_context  # noqa: PLC0415  (an extra)

    with rc_context(STYLE):
        figure, panels = style.create_figure(width, height, columns, rows)
    return figure, panels if len(panels) > 1 else panels[0]


# Metadata that would otherwise hold the date of the drawing, by format.
_UNDATED = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure in the format of its suffix. The same figure gives the same bytes."""
    from matplotlib import rc_context  # noqa: PLC0415  (an extra)

    choose("picture format", path.suffix.lower(), SUFFIXES)
    with rc_context({"svg.hashsalt": "tilewright"}), write_atomically(path) as draft:
        suffix = path.suffix.lower()
        figure.savefig(draft, dpi=DPI, format=suffix[1:], metadata=_UNDATED.get(suffix))


def plot_coverage(portfolio: Portfolio, path: Path, title: str) -> None:
    """Draw the efficiency of the first one, two, … kernels: mean, P10, and the share of problems they compute."""
    figure, axes = create_figure(7.0, 4.2)
    from tilewright.bench.report.plots import draw_coverage  # noqa: PLC0415  (needs NumPy)

    draw_coverage(axes, portfolio)
    axes.set_title(title, fontsize=11)
    save_figure(figure, path)
