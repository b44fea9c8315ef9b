"""The sections of a report: one for each group of comparable results, with its pictures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright import arch as archs
from tilewright.arch.spec import Arch
from tilewright.bench.gpu_model import gpu_of
from tilewright.bench.report import heat_plots, plots
from tilewright.bench.report.columns import COUNTERS, EMULATED, GPU, Floats, Group, Where
from tilewright.bench.report.facts import Facts
from tilewright.bench.report.figures import (
    FAILURES,
    HEAT_KERNELS,
    QUARANTINED,
    Axis,
    Standing,
    axis,
    efficiency,
    heat,
    least,
    regions,
    standing,
    widest,
)
from tilewright.bench.report.findings import Finding, counter_findings, coverage_words, roof_of, time_findings
from tilewright.bench.report.heat_plots import Panel
from tilewright.bench.report.plots import Scatter
from tilewright.bench.report.rows import KIB, Grid, counters_of, kernels_grid, problems_grid
from tilewright.bench.report.spots import Named
from tilewright.bench.report.style import Picture
from tilewright.select.portfolio import Portfolio
from tilewright.select.portfolio import choose as choose_kernels

# The most kernels on the curve of kernel set sizes.
KEPT = 24
# The candidates for it: the best by mean, and those with the most wins.
KEPT_FROM = 96
# Of tables in a section.
EXAMPLES = 8


@dataclass(frozen=True)
class Plot:
    """A picture with a heading and a description. A wide one takes a whole row of the page."""

    title: str
    text: str
    picture: Picture
    wide: bool = False


@dataclass(frozen=True)
class Section:
    """The part of the page about one group."""

    name: str
    title: str
    timed: bool
    findings: tuple[Finding, ...]
    facts: tuple[tuple[str, str], ...]
    plots: tuple[Plot, ...]
    kernels: Grid
    problems: Grid


def place_words(where: Where, *, software: str = "") -> str:
    """The origin of results: `gemm on gfx942, AMD Instinct MI300X`, or `…, GPU` if the model is unknown."""
    kind, _, name = where.device.partition(":")
    if kind == GPU:
        device = gpu_of(where.versions) or "GPU"
    else:
        device = f"emulated {name}" if kind == EMULATED else f"{kind} of {name}"
    more = [", cold caches"] if where.cold else []
    return "".join([f"{where.op} on {where.arch}, {device}", *more, f", software {software}" if software else ""])


def decisive(group: Group) -> Floats:
    """The values that kernels are ordered by: times, or else touched cache lines."""
    return group.us if group.where.kind != COUNTERS else counters_of(group)["cache_lines"]


def section(number: int, title: str, group: Group, facts: Facts) -> Section:
    """The section of a group."""
    arch = archs.load(group.where.arch)
    timed = group.where.kind != COUNTERS
    values = decisive(group)
    shares = efficiency(group, values)
    found = standing(group, shares)
    few = _few_kernels(group, found) if timed and group.ok.any() else None
    if timed:
        plots = _time_plots(group, facts, arch, shares, found, few)
        findings = time_findings(group, facts, arch, found, few)
    else:
        plots = _counter_plots(group, facts, arch, shares, found)
        findings = counter_findings(group, facts, found)
    return Section(
        name=f"section-{number}",
        title=title,
        timed=timed,
        findings=tuple(findings),
        facts=tuple(_section_facts(group, facts, arch)),
        plots=tuple(plots) if group.ok.any() else (),
        kernels=kernels_grid(f"kernels-{number}", group, facts, found),
        problems=problems_grid(f"problems-{number}", group, facts, values, roof_of(facts, arch)),
    )


def _section_facts(group: Group, facts: Facts, arch: Arch) -> Iterator[tuple[str, str]]:
    yield "GPU", _gpu_words(group.where, arch)
    yield coverage_words(group, facts)
    if group.where.recorded:
        yield "verified", "where it was recorded, or not at all: nothing was run for the results of this page"
    said = "recorded" if group.where.recorded else "right"
    yield said, f"{int(group.ok.sum()):,} ({_percent(int(group.ok.sum()), len(group))} of the results)"
    lacking = np.flatnonzero(~np.isfinite(least(group, np.where(group.ok, 1.0, np.nan))))
    if len(lacking):
        words = "; ".join(facts.problem_words[i] for i in lacking[:EXAMPLES])
        more = f"; and {len(lacking) - EXAMPLES:,} more" if len(lacking) > EXAMPLES else ""
        yield "problems without a correct kernel", words + more
    if facts.problem_shared:
        yield "all problems have", facts.problem_shared
    if facts.kernel_shared:
        yield "all kernels have", facts.kernel_shared
    if group.where.versions:
        yield "software", software_words(group.where.versions)


def _gpu_words(where: Where, arch: Arch) -> str:
    """The measured model, if known, and the product whose rates the GPU's file has."""
    model = gpu_of(where.versions)
    if model is None or arch.product in model:
        return f"{arch.name}, {model or arch.product}"
    return f"{arch.name}, {model}; rates and bandwidth are those of {arch.product} in the GPU's file"


