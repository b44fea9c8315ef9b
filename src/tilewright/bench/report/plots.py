"""The pictures of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.arch.spec import Arch
from tilewright.bench.report.columns import Codes, Flags, Floats
from tilewright.bench.report.figures import Regions, SizeBins
from tilewright.bench.report.style import (
    BAD,
    BEST,
    OTHER,
    PALETTE,
    QUIET,
    SECOND,
    Places,
    create_figure,
    cut_label,
    render_picture,
    set_plain_numbers,
)
from tilewright.bench.report.tooltips import GroupLabels, compute_box, make_area_tooltips, make_point_tooltips
from tilewright.select.portfolio import Portfolio

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The most points of a scatter plot; above that, only their density is visible.
MOST_POINTS = 4000
INK = "#333333"


@dataclass(frozen=True, eq=False)
class Scatter:
    """Results as points, each of a kernel and a problem; `best` marks those of a problem's best kernel."""

    x: Floats
    y: Floats
    best: Flags
    kernel: Codes
    problem: Codes
    named: GroupLabels

    def list_tooltips(self, axes: Axes, label: str) -> Places:
        """The tooltips: of all points, of the best if there are too many, or none."""
        usable = np.isfinite(self.x) & np.isfinite(self.y)

        def list_points() -> list[dict[str, Any]]:
            for which in (usable, usable & self.best):
                if int(which.sum()) <= MOST_POINTS:
                    codes = self.kernel[which].tolist(), self.problem[which].tolist()
                    return [make_point_tooltips(axes, self.x[which], self.y[which], *codes, self.named, label)]
            return []

        return list_points


@render_picture
def plot_roofline(scatter: Scatter, arch: Arch, dtypes: Sequence[str]) -> tuple[Figure, Places]:
    """Rates of all results over operations per byte, below the roofline of the GPU's file."""
    figure, (axes,) = create_figure(7.4, 4.6)
    use = np.isfinite(scatter.x) & np.isfinite(scatter.y)
    x, y, best = scatter.x, scatter.y, scatter.best & use
    low, high = float(x[use].min()) / 1.6, float(x[use].max()) * 1.6
    peaks = {name: arch.peak_tflops[name] for name in dtypes if name in arch.peak_tflops}
    tops = [min(peak, compute_memory_slope(arch) * high) for peak in peaks.values()]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(float(y[use].min()) / 1.6, max([float(y[use].max()), *tops]) * 2.2)
    _draw_rooflines(axes, arch, peaks, low, high)
    others = use & ~best
    _draw_points(figure, axes, x[others], y[others], "other kernels", OTHER)
    many = int(best.sum()) > MOST_POINTS // 4
    axes.plot(x[best], y[best], "o", **_MANY if many else _SOME, label="best kernel of a problem")
    axes.set_xlabel("operations per byte that must be moved, FLOP/byte")
    axes.set_ylabel("TFLOPS")
    set_plain_numbers(axes.xaxis)
    set_plain_numbers(axes.yaxis)
    figure.legend(loc="outside upper right", ncols=2, markerscale=2.5 if many else 1)
    return figure, scatter.list_tooltips(axes, "TFLOPS")


# The style of points: for few problems, and for so many that they overlap.
_SOME: dict[str, Any] = {"ms": 3.6, "color": BEST, "alpha": 0.85, "mew": 0}
_MANY: dict[str, Any] = {"ms": 1.8, "color": BEST, "alpha": 0.4, "mew": 0}


def compute_memory_slope(arch: Arch) -> float:
    """The TFLOPS that the memory bandwidth allows at one operation per byte."""
    return arch.memory.bandwidth_gbs / 1e3


def _draw_rooflines(axes: Axes, arch: Arch, peaks: Mapping[str, float], low: float, high: float) -> None:
    """The memory slope, the flat peak of each data type, and the ridges where they meet."""
    line: dict[str, Any] = {"color": INK, "linewidth": 1.2}
    words: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8, "color": INK}
    top = max(peaks.values(), default=compute_memory_slope(arch) * high)
    end = min(high, top / compute_memory_slope(arch))
    axes.plot([low, end], [compute_memory_slope(arch) * low, compute_memory_slope(arch) * end], **line)
    if end > low:
        place = np.sqrt(low * end)
        bandwidth = f"memory, {arch.memory.bandwidth_gbs:,.0f} GB/s"
        axes.annotate(bandwidth, (place, compute_memory_slope(arch) * place), (-4, 3), ha="right", **words)
    for peak in sorted(set(peaks.values())):
        ridge = peak / compute_memory_slope(arch)
        if ridge >= high:
            continue
        axes.plot([max(low, ridge), high], [peak, peak], **line)
        names = ", ".join(name for name, each in peaks.items() if each == peak)
        axes.annotate(f"{names} matrix, {peak:,.4g} TFLOPS", (high, peak), (-4, 4), ha="right", **words)
        if ridge > low:
            axes.plot([ridge, ridge], [axes.get_ylim()[0], peak], color=QUIET, linewidth=0.8, linestyle=":")
            text = f"ridge, {ridge:,.0f} FLOP/byte"
            axes.annotate(text, (ridge, axes.get_ylim()[0]), (3, 4), rotation=90, **words)


