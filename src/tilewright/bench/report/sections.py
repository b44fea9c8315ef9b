"""The sections of a report: one for each group of comparable results, with its pictures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright import arch as archs
from tilewright.arch.spec import Arch
from tilewright.bench.gpu_model import get_gpu_model
from tilewright.bench.report import heat_plots, plots
from tilewright.bench.report.columns import COUNTERS, EMULATED, GPU, Floats, ResultContext, ResultGroup
from tilewright.bench.report.figures import (
    FAILURES,
    HEAT_KERNELS,
    QUARANTINED,
    Regions,
    SizeBins,
    Standing,
    compute_efficiency,
    compute_heat,
    compute_least,
    compute_standing,
    find_regions,
    find_widest,
    make_bins,
)
from tilewright.bench.report.group_data import GroupData
from tilewright.bench.report.heat_plots import Panel
from tilewright.bench.report.highlights import (
    Highlight,
    compute_roofline,
    describe_coverage,
    find_counter_highlights,
    find_time_highlights,
)
from tilewright.bench.report.plots import Scatter
from tilewright.bench.report.rows import KIB, Grid, build_kernels_grid, build_problems_grid, collect_counters
from tilewright.bench.report.style import Picture
from tilewright.bench.report.tooltips import GroupLabels
from tilewright.select.portfolio import Portfolio
from tilewright.select.portfolio import choose_portfolio as choose_kernels

# The most kernels on the curve of kernel set sizes.
KEPT = 24
# The candidates for it: the best by mean, and those with the most wins.
KEPT_FROM = 96
# Of tables in a section.
EXAMPLES = 8


@dataclass(frozen=True)
class ReportPlot:
    """A picture with a heading and a description. A wide one takes a whole row of the page."""

    title: str
    text: str
    picture: Picture
    wide: bool = False


@dataclass(frozen=True)
class ReportSection:
    """The part of the page about one group."""

    name: str
    title: str
    timed: bool
    findings: tuple[Highlight, ...]
    facts: tuple[tuple[str, str], ...]
    plots: tuple[ReportPlot, ...]
    kernels: Grid
    problems: Grid


def describe_context(where: ResultContext, *, software: str = "") -> str:
    """The origin of results: `gemm on gfx942, AMD Instinct MI300X`, or `…, GPU` if the model is unknown."""
    kind, _, name = where.device.partition(":")
    if kind == GPU:
        device = get_gpu_model(where.versions) or "GPU"
    else:
        device = f"emulated {name}" if kind == EMULATED else f"{kind} of {name}"
    more = [", cold caches"] if where.cold else []
    return "".join([f"{where.op} on {where.arch}, {device}", *more, f", software {software}" if software else ""])


def get_decisive_values(group: ResultGroup) -> Floats:
    """The values that kernels are ordered by: times, or else touched cache lines."""
    return group.us if group.where.kind != COUNTERS else collect_counters(group)["cache_lines"]


def build_section(number: int, title: str, group: ResultGroup, facts: GroupData) -> ReportSection:
    """The section of a group."""
    arch = archs.load(group.where.arch)
    timed = group.where.kind != COUNTERS
    values = get_decisive_values(group)
    shares = compute_efficiency(group, values)
    found = compute_standing(group, shares)
    few = _select_portfolio(group, found) if timed and group.ok.any() else None
    if timed:
        plots = _make_time_plots(group, facts, arch, shares, found, few)
        findings = find_time_highlights(group, facts, arch, found, few)
    else:
        plots = _make_counter_plots(group, facts, arch, shares, found)
        findings = find_counter_highlights(group, facts, found)
    return ReportSection(
        name=f"section-{number}",
        title=title,
        timed=timed,
        findings=tuple(findings),
        facts=tuple(_list_facts(group, facts, arch)),
        plots=tuple(plots) if group.ok.any() else (),
        kernels=build_kernels_grid(f"kernels-{number}", group, facts, found),
        problems=build_problems_grid(f"problems-{number}", group, facts, values, compute_roofline(facts, arch)),
    )


def _list_facts(group: ResultGroup, facts: GroupData, arch: Arch) -> Iterator[tuple[str, str]]:
    yield "GPU", _describe_gpu(group.where, arch)
    yield describe_coverage(group, facts)
    if group.where.recorded:
        yield "verified", "where it was recorded, or not at all: nothing was run for the results of this page"
    said = "recorded" if group.where.recorded else "right"
    yield said, f"{int(group.ok.sum()):,} ({_format_percent(int(group.ok.sum()), len(group))} of the results)"
    lacking = np.flatnonzero(~np.isfinite(compute_least(group, np.where(group.ok, 1.0, np.nan))))
    if len(lacking):
        words = "; ".join(facts.problem_words[i] for i in lacking[:EXAMPLES])
        more = f"; and {len(lacking) - EXAMPLES:,} more" if len(lacking) > EXAMPLES else ""
        yield "problems without a correct kernel", words + more
    if facts.problem_shared:
        yield "all problems have", facts.problem_shared
    if facts.kernel_shared:
        yield "all kernels have", facts.kernel_shared
    if group.where.versions:
        yield "software", describe_software(group.where.versions)


def _describe_gpu(where: ResultContext, arch: Arch) -> str:
    """The measured model, if known, and the product whose rates the GPU's file has."""
    model = get_gpu_model(where.versions)
    if model is None or arch.product in model:
        return f"{arch.name}, {model or arch.product}"
    return f"{arch.name}, {model}; rates and bandwidth are those of {arch.product} in the GPU's file"


