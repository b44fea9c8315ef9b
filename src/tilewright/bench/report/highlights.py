"""The highlights of a report: which kernels win, by how much, how few kernels suffice, and the best rates.

For counters: which kernels cause the least memory traffic. That is not an order by speed, and the text says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilewright.arch.spec import Arch
from tilewright.bench.report.columns import Floats, ResultGroup
from tilewright.bench.report.figures import FAILURES, QUARANTINED, Standing, compute_least
from tilewright.bench.report.group_data import GroupData
from tilewright.bench.report.plots import compute_memory_slope
from tilewright.bench.report.rows import collect_counters
from tilewright.select.portfolio import Portfolio

# Efficiencies for which the highlights list how many kernels reach them.
ENOUGH = (0.95, 0.99)
# Kernels that are listed by number of wins.
MOST_WINNERS = 3


@dataclass(frozen=True)
class Highlight:
    """A line: a topic, a figure, an explanation, and the full kernel name if it is about one."""

    about: str
    figure: str
    text: str
    kernel: str = ""


def compute_roofline(facts: GroupData, arch: Arch) -> Floats:
    """The TFLOPS that the GPU's matrix rate and bandwidth allow for each problem; nan if a rate is unknown."""
    peaks = np.array([arch.peak_tflops.get(name, np.nan) for name in facts.dtypes], np.float64)
    return np.minimum(peaks, compute_memory_slope(arch) * facts.intensity)


def find_time_highlights(
    group: ResultGroup, facts: GroupData, arch: Arch, found: Standing, few: Portfolio | None
) -> Iterator[Highlight]:
    """The highlights of a group with times."""
    yield _count_computed(group)
    if group.ok.any():
        yield from _find_winners(group, facts, found)
        if few is not None:
            yield from _describe_portfolio(few)
        yield from _describe_rates(group, facts, arch)
    yield from _count_failed(group)


def find_counter_highlights(group: ResultGroup, facts: GroupData, found: Standing) -> Iterator[Highlight]:
    """The highlights of a group with counters, which never mention speed."""
    yield _count_computed(group)
    if group.ok.any():
        yield from _find_least_traffic(group, facts, found)
    yield from _count_failed(group)


def _find_winners(group: ResultGroup, facts: GroupData, found: Standing) -> Iterator[Highlight]:
    problems = int(np.isfinite(compute_least(group, group.us)).sum())
    alone = int(found.order[0])
    often, *others = np.argsort(-found.wins, kind="stable")[:MOST_WINNERS].tolist()
    then = [f"{found.wins[i]:,}: {facts.kernel_words[i]}" for i in others if found.wins[i]]
    yield Highlight(
        "best single kernel",
        f"{100 * found.mean[alone]:.3g} %",
        f"of the best time on average: {facts.kernel_words[alone]}",
        group.kernels[alone],
    )
    yield Highlight(
        "most wins",
        f"{found.wins[often]:,} of {problems:,}",
        f"problems: {facts.kernel_words[often]}" + (f"; then {', '.join(then)}" if then else ""),
        group.kernels[often],
    )


def _find_least_traffic(group: ResultGroup, facts: GroupData, found: Standing) -> Iterator[Highlight]:
    counted = collect_counters(group)
    if problems := int(np.isfinite(compute_least(group, counted["cache_lines"])).sum()):
        often = int(np.argmax(found.wins))
        others = int((found.wins == found.wins[often]).sum()) - 1
        yield Highlight(
            "fewest lines",
            f"{found.wins[often]:,} of {problems:,}",
            f"problems: {facts.kernel_words[often]}" + (f", and {others:,} more equally often" if others else ""),
            group.kernels[often],
        )
    work = (counted["matrix_flops"] / facts.flops[group.problem])[group.ok]
    if np.isfinite(work).any():
        yield Highlight(
            "matrix work",
            f"× {np.nanmedian(work):.3g}",
            f"the problem's operations in the median, at most × {np.nanmax(work):.3g}: tiles exceed the problem",
        )


_COMPUTED = "problems have a kernel that computes them correctly"


def _count_computed(group: ResultGroup) -> Highlight:
    right, total = len(np.unique(group.problem[group.ok])), len(group.problems)
    text = "problems have a recorded time" if group.where.recorded else _COMPUTED
    return Highlight("computed", f"{right:,} of {total:,}", text)


def _describe_portfolio(found: Portfolio) -> Iterator[Highlight]:
    """Rounded as in the plot, so that both show the same number."""
    shares = np.round(found.coverage, 3)
    counts = {enough: int(np.argmax(shares >= enough)) + 1 for enough in ENOUGH if (shares >= enough).any()}
    if counts:
        first, *others = [f"reach {100 * enough:.3g} %" for enough in counts]
        least_count, *more = counts.values()
        then = "".join(f", {count:,} {words}" for count, words in zip(more, others, strict=True))
        figure = f"{least_count:,} kernel{'s' if least_count > 1 else ''}"
        yield Highlight(
            "small set", figure, f"{first}{then} of the best on average, choosing the best for each problem"
        )


def _describe_rates(group: ResultGroup, facts: GroupData, arch: Arch) -> Iterator[Highlight]:
    best = compute_least(group, group.us)
    rate = np.where(np.isfinite(best), facts.flops / best / 1e6, np.nan)
    if not np.isfinite(rate).any():
        return
    top = int(np.nanargmax(rate))
    share = rate / compute_roofline(facts, arch)
    text = f"at most, for {facts.problem_words[top]}"
    if np.isfinite(share).any():
        text += f"; the best kernels reach {100 * np.nanmedian(share):.3g} % of the GPU's roofline in the median"
    yield Highlight("rate", f"{rate[top]:,.4g} TFLOPS", text)


def _count_failed(group: ResultGroup) -> Iterator[Highlight]:
    if failed := group.count(*FAILURES, QUARANTINED):
        counts = {status: group.count(status) for status in (*FAILURES, QUARANTINED)}
        parts = sorted(((count, status) for status, count in counts.items() if count), reverse=True)
        said = ", ".join(f"{count:,} {status.replace('_', ' ')}" for count, status in parts)
        yield Highlight("failed", f"{failed:,} of {len(group):,}", f"results: {said}")


def describe_coverage(group: ResultGroup, facts: GroupData) -> tuple[str, str]:
    """The share of pairs that were measured, out of all pairs of a kernel and a problem of its kind."""
    asked = f"{len(group.kernels):,} × {len(group.problems):,}"
    if facts.pairs is None:
        text = f"{len(group):,} of {asked} pairs have a result; the kind of some kernels is unknown from their names"
        return "coverage", text
    share = f"{100 * len(group) / facts.pairs:.4g} %" if facts.pairs else "none"
    text = f"{share}: {len(group):,} of {facts.pairs:,} pairs of a kernel and a problem of its kind have a result"
    if others := len(group.kernels) * len(group.problems) - facts.pairs:
        return "coverage", f"{text}. {others:,} more of {asked} do not count: kernel and problem have different kinds"
    return "coverage", f"{text} ({asked})"