def _draw_points(figure: Figure, axes: Axes, across: Floats, up: Floats, label: str, colour: str) -> None:
    """Points, or the number of points per spot if there are too many."""
    if len(across) <= MOST_POINTS:
        axes.plot(across, up, ".", ms=3, color=colour, alpha=0.6, label=label, zorder=1)
        return
    found = axes.hexbin(
        across, up, xscale="log", yscale="log", gridsize=60, bins="log", cmap="Greys", mincnt=1, zorder=1
    )
    figure.colorbar(found, ax=axes, label=f"{label}: results per spot", shrink=0.8, pad=0.01)


@render_picture
def plot_traffic(scatter: Scatter, ridge: float | None) -> tuple[Figure, Places]:
    """Operations per byte that kernels requested from memory, over those that the problem allows."""
    figure, (axes,) = create_figure(7.4, 4.6)
    use = np.isfinite(scatter.x) & np.isfinite(scatter.y)
    x, y = scatter.x[use], scatter.y[use]
    left, right = float(x.min()) / 1.4, float(x.max()) * 1.4
    low, high = min(left, float(y.min()) / 1.4), max(right, float(y.max()) * 1.4)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)
    axes.plot([low, high], [low, high], color=INK, linewidth=1.2)
    middle = np.sqrt(left * right)
    axes.annotate("each byte once", (middle, middle), (-6, 4), textcoords="offset points", fontsize=8, ha="right")
    if ridge is not None and low < ridge < high:
        axes.axhline(ridge, color=QUIET, linewidth=1, linestyle="--")
        text = f"ridge of the GPU's roofline, {ridge:,.0f}"
        axes.annotate(text, (left, ridge), (4, 3), textcoords="offset points", fontsize=8)
    best = scatter.best[use]
    _draw_points(figure, axes, x[~best], y[~best], "other kernels", OTHER)
    axes.plot(x[best], y[best], "o", **_SOME, label="fewest lines of a problem")
    axes.set_xlabel("operations per byte that must be moved, FLOP/byte")
    axes.set_ylabel("operations per byte that lanes requested, FLOP/byte")
    set_plain_numbers(axes.xaxis)
    set_plain_numbers(axes.yaxis)
    figure.legend(loc="outside upper right", ncols=2)
    return figure, scatter.list_tooltips(axes, "FLOP per requested byte")


@render_picture
def plot_region_maps(maps: Sequence[Regions], what: str, share: str) -> tuple[Figure, Places]:
    """The best value of each region, such as a tile; the numbers count its problems. `what` is the word for values.

    `share` names the reference of the mean.
    """
    from matplotlib.patches import Patch, Rectangle  # noqa: PLC0415

    figure, panels = create_figure(11.6, 4.3, columns=len(maps)) if len(maps) > 1 else create_figure(7.4, 4.3)
    names = _sort_by_use(maps)
    shown = names[: len(PALETTE)]
    colours = dict(zip(shown, PALETTE, strict=False))
    for axes, each in zip(panels, maps, strict=True):
        for row, column in np.argwhere(each.best >= 0):
            value = each.values[each.best[row, column]]
            place = (each.across.edges[column], each.up.edges[row])
            wide = each.across.edges[column + 1] - place[0]
            high = each.up.edges[row + 1] - place[1]
            cell = Rectangle(place, wide, high, facecolor=colours.get(value, "#d0d0d0"), edgecolor="white", linewidth=1)
            axes.add_patch(cell)
            middle = np.sqrt(place[0] * (place[0] + wide)), np.sqrt(place[1] * (place[1] + high))
            axes.text(
                *middle,
                f"{each.problems[row, column]}",
                fontsize=7,
                ha="center",
                va="center",
                color=_choose_text_colour(cell),
            )
        _set_log_axes(axes, each.across, each.up)
    handles = [Patch(facecolor=colours[name], label=cut_label(name, 40)) for name in shown]
    if len(names) > len(shown):
        handles.append(Patch(facecolor="#d0d0d0", label=f"{len(names) - len(shown)} others"))
    figure.legend(handles=handles, loc="outside right upper", fontsize=8, title=what, alignment="left")

    def list_regions() -> list[dict[str, Any]]:
        return [
            make_area_tooltips(_describe_regions(axes, each, share)) for axes, each in zip(panels, maps, strict=True)
        ]

    return figure, list_regions


