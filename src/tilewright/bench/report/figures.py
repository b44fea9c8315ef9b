"""The numbers behind the pictures of a report: the best kernels, their lead, their regions, and failures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.bench.record import OK, STATUSES
from tilewright.bench.report.columns import Codes, Flags, Floats, ResultGroup
from tilewright.bench.report.group_data import GroupData

# Failures of a kernel. The other statuses are not: not tried, not supported, not recorded.
FAILURES = ("wrong", "fault", "build_failed", "timeout", "crashed", "out_of_memory")
QUARANTINED = "quarantined"
APART = ("unsupported", "not_recorded")

# The most rows and columns of a heat map that are distinguishable on a page of 1100 pixels.
HEAT_KERNELS = 48
HEAT_PROBLEMS = 120
# The most cells of a region map along each axis.
REGION_BINS = 12

Integers = NDArray[np.int64]


def compute_least(group: ResultGroup, values: Floats) -> Floats:
    """The least value of a correct kernel for each problem; inf if there is none."""
    found = np.full(len(group.problems), np.inf)
    use = group.ok & ~np.isnan(values)
    np.minimum.at(found, group.problem[use], values[use])
    return found


def compute_efficiency(group: ResultGroup, values: Floats) -> Floats:
    """For each result, the least value of its problem divided by its own: 1 is best. nan without a value."""
    best = compute_least(group, values)[group.problem]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(values == best, 1.0, best / values)  # 0 compared with 0 is best, too
    return np.where(group.ok & ~np.isnan(values), share, np.nan)


def compute_ranks(group: ResultGroup, values: Floats) -> Integers:
    """The rank of each result in its problem: 0 is best. Results without a value come last."""
    filled = np.where(group.ok & ~np.isnan(values), values, np.inf)
    order = np.lexsort((group.kernel, filled, group.problem))
    starts = np.searchsorted(group.problem, np.arange(len(group.problems)))
    place = np.empty(len(group), np.int64)
    place[order] = np.arange(len(group)) - starts[group.problem]  # both are sorted by problem
    return place


@dataclass(frozen=True, eq=False)
class Standing:
    """For each kernel: the numbers of correct and failed results, and its efficiency.

    In `mean`, a problem that the kernel was tried on and did not compute counts as 0.
    """

    tried: Integers
    right: Integers
    failed: Integers
    wins: Integers
    mean: Floats

    @property
    def order(self) -> Integers:
        """Kernels, the best first: by mean, then by number of wins."""
        return np.lexsort((np.arange(len(self.mean)), -self.wins, -self.mean))


def compute_standing(group: ResultGroup, shares: Floats) -> Standing:
    """The standing of each kernel, from its efficiencies."""
    kernels = len(group.kernels)
    failed = np.isin(group.status, [STATUSES.index(each) for each in (*FAILURES, QUARANTINED)])
    apart = np.isin(group.status, [STATUSES.index(each) for each in APART])
    tried = _count(group.kernel[~apart], kernels)
    total = np.bincount(group.kernel, np.nan_to_num(shares), kernels)
    return Standing(
        tried=tried,
        right=_count(group.kernel[group.ok], kernels),
        failed=_count(group.kernel[failed], kernels),
        wins=_count(group.kernel[shares == 1.0], kernels),
        mean=np.divide(total, tried, out=np.zeros(kernels), where=tried > 0),
    )


@dataclass(frozen=True, eq=False)
class Heat:
    """A map of kernels × problems. A column may hold several problems of similar work; `members` has their number.

    `mean` is over the correct results of a cell, nan without any. `failed` is the share of its results that failed,
    `apart` the share without a value that did not fail, nan in cells without results. `status` is the status of a
    result without a value, preferably of a failure: its index in STATUSES, -1 if all have values.
    """

    kernels: Integers  # indices, best first
    kernels_left: int
    columns: Codes  # of each problem
    members: Integers
    work: Floats  # operations of the smallest problem of each column; nan if unknown
    mean: Floats
    failed: Floats
    apart: Floats
    status: Codes


def compute_heat(group: ResultGroup, facts: GroupData, values: Floats, order: Integers) -> Heat:
    """Values by kernel and problem, problems ordered by their work."""
    shown = order[:HEAT_KERNELS]
    row_of = np.full(len(group.kernels), -1)
    row_of[shown] = np.arange(len(shown))
    problems = len(group.problems)
    columns = min(problems, HEAT_PROBLEMS)
    by_work = np.lexsort((np.arange(problems), np.nan_to_num(facts.flops)))
    column_of = np.empty(problems, np.int32)
    column_of[by_work] = np.arange(problems) * columns // problems
    rows = row_of[group.kernel]
    cell = rows * columns + column_of[group.problem]
    here = rows >= 0
    size = len(shown) * columns

    def sum_cells(which: Flags, weights: Floats | None = None) -> Floats:
        picked = here & which
        chosen = None if weights is None else weights[picked]
        return np.bincount(cell[picked], chosen, size).astype(np.float64).reshape(len(shown), columns)

    valued = group.ok & ~np.isnan(values)
    failed = np.isin(group.status, [STATUSES.index(each) for each in (*FAILURES, QUARANTINED)])
    status = np.full(size, -1, np.int32)
    for which in (~group.ok & ~failed, failed):  # later ones win
        status[cell[here & which]] = group.status[here & which]
    with np.errstate(invalid="ignore", divide="ignore"):
        every = sum_cells(np.ones(len(group), bool))
        return Heat(
            kernels=shown,
            kernels_left=len(order) - len(shown),
            columns=column_of,
            members=_count(column_of, columns),
            work=facts.flops[by_work[np.searchsorted(column_of[by_work], np.arange(columns))]],
            mean=sum_cells(valued, values) / sum_cells(valued),
            failed=sum_cells(failed) / every,
            apart=(every - sum_cells(group.ok) - sum_cells(failed)) / every,
            status=status.reshape(len(shown), columns),
        )


@dataclass(frozen=True, eq=False)
class SizeBins:
    """A problem size in bins that are even on a logarithmic scale: their edges, and each problem's bin."""

    name: str
    edges: Floats
    bins: Codes