def software_words(versions: str) -> str:
    """The output of `format_versions` in words; any other text unchanged."""
    if not versions.startswith("{"):
        return versions
    return ", ".join(f"{name} {version}" for name, version in json.loads(versions).items())


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.4g} %" if whole else "none"


def _time_plots(
    group: Group, facts: Facts, arch: Arch, shares: Floats, found: Standing, few: Portfolio | None
) -> Iterator[Plot]:
    if np.isfinite(facts.intensity[group.problem[group.ok]]).any():
        yield _roofline(group, facts, arch, shares)
    if few is not None:
        yield _few_plot(group, few, len(_candidates(found)))
    yield from _region_plot(group, facts)
    left = _left_out(heat_left(found))
    cells = heat(group, facts, 100 * shares, found.order)
    known = cells.mean[np.isfinite(cells.mean)]
    low = min(90, 10 * int(np.percentile(known, 2) // 10))  # the light end: colours cover the values that occur
    ends = f"; lightest: {low} and less" if low else ""
    yield Plot(
        "Kernels × problems",
        f"The best time of a problem divided by each kernel's time, in percent: dark is best. {_MARKS}{left}",
        heat_plots.heat_maps(
            [Panel(cells, "% of the best", low, 100, "YlGnBu", ends)], facts.kernel_words, facts.problem_words
        ),
        wide=True,
    )


_MARKS = (
    "Kernels with the best mean are on top. A red cross: every result of the cell failed; a red dot: a quarter or more "
    "failed. Grey: not supported, or not recorded. White: of another kind, or no result."
)


def heat_left(found: Standing) -> int:
    """The number of kernels that do not fit into a heat map."""
    return max(0, len(found.mean) - HEAT_KERNELS)


def _left_out(kernels: int) -> str:
    return f" {kernels:,} kernels with lower means are not shown." if kernels else ""


def _roofline(group: Group, facts: Facts, arch: Arch, shares: Floats) -> Plot:
    tflops = facts.flops[group.problem] / group.us / 1e6
    dtypes = sorted(set(facts.dtypes) - {""})
    unknown = [name for name in dtypes if name not in arch.peak_tflops]
    told = f" The GPU's file has no matrix rate for {', '.join(unknown)}." if unknown else ""
    return Plot(
        "Roofline",
        f"Peaks are those of {arch.product} in the GPU's file. Bytes are the least that must be moved, so results "
        f"that reuse a cache can lie above the slope.{told}",
        plots.roofline(_scatter(group, facts, tflops, shares), arch, dtypes),
    )


def _scatter(group: Group, facts: Facts, up: Floats, shares: Floats) -> Scatter:
    """Results over the intensities of their problems."""
    named = Named(facts.kernel_words, facts.problem_words)
    return Scatter(facts.intensity[group.problem], up, shares == 1.0, group.kernel, group.problem, named)


def _few_kernels(group: Group, found: Standing) -> Portfolio:
    """Only the best kernels are considered: a matrix of all would not fit into memory in a large sweep."""
    chosen = _candidates(found)
    column = np.full(len(group.kernels), -1)
    column[chosen] = np.arange(len(chosen))
    rows = group.ok & (column[group.kernel] >= 0)
    times = np.full((len(group.problems), len(chosen)), np.nan)
    times[group.problem[rows], column[group.kernel[rows]]] = group.us[rows]
    return choose_kernels(times, min(KEPT, len(chosen)), swap=False)


def _candidates(found: Standing) -> NDArray[np.int64]:
    by_wins = np.lexsort((np.arange(len(found.wins)), -found.wins))
    return np.unique(np.concatenate([found.order[:KEPT_FROM], by_wins[:KEPT_FROM]]))


def _few_plot(group: Group, few: Portfolio, looked_at: int) -> Plot:
    left = len(group.kernels) - looked_at
    told = f" Chosen from the {looked_at} best; {left:,} others are not considered." if left else ""
    return Plot(
        "How few kernels suffice",
        "The efficiency of the best one, two, … kernels for these problems, chosen one after another."
        f"{told} The command tilewright portfolio writes such a set.",
        plots.coverage(few),
    )


def _region_plot(group: Group, facts: Facts) -> Iterator[Plot]:
    pairs = list(_axes(facts))
    if not pairs:
        return
    maps = [regions(group, facts, decisive(group), across, up) for across, up in pairs]
    what = "tile" if facts.has_tiles else "kernel"
    if group.where.kind == COUNTERS:
        text = f"The {what} that touches the fewest lines of global memory. This is not an order by speed."
        share = "the fewest lines"
    else:
        text = f"The {what} that is closest to the best of each problem in a region, on average."
        share = "the best"
    yield Plot(
        f"Best {what} by region" if group.where.kind != COUNTERS else f"Least traffic by region: {what}",
        f"{text} Numbers are problems; 1k is 1024.",
        plots.region_maps(maps, what, share),
        wide=True,
    )


def _axes(facts: Facts) -> Iterator[tuple[Axis, Axis]]:
    """Work over intensity, and the two sizes with the widest range."""
    if not np.isnan(facts.intensity).any():
        across, up = axis("FLOP per byte", facts.intensity), axis("FLOP", facts.flops)
        if across is not None and up is not None:
            yield across, up
    if len(sizes := widest(facts)) >= 2:
        yield sizes[0], sizes[1]


def _counter_plots(group: Group, facts: Facts, arch: Arch, shares: Floats, found: Standing) -> Iterator[Plot]:
    counted = counters_of(group)
    moved = counted["global_read_bytes"] + counted["global_write_bytes"]
    flops = facts.flops[group.problem]
    if np.isfinite((flops / moved)[group.ok]).any() and np.isfinite(facts.intensity).any():
        yield Plot(
            "Requested from memory",
            "Operations per byte that lanes requested from global memory, over those that the problem allows: the "
            "lower, the more often the same bytes are requested. Caches serve some of these requests. The dashed line "
            "is where the GPU's matrix rate and bandwidth meet. This picture shows no times.",
            plots.traffic(_scatter(group, facts, flops / moved, shares), _ridge(facts, arch)),
        )
    yield from _region_plot(group, facts)
    yield from _counter_maps(group, facts, found)


def _ridge(facts: Facts, arch: Arch) -> float | None:
    peaks = [arch.peak_tflops[name] for name in set(facts.dtypes) if name in arch.peak_tflops]
    return 1e3 * max(peaks) / arch.memory.bandwidth_gbs if peaks else None


def _counter_maps(group: Group, facts: Facts, found: Standing) -> Iterator[Plot]:
    """Two figures of two maps each, with the kernels in the same order in all."""
    counted = counters_of(group)
    moved = counted["global_read_bytes"] + counted["global_write_bytes"]
    lds = (counted["lds_read_bytes"] + counted["lds_write_bytes"]) / KIB
    with np.errstate(divide="ignore", invalid="ignore"):
        conflicts = np.where(lds > 0, counted["bank_conflict_cycles"] / lds, np.where(group.ok, 0.0, np.nan))
    work = counted["matrix_flops"] / facts.flops[group.problem]
    left = _left_out(heat_left(found))
    figures = (
        (
            "Kernels × problems: work and bytes",
            "Left: matrix operations divided by the problem's operations; above 1, tiles exceed the problem; below 1, "
            "masked parts were skipped. Right: bytes that lanes requested from global memory, divided by the fewest of "
            "any kernel for the problem.",
            ((work, "matrix operations, × needed", 1.0), (over_least(group, moved), "global bytes, × fewest", 1.0)),
        ),
        (
            "Kernels × problems: lines and conflicts",
            "Left: cache lines touched, divided by the fewest of any kernel for the problem. Right: cycles lost to LDS "
            "bank conflicts per KiB of LDS traffic.",
            (
                (over_least(group, counted["cache_lines"]), "cache lines, × fewest", 1.0),
                (conflicts, "conflict cycles per KiB of LDS", 0.0),
            ),
        ),
    )
    for title, text, pair in figures:
        panels = [_panel(group, facts, found, *each) for each in pair if not np.isnan(each[0]).all()]
        if panels:
            drawn = heat_plots.heat_maps(panels, facts.kernel_words, facts.problem_words)
            yield Plot(title, f"{text} Light is best. {_COUNTER_MARKS}{left}", drawn, wide=True)


_COUNTER_MARKS = (
    "Kernels that touch the fewest lines are on top. A red cross: every result of the cell failed; a red dot: a "
    "quarter or more failed. Grey: not supported. White: of another kind, or no result. "
    "Dark is the 98th percentile and above."
)


def over_least(group: Group, values: Floats) -> Floats:
    """Values divided by the least of their problem: 1 is best."""
    with np.errstate(divide="ignore"):
        return 1 / efficiency(group, values)


def _panel(group: Group, facts: Facts, found: Standing, values: Floats, label: str, low: float) -> Panel:
    cells = heat(group, facts, values, found.order)
    known = cells.mean[np.isfinite(cells.mean)]
    high = max(low + 0.5, float(np.percentile(known, 98)) if len(known) else low)
    return Panel(cells, label, low, high, "YlOrBr")


def failure_counts(groups: list[tuple[str, Group]], statuses: tuple[str, ...]) -> dict[str, dict[str, int]]:
    """The number of results by status and group, most frequent statuses first; without zeros."""
    found = {status: {place: count for place, group in groups if (count := group.count(status))} for status in statuses}
    kept = {status: by_place for status, by_place in found.items() if by_place}
    return dict(sorted(kept.items(), key=lambda pair: -sum(pair[1].values())))


def summary_row(place: str, group: Group) -> dict[str, str]:
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