def _describe_regions(axes: Axes, found: Regions, share: str) -> Iterator[tuple[list[float], str]]:
    """Every region with its tooltip: its best value with the efficiency, and the second-best value."""
    for row, column in np.argwhere(found.best >= 0).tolist():
        across, up = found.across.edges[column : column + 2], found.up.edges[row : row + 2]
        many = int(found.problems[row, column])
        best = f"{found.values[found.best[row, column]]}: {100 * found.mean[row, column]:.3g} % of {share}"
        lines = [best, f"{many} problem{'s' if many > 1 else ''}{', on average' if many > 1 else ''}"]
        if (then := found.next_best[row][column]) is not None:
            lines.append(f"then {then[0]}: {100 * then[1]:.3g} %")
        yield compute_box(axes, *across.tolist(), *up.tolist()), "\n".join(lines)


def _sort_by_use(maps: Sequence[Regions]) -> list[str]:
    """The values of all maps, those of most regions first."""
    used: dict[str, int] = {}
    for each in maps:
        for place in each.best[each.best >= 0].tolist():
            used[each.values[place]] = used.get(each.values[place], 0) + 1
    return sorted(used, key=lambda name: (-used[name], name))


def _choose_text_colour(cell: Any) -> str:
    red, green, blue, _ = cell.get_facecolor()
    return "#222222" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.55 else "#ffffff"


def _set_log_axes(axes: Axes, across: SizeBins, up: SizeBins) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlim(across.edges[0], across.edges[-1])
    axes.set_ylim(up.edges[0], up.edges[-1])
    axes.set_xlabel(across.name)
    axes.set_ylabel(up.name)
    for axis in (axes.xaxis, axes.yaxis):
        _set_short_numbers(axis)


@render_picture
def plot_failures(counts: Mapping[str, Mapping[str, int]], bad: Sequence[str]) -> Figure:
    """Missing results by status, and within a status by group; `bad` ones in red."""
    places = list(dict.fromkeys(place for by_place in counts.values() for place in by_place))
    figure, (axes,) = create_figure(7.4, 0.36 * len(counts) + 0.95)
    for row, (status, by_place) in enumerate(counts.items()):
        left = 0
        for place, count in by_place.items():
            colour = PALETTE[places.index(place) % len(PALETTE)]
            alone = BAD if status in bad else QUIET
            axes.barh(row, count, left=left, height=0.62, color=colour if len(places) > 1 else alone)
            left += count
        axes.annotate(f"{left:,}", (left, row), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(counts)), [name.replace("_", " ") for name in counts])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.1)
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("results")
    if len(places) > 1:
        from matplotlib.patches import Patch  # noqa: PLC0415

        handles = [Patch(color=PALETTE[i % len(PALETTE)], label=place) for i, place in enumerate(places)]
        figure.legend(handles=handles, loc="outside upper right", ncols=2, fontsize=8)
    return figure


@render_picture
def plot_coverage(found: Portfolio) -> Figure:
    """The efficiency of the first one, two, … kernels."""
    figure, (axes,) = create_figure(7.4, 4.6)
    draw_coverage(axes, found)
    return figure


# The most points whose numbers fit without touching.
LABELLED = 16


def draw_coverage(axes: Axes, found: Portfolio) -> None:
    """Mean and tenth percentile of the efficiency over the number of kernels, with numbers if they fit."""
    counts = range(1, len(found.order) + 1)
    for values, style, colour, label in (
        (found.supported, "--", QUIET, "problems computed"),
        (found.coverage, "o-", BEST, "mean"),
        (found.low, "v-", SECOND, "nine of ten problems reach"),
    ):
        axes.plot(counts, [100 * each for each in values], style, ms=4, color=colour, label=label)
    if len(counts) <= LABELLED:
        for count, share in zip(counts, found.coverage, strict=True):
            text = axes.annotate(f"{100 * share:.1f}", (count, 100 * share), (0, 7), textcoords="offset points")
            text.set(size=8, color=BEST, ha="center")
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5})
    axes.set_ylim(top=104)
    axes.set_xlabel("kernels kept")
    axes.set_ylabel("% of the best kernel of each problem")
    axes.locator_params(axis="x", integer=True)
    axes.legend(loc="lower right")


def _set_short_numbers(axis: Any) -> None:
    """64, 4k, 1M on an axis of powers of two."""
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator  # noqa: PLC0415

    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: _format_short(value)))


def _format_short(value: float) -> str:
    for unit, name in ((2.0**40, "T"), (2.0**30, "G"), (2.0**20, "M"), (2.0**10, "k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"