@dataclass(frozen=True, eq=False)
class Regions:
    """The best value of each region of the problem space: its index in `values`, -1 in regions without problems.

    A value is a tile, or another property of kernels. `mean` is its average efficiency in the region; `next_best` is
    the second-best value with its own efficiency.
    """

    across: SizeBins
    up: SizeBins
    values: tuple[str, ...]  # those that are best somewhere, most regions first
    # All of shape up × across:
    best: Codes
    problems: Integers  # with a correct result
    mean: Floats
    next_best: tuple[tuple[tuple[str, float] | None, ...], ...]  # None without another value


def find_regions(
    group: ResultGroup, compared: Sequence[str], measured: Floats, across: SizeBins, up: SizeBins
) -> Regions:
    """For each region, the value with the highest average efficiency; ties are decided by name.

    `compared` has the value of each kernel, such as its tile.
    """
    shares = np.nan_to_num(compute_efficiency(group, measured))
    names = tuple(sorted(set(compared)))
    number = {name: i for i, name in enumerate(names)}
    value_of = np.array([number[value] for value in compared])
    # The best kernel of each value for each problem.
    best = np.zeros((len(group.problems), len(names)))
    np.maximum.at(best, (group.problem, value_of[group.kernel]), shares)
    wide, high = len(across.edges) - 1, len(up.edges) - 1
    computed = best.max(axis=1, initial=0) > 0
    cell = (up.bins * wide + across.bins)[computed]
    total = np.zeros((wide * high, len(names)))
    np.add.at(total, cell, best[computed])
    count = _count(cell, wide * high)
    mean = total / np.maximum(count, 1)[:, None]
    winner = np.where(count > 0, mean.argmax(axis=1), -1)
    used = Counter(winner[winner >= 0].tolist())
    order = sorted(used, key=lambda value: (-used[value], names[value]))
    place = np.full(len(names) + 1, -1)
    place[order] = np.arange(len(order))
    return Regions(
        across=across,
        up=up,
        values=tuple(names[value] for value in order),
        best=place[winner].reshape(high, wide).astype(np.int32),
        problems=count.reshape(high, wide),
        mean=mean.max(axis=1).reshape(high, wide),
        next_best=tuple(
            tuple(_find_next_best(names, mean[row * wide + i]) for i in range(wide)) for row in range(high)
        ),
    )


def _find_next_best(names: Sequence[str], mean: Floats) -> tuple[str, float] | None:
    if len(names) < 2:
        return None
    place = int(np.argsort(-mean, kind="stable")[1])
    return (names[place], float(mean[place])) if mean[place] > 0 else None


def make_bins(name: str, values: Floats) -> SizeBins | None:
    """Bins of a factor of two, or of more if there were too many. None if a value is unknown, or one bin holds all."""
    if np.isnan(values).any() or values.min() <= 0:
        return None
    low, high = float(np.floor(np.log2(values.min()))), float(np.floor(np.log2(values.max()))) + 1
    step = float(np.ceil((high - low) / REGION_BINS))
    count = int(np.ceil((high - low) / step))
    if count < 2:
        return None
    edges: Floats = np.exp2(low + step * np.arange(count + 1, dtype=np.float64))
    bins = np.clip(np.floor((np.log2(values) - low) / step), 0, count - 1)
    return SizeBins(name, edges, bins.astype(np.int32))


def find_widest(facts: GroupData) -> list[SizeBins]:
    """The problem sizes with the widest range, widest first."""
    spread = {name: float(np.std(np.log2(values))) for name, values in facts.sizes.items()}
    names = sorted((name for name in spread if spread[name] > 0), key=lambda name: (-spread[name], name))
    found = (make_bins(facts.describe_size(name), facts.sizes[name]) for name in names)
    return [each for each in found if each is not None]


@dataclass(frozen=True)
class Reason:
    """Failures with the same message except for numbers: their count, the number of kernels, and one message."""

    status: str
    count: int
    kernels: int
    example: str


_NUMBERS = re.compile(r"0x[0-9a-f]+|[0-9a-f]{12,}|[0-9]+(\.[0-9]+)?", re.IGNORECASE)


def collect_reasons(groups: Sequence[ResultGroup]) -> list[Reason]:
    """The reasons for missing results, most frequent first. Messages that differ only in numbers are one reason."""
    counts: Counter[tuple[str, str]] = Counter()
    kernels: dict[tuple[str, str], set[str]] = {}
    examples: dict[tuple[str, str], str] = {}
    for group in groups:
        patterns = [_NUMBERS.sub("#", message) for message in group.messages]
        bad = group.status != STATUSES.index(OK)
        seen: Counter[tuple[int, int, int]] = Counter(
            zip(group.status[bad].tolist(), group.message[bad].tolist(), group.kernel[bad].tolist(), strict=True)
        )
        for (status, message, kernel), count in seen.items():
            key = (STATUSES[status], patterns[message])
            counts[key] += count
            kernels.setdefault(key, set()).add(group.kernels[kernel])
            text = group.messages[message]
            examples[key] = min(examples.get(key, text), text)
    order = sorted(counts, key=lambda key: (-counts[key], key))
    return [Reason(key[0], counts[key], len(kernels[key]), examples[key]) for key in order]


def _count(codes: NDArray[np.integer], size: int) -> Integers:
    return np.bincount(codes, minlength=size).astype(np.int64)