def describe_software(versions: str) -> str:
    """The output of `format_versions` in words; any other text unchanged."""
    if not versions.startswith("{"):
        return versions
    return ", ".join(f"{name} {version}" for name, version in json.loads(versions).items())


def _format_percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.4g} %" if whole else "none"


def _make_time_plots(
    group: ResultGroup, facts: GroupData, arch: Arch, shares: Floats, found: Standing, few: Portfolio | None
) -> Iterator[ReportPlot]:
    if np.isfinite(facts.intensity[group.problem[group.ok]]).any():
        yield _make_roofline(group, facts, arch, shares)
    if few is not None:
        yield _make_portfolio_plot(group, few, len(_select_candidates(found)))
    yield from _make_region_plots(group, facts)
    left = _describe_omitted(count_omitted_kernels(found))
    cells = compute_heat(group, facts, 100 * shares, found.order)
    known = cells.mean[np.isfinite(cells.mean)]
    low = min(90, 10 * int(np.percentile(known, 2) // 10))  # the light end: colours cover the values that occur
    ends = f"; lightest: {low} and less" if low else ""
    yield ReportPlot(
        "Kernels × problems",
        f"The best time of a problem divided by each kernel's time, in percent: dark is best. {_MARKS}{left}",
        heat_plots.plot_heat_maps(
            [Panel(cells, "% of the best", low, 100, "YlGnBu", ends)], facts.kernel_words, facts.problem_words
        ),
        wide=True,
    )


_MARKS = (
    "Kernels with the best mean are on top. A red cross: every result of the cell failed; a red dot: a quarter or more "
    "failed. Grey: not supported, or not recorded. White: of another kind, or no result."
)


def count_omitted_kernels(found: Standing) -> int:
    """The number of kernels that do not fit into a heat map."""
    return max(0, len(found.mean) - HEAT_KERNELS)


def _describe_omitted(kernels: int) -> str:
    return f" {kernels:,} kernels with lower means are not shown." if kernels else ""


def _make_roofline(group: ResultGroup, facts: GroupData, arch: Arch, shares: Floats) -> ReportPlot:
    tflops = facts.flops[group.problem] / group.us / 1e6
    dtypes = sorted(set(facts.dtypes) - {""})
    unknown = [name for name in dtypes if name not in arch.peak_tflops]
    told = f" The GPU's file has no matrix rate for {', '.join(unknown)}." if unknown else ""
    return ReportPlot(
        "Roofline",
        f"Peaks are those of {arch.product} in the GPU's file. Bytes are the least that must be moved, so results "
        f"that reuse a cache can lie above the slope.{told}",
        plots.plot_roofline(_make_scatter(group, facts, tflops, shares), arch, dtypes),
    )


def _make_scatter(group: ResultGroup, facts: GroupData, up: Floats, shares: Floats) -> Scatter:
    """Results over the intensities of their problems."""
    named = GroupLabels(facts.kernel_words, facts.problem_words)
    return Scatter(facts.intensity[group.problem], up, shares == 1.0, group.kernel, group.problem, named)


def _select_portfolio(group: ResultGroup, found: Standing) -> Portfolio:
    """Only the best kernels are considered: a matrix of all would not fit into memory in a large sweep."""
    chosen = _select_candidates(found)
    column = np.full(len(group.kernels), -1)
    column[chosen] = np.arange(len(chosen))
    rows = group.ok & (column[group.kernel] >= 0)
    times = np.full((len(group.problems), len(chosen)), np.nan)
    times[group.problem[rows], column[group.kernel[rows]]] = group.us[rows]
    return choose_kernels(times, min(KEPT, len(chosen)), swap=False)


def _select_candidates(found: Standing) -> NDArray[np.int64]:
    by_wins = np.lexsort((np.arange(len(found.wins)), -found.wins))
    return np.unique(np.concatenate([found.order[:KEPT_FROM], by_wins[:KEPT_FROM]]))


def _make_portfolio_plot(group: ResultGroup, few: Portfolio, looked_at: int) -> ReportPlot:
    left = len(group.kernels) - looked_at
    told = f" Chosen from the {looked_at} best; {left:,} others are not considered." if left else ""
    return ReportPlot(
        "How few kernels suffice",
        "The efficiency of the best one, two, … kernels for these problems, chosen one after another."
        f"{told} The command tilewright portfolio writes such a set.",
        plots.plot_coverage(few),
    )


def _make_region_plots(group: ResultGroup, facts: GroupData) -> Iterator[ReportPlot]:
    pairs = list(_choose_axes(facts))
    if not pairs:
        return
    for what, compared in facts.compared.items():
        maps = [find_regions(group, compared, get_decisive_values(group), across, up) for across, up in pairs]
        yield _make_region_plot(group, what, maps)


def _make_region_plot(group: ResultGroup, what: str, maps: Sequence[Regions]) -> ReportPlot:
    if group.where.kind == COUNTERS:
        text = f"The {what} that touches the fewest lines of global memory. This is not an order by speed."
        share = "the fewest lines"
    else:
        text = f"The {what} that is closest to the best of each problem in a region, on average."
        share = "the best"
    return ReportPlot(
        f"Best {what} by region" if group.where.kind != COUNTERS else f"Least traffic by region: {what}",
        f"{text} Numbers are problems; 1k is 1024.",
        plots.plot_region_maps(maps, what, share),
        wide=True,
    )


def _choose_axes(facts: GroupData) -> Iterator[tuple[SizeBins, SizeBins]]:
    """Work over intensity, and the two sizes with the widest range."""
    if not np.isnan(facts.intensity).any():
        across, up = make_bins("FLOP per byte", facts.intensity), make_bins("FLOP", facts.flops)
        if across is not None and up is not None:
            yield across, up
    if len(sizes := find_widest(facts)) >= 2:
        yield sizes[0], sizes[1]


def _make_counter_plots(
    group: ResultGroup, facts: GroupData, arch: Arch, shares: Floats, found: Standing
) -> Iterator[ReportPlot]:
    counted = collect_counters(group)
    moved = counted["global_read_bytes"] + counted["global_write_bytes"]
    flops = facts.flops[group.problem]
    if np.isfinite((flops / moved)[group.ok]).any() and np.isfinite(facts.intensity).any():
        yield ReportPlot(
            "Requested from memory",
            "Operations per byte that lanes requested from global memory, over those that the problem allows: the "
            "lower, the more often the same bytes are requested. Caches serve some of these requests. The dashed line "
            "is where the GPU's matrix rate and bandwidth meet. This picture shows no times.",
            plots.plot_traffic(_make_scatter(group, facts, flops / moved, shares), _find_ridge(facts, arch)),
        )
    yield from _make_region_plots(group, facts)
    yield from _make_counter_maps(group, facts, found)


def _find_ridge(facts: GroupData, arch: Arch) -> float | None:
    peaks = [arch.peak_tflops[name] for name in set(facts.dtypes) if name in arch.peak_tflops]
    return 1e3 * max(peaks) / arch.memory.bandwidth_gbs if peaks else None


def _make_counter_maps(group: ResultGroup, facts: GroupData, found: Standing) -> Iterator[ReportPlot]:
    """Two figures of two maps each, with the kernels in the same order in all."""
    counted = collect_counters(group)
    moved = counted["global_read_bytes"] + counted["global_write_bytes"]
    lds = (counted["lds_read_bytes"] + counted["lds_write_bytes"]) / KIB
    with np.errstate(divide="ignore", invalid="ignore"):
        conflicts = np.where(lds > 0, counted["bank_conflict_cycles"] / lds, np.where(group.ok, 0.0, np.nan))
    work = counted["matrix_flops"] / facts.flops[group.problem]
    left = _describe_omitted(count_omitted_kernels(found))
    figures = (
        (
            "Kernels × problems: work and bytes",
            "Left: matrix operations divided by the problem's operations; above 1, tiles exceed the problem; below 1, "
            "masked parts were skipped. Right: bytes that lanes requested from global memory, divided by the fewest of "
            "any kernel for the problem.",
            (
                (work, "matrix operations, × needed", 1.0),
                (compute_ratio_to_least(group, moved), "global bytes, × fewest", 1.0),
            ),
        ),
        (
            "Kernels × problems: lines and conflicts",
            "Left: cache lines touched, divided by the fewest of any kernel for the problem. Right: cycles lost to LDS "
            "bank conflicts per KiB of LDS traffic.",
            (
                (compute_ratio_to_least(group, counted["cache_lines"]), "cache lines, × fewest", 1.0),
                (conflicts, "conflict cycles per KiB of LDS", 0.0),
            ),
        ),
    )
    for title, text, pair in figures:
        panels = [_make_panel(group, facts, found, *each) for each in pair if not np.isnan(each[0]).all()]
        if panels:
            drawn = heat_plots.plot_heat_maps(panels, facts.kernel_words, facts.problem_words)
            yield ReportPlot(title, f"{text} Light is best. {_COUNTER_MARKS}{left}", drawn, wide=True)


_COUNTER_MARKS = (
    "Kernels that touch the fewest lines are on top. A red cross: every result of the cell failed; a red dot: a "
    "quarter or more failed. Grey: not supported. White: of another kind, or no result. "
    "Dark is the 98th percentile and above."
)


def compute_ratio_to_least(group: ResultGroup, values: Floats) -> Floats:
    """Values divided by the least of their problem: 1 is best."""
    with np.errstate(divide="ignore"):
        return 1 / compute_efficiency(group, values)


def _make_panel(group: ResultGroup, facts: GroupData, found: Standing, values: Floats, label: str, low: float) -> Panel:
    cells = compute_heat(group, facts, values, found.order)
    known = cells.mean[np.isfinite(cells.mean)]
    high = max(low + 0.5, float(np.percentile(known, 98)) if len(known) else low)
    return Panel(cells, label, low, high, "YlOrBr")


def count_failures(groups: list[tuple[str, ResultGroup]], statuses: tuple[str, ...]) -> dict[str, dict[str, int]]:
    """The number of results by status and group, most frequent statuses first; without zeros."""
    found = {status: {place: count for place, group in groups if (count := group.count(status))} for status in statuses}
    kept = {status: by_place for status, by_place in found.items() if by_place}
    return dict(sorted(kept.items(), key=lambda pair: -sum(pair[1].values())))


def make_summary_row(place: str, group: ResultGroup) -> dict[str, str]:
    """A row of the page's first table."""
    return {
        "place": place,
        "holds": "counters, no time" if group.where.kind == COUNTERS else "times",
        "kernels": f"{len(group.kernels):,}",
        "problems": f"{len(group.problems):,}",
        "results": f"{len(group):,}",
        "right": f"{int(group.ok.sum()):,}",
        "failed": f"{group.count(*FAILURES):,}",
        "quarantined": f"{group.count(QUARANTINED):,}",
        "unsupported": f"{group.count('unsupported'):,}",
        "not recorded": f"{group.count('not_recorded'):,}",
    }
