"""The style of all pictures, in reports of sweeps and of learning, and their encoding."""

from __future__ import annotations

import base64
import functools
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec

from tilewright.base.extras import require_packages

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 130
CSS_DPI = 96  # of a page: an inch in a browser
# Colours for the best, the second, the rest, failures, and minor elements.
BEST, SECOND, OTHER, BAD, QUIET = "#0b5fa5", "#d9822b", "#9fb6c9", "#b3261e", "#8a8a8a"
# The palette of Okabe and Ito, which is safe for colour-blind readers.
BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, YELLOW = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442"),
)
# Ten colours that differ in lightness as well as in hue.
PALETTE = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, YELLOW, "#7a5195", "#8c6d31", "#444444")
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#777777",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.frameon": True,
    "legend.edgecolor": "white",
    "legend.framealpha": 0.85,
}


@dataclass(frozen=True)
class Picture:
    """A PNG, its width on a page, and its tooltips."""

    png: bytes
    width: int
    spots: tuple[dict[str, Any], ...] = ()

    @property
    def most(self) -> int:
        """The largest width before single pixels become visible."""
        return self.width * DPI // CSS_DPI

    @property
    def data(self) -> str:
        return base64.b64encode(self.png).decode()


def require_plot_extra(what: str) -> None:
    """Raise if Matplotlib is missing."""
    require_packages(what, ("numpy", "matplotlib"), "plots")


P = ParamSpec("P")
# Positions are known only after a figure has been drawn.
Places = Callable[[], Sequence[dict[str, Any]]]


def render_picture(draw: Callable[P, Figure | tuple[Figure, Places]]) -> Callable[P, Picture]:
    """Turn a function that draws a figure into one that returns its picture, drawn in our style."""

    @functools.wraps(draw)
    def render_figure(*args: P.args, **kwargs: P.kwargs) -> Picture:
        from matplotlib import rc_context  # noqa: PLC0415
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415

        stream = io.BytesIO()
        with rc_context(STYLE):
            made = draw(*args, **kwargs)
            figure, places = made if isinstance(made, tuple) else (made, tuple)
            # Without the version of Matplotlib, which would change the bytes.
            FigureCanvasAgg(figure).print_figure(stream, format="png", dpi=DPI, metadata={"Software": None})
        return Picture(stream.getvalue(), round(figure.get_figwidth() * CSS_DPI), tuple(places()))

    return render_figure


def create_figure(width: float, height: float, columns: int = 1, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure without a window, with its panels row by row."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, [figure.add_subplot(rows, columns, i + 1) for i in range(rows * columns)]


# The most characters of a label: the tables of a page have full names.
LABEL = 58


def cut_label(text: str, most: int = LABEL) -> str:
    """A label that fits: if it is too long, … replaces its middle, as names differ at their ends."""
    head = most // 2
    return text if len(text) <= most else f"{text[:head]}…{text[head + 1 - most :]}"


def set_plain_numbers(axis: Any) -> None:
    """0.1, 1, 10, 1,000 instead of powers of ten; the shorter the range of an axis, the more numbers in between."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: PLC0415

    low, high = sorted(axis.get_view_interval())
    between = (1.0,) if high / low > 1000 else (1.0, 2.0, 5.0) if high / low > 12 else (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
    axis.set_major_locator(LogLocator(base=10, subs=between))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}" if value < 1e6 else f"{value:.0e}"))
    axis.set_minor_formatter(NullFormatter())
