"""The sortable tables of a report: which results they show, and their columns as the page's script reads them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.bench.record import STATUSES
from tilewright.bench.report.columns import COUNTERS, Flags, Floats, ResultGroup
from tilewright.bench.report.figures import Standing, compute_efficiency, compute_ranks
from tilewright.bench.report.group_data import GroupData

# The most rows of all result tables together: some megabytes, which a browser sorts in a moment.
MOST_ROWS = 10_000
# Of a message in a table; its beginning is the most useful part.
MESSAGE = 160
_DIGITS = 4  # significant digits of numbers in a table


@dataclass(frozen=True)
class Column:
    """A column. For text, `texts` are the distinct values and `values` their indices; `titles` are their tooltips.

    A `choice` is a text that the reader can select from a list.
    """

    name: str
    kind: str  # text, choice, number
    values: Sequence[Any]
    texts: Sequence[str] = ()
    titles: Sequence[str] = ()
    about: str = ""

    def to_json(self) -> dict[str, Any]:
        found = {"name": self.name, "kind": self.kind, "values": list(self.values), "about": self.about}
        return {**found, "texts": list(self.texts), "titles": list(self.titles)}


@dataclass(frozen=True)
class Grid:
    """A sortable table: its name in addresses, its columns, and the initial sort column."""

    name: str
    columns: tuple[Column, ...]
    rows: int
    total: int
    sort: str
    down: bool = False
    page: int = 50
    note: str = ""

    @property
    def json(self) -> str:
        """The JSON that the page's script reads."""
        value = {
            "rows": self.rows,
            "page": self.page,
            "sort": self.sort,
            "down": self.down,
            "columns": [column.to_json() for column in self.columns],
        }
        return to_script_json(value)


def to_script_json(value: Any) -> str:
    """JSON for a script element, without anything that could end the element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def make_text_column(name: str, values: Iterable[str], *, choice: bool = False, about: str = "") -> Column:
    """A text column."""
    listed = list(values)
    distinct = sorted(set(listed))
    place = {text: i for i, text in enumerate(distinct)}
    return Column(name, "choice" if choice else "text", [place[text] for text in listed], distinct, about=about)


def make_number_column(name: str, values: Iterable[float], about: str = "") -> Column:
    """A number column; empty where a number is missing."""
    return Column(name, "number", [round_value(float(value)) for value in values], about=about)


def round_value(value: float) -> float | int | None:
    """A number rounded to few digits, integers unchanged; None for nan."""
    if math.isnan(value):
        return None
    if value == round(value) and abs(value) < 2**53:
        return int(value)
    return float(f"{value:.{_DIGITS}g}")


@dataclass(frozen=True)
class PickedRows:
    """The rows of each group that a table shows, and a description of the choice."""

    rows: tuple[Flags, ...]
    text: str

    @property
    def count(self) -> int:
        return sum(int(rows.sum()) for rows in self.rows)


def pick_rows(groups: Sequence[ResultGroup], values: Sequence[Floats], most: int) -> PickedRows:
    """All results, or for more than `most` the best of each problem and the first failure of each kernel and status."""
    total = sum(len(group) for group in groups)
    if total <= most:
        return PickedRows(tuple(np.ones(len(group), bool) for group in groups), "all results")
    failed = _pick_first_failures(groups, most // 4)
    place = [compute_ranks(group, each) for group, each in zip(groups, values, strict=True)]
    room = most - sum(int(rows.sum()) for rows in failed)
    right = np.concatenate([rank[group.ok] for group, rank in zip(groups, place, strict=True)])
    fits = np.cumsum(np.bincount(right)) <= room  # the number of results up to each rank
    keep = int(fits.sum())
    if keep:
        best = [group.ok & (rank < keep) for group, rank in zip(groups, place, strict=True)]
        which = "the best kernel" if keep == 1 else f"the {keep} best kernels"
        text = f"{which} of each problem"
    else:
        best = _pick_evenly([group.ok & (rank == 0) for group, rank in zip(groups, place, strict=True)], room)
        text = f"the best kernel of {room:,} of {int((right == 0).sum()):,} problems, evenly spaced"
    bad = sum(int(rows.sum()) for rows in failed)
    text += f", and the first failure of each kernel and status (at most {most // 4:,})" if bad else ""
    return PickedRows(tuple(a | b for a, b in zip(best, failed, strict=True)), text)


def _pick_evenly(rows: Sequence[Flags], room: int) -> list[Flags]:
    """A number of rows from all groups, as evenly spaced as possible."""
    together = np.concatenate(rows)
    numbers_of = np.cumsum(together)  # from 1
    total = max(1, int(numbers_of[-1]))
    kept = together & (numbers_of * room // total != (numbers_of - 1) * room // total)
    return np.split(kept, np.cumsum([len(each) for each in rows])[:-1])


def _pick_first_failures(groups: Sequence[ResultGroup], most: int) -> list[Flags]:
    found = []
    for group in groups:
        rows = np.zeros(len(group), bool)
        bad = np.flatnonzero(~group.ok)
        _, first = np.unique(group.kernel[bad].astype(np.int64) * len(STATUSES) + group.status[bad], return_index=True)
        first = np.sort(bad[first])[:most]
        rows[first] = True
        most -= len(first)
        found.append(rows)
    return found


def build_results_grid(
    name: str,
    groups: Sequence[ResultGroup],
    facts: Sequence[GroupData],
    values: Sequence[Floats],
    places: Sequence[str],
    most: int,
) -> Grid:
    """The results of groups with the same measurement: all times, or all counters."""
    picked = pick_rows(groups, values, most)
    chosen = [_sort_best_first(*each) for each in zip(groups, values, picked.rows, strict=True)]
    columns = [*_make_name_columns(groups, facts, chosen, places)]
    kind = groups[0].where.kind
    each_measured = _make_counter_columns if kind == COUNTERS else _make_time_columns
    parts = [each_measured(*args) for args in zip(groups, facts, values, chosen, strict=True)]
    columns += [
        make_number_column(title, np.concatenate([part[title] for part in parts]), about)
        for title, about in _list_descriptions(parts)
    ]
    share = np.concatenate([100 * group.share[rows] for group, rows in zip(groups, chosen, strict=True)])
    if not np.isnan(share).all():
        columns.append(make_number_column("tolerance %", share, "share of the allowed error that was used"))
    said = [g.messages[code][:MESSAGE] for g, rows in zip(groups, chosen, strict=True) for code in g.message[rows]]
    if any(said):
        columns.append(make_text_column("message", said))
    total = sum(len(group) for group in groups)
    return Grid(name, tuple(columns), picked.count, total, "problem", note=picked.text)


def _sort_best_first(group: ResultGroup, values: Floats, picked: Flags) -> Any:
    """The picked rows by problem, the best first: a stable sort keeps this order among equal values."""
    rows = np.flatnonzero(picked)
    return rows[np.lexsort((compute_ranks(group, values)[rows], group.problem[rows]))]


def _make_name_columns(
    groups: Sequence[ResultGroup], facts: Sequence[GroupData], chosen: Sequence[Any], places: Sequence[str]
) -> Iterable[Column]:
    """Group, problem, kernel and status. The full kernel names are tooltips."""
    together = list(zip(groups, facts, chosen, places, strict=True))
    if len(groups) > 1:
        yield make_text_column("where", [place for _, _, rows, place in together for _ in rows], choice=True)
    yield make_text_column(
        "problem", [fact.problem_words[p] for group, fact, rows, _ in together for p in group.problem[rows]]
    )
    slugs = [group.kernels[k] for group, _, rows, _ in together for k in group.kernel[rows]]
    words = {slug: word for g, fact, _, _ in together for slug, word in zip(g.kernels, fact.kernel_words, strict=True)}
    whole = sorted(set(slugs))
    place = {slug: i for i, slug in enumerate(whole)}
    yield Column("kernel", "text", [place[slug] for slug in slugs], [words[slug] for slug in whole], whole)
    yield make_text_column(
        "status",
        [STATUSES[code].replace("_", " ") for g, _, rows, _ in together for code in g.status[rows]],
        choice=True,
    )


def _make_time_columns(group: ResultGroup, facts: GroupData, values: Floats, rows: Any) -> dict[str, Floats]:
    us, problem = group.us[rows], group.problem[rows]
    return {
        "µs": us,
        "spread %": 100 * (group.us_p90[rows] - group.us_p10[rows]) / us,
        "of best %": 100 * compute_efficiency(group, values)[rows],
        "TFLOPS": facts.flops[problem] / us / 1e6,
        "GB/s": facts.bytes[problem] / us / 1e3,
    }


KIB = 1024


def _make_counter_columns(group: ResultGroup, facts: GroupData, values: Floats, rows: Any) -> dict[str, Floats]:  # noqa: ARG001
    counted = collect_counters(group)
    found = {
        "matrix MFLOP": counted["matrix_flops"][rows] / 1e6,
        "× needed": counted["matrix_flops"][rows] / facts.flops[group.problem[rows]],
        "read KiB": counted["global_read_bytes"][rows] / KIB,
        "written KiB": counted["global_write_bytes"][rows] / KIB,
        "cache lines": counted["cache_lines"][rows],
        "LDS KiB": (counted["lds_read_bytes"] + counted["lds_write_bytes"])[rows] / KIB,
        "conflict cycles": counted["bank_conflict_cycles"][rows],
        "instructions": counted["instructions"][rows],
    }
    return {title: each for title, each in found.items() if not np.isnan(each).all()}


COUNTED = (
    *("matrix_flops", "global_read_bytes", "global_write_bytes", "cache_lines"),
    *("lds_read_bytes", "lds_write_bytes", "bank_conflict_cycles"),
)


def collect_counters(group: ResultGroup) -> Mapping[str, Floats]:
    """The counters to show, nan if missing, and all instructions together."""
    nothing = np.full(len(group), np.nan)
    kinds = [column for name, column in group.counters.items() if name.startswith("instructions")]
    together = np.where(group.ok, np.nansum(kinds, axis=0), np.nan) if kinds else nothing
    return {**{name: group.counters.get(name, nothing) for name in COUNTED}, "instructions": together}


_ABOUT = {
    "µs": "median of the repeats",
    "spread %": "from the tenth to the ninetieth percentile, in percent of the median",
    "of best %": "the problem's best time divided by this time",
    "TFLOPS": "the problem's operations divided by the time",
    "GB/s": "the least bytes that must be moved, divided by the time",
    "matrix MFLOP": "operations of the executed matrix instructions",
    "× needed": "matrix operations divided by the problem's operations",
    "read KiB": "that lanes requested from global memory",
    "written KiB": "to global memory",
    "cache lines": "distinct lines touched by each instruction of a wave, summed",
    "LDS KiB": "read from and written to LDS",
    "conflict cycles": "lost to LDS bank conflicts",
    "instructions": "of all waves",
}


def _list_descriptions(parts: Sequence[Mapping[str, Floats]]) -> list[tuple[str, str]]:
    shared = [title for title in parts[0] if all(title in part for part in parts)]
    return [(title, _ABOUT[title]) for title in shared]


def build_problems_grid(name: str, group: ResultGroup, facts: GroupData, values: Floats, roof: Floats) -> Grid:
    """Every problem of a group: its best kernel, that kernel's results, and how much the choice matters.

    `roof` is the highest rate that the GPU's file allows for each problem, in TFLOPS; nan if unknown.
    """
    count, place = len(group.problems), compute_ranks(group, values)
    best, runner_up = (_find_rows_at_rank(group, values, place, rank) for rank in (0, 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.where(best >= 0, values[best], np.nan)
        next_share = 100 * value / np.where(runner_up >= 0, values[runner_up], np.nan)
        rate = facts.flops / value / 1e6
    whole = [group.kernels[group.kernel[row]] if row >= 0 else "" for row in best]
    words = [facts.kernel_words[group.kernel[row]] if row >= 0 else "none is correct" for row in best]
    distinct = sorted(set(zip(words, whole, strict=True)))
    code = {pair: i for i, pair in enumerate(distinct)}
    timed = group.where.kind != COUNTERS
    columns = [
        make_text_column("problem", facts.problem_words),
        make_number_column(
            "FLOP/byte", facts.intensity, "the problem's operations divided by the bytes that must be moved"
        ),
        Column(
            "best kernel" if timed else "fewest lines",
            "text",
            [code[pair] for pair in zip(words, whole, strict=True)],
            [word for word, _ in distinct],
            [slug for _, slug in distinct],
        ),
        make_number_column("µs", value, "median of the best kernel")
        if timed
        else make_number_column("cache lines", value, "of that kernel"),
    ]
    if timed:
        columns += [
            make_number_column("TFLOPS", rate, "the problem's operations divided by the time"),
            make_number_column(
                "of roof %", 100 * rate / roof, "of the roofline from the GPU file's rates and bandwidth"
            ),
        ]
    columns += [
        make_number_column(
            "next %", next_share, "the best kernel compared with the next best: 100 if both are equally good"
        ),
        make_number_column("right", np.bincount(group.problem[group.ok], minlength=count), "kernels that compute it"),
    ]
    kept = [column for column in columns if column.kind != "number" or any(v is not None for v in column.values)]
    return Grid(name, tuple(kept), count, count, "µs" if timed else "cache lines", down=True, page=15)


def _find_rows_at_rank(group: ResultGroup, values: Floats, place: Any, rank: int) -> Any:
    """For each problem, the row of that rank among the correct results; -1 if there is none."""
    found = np.full(len(group.problems), -1)
    rows = np.flatnonzero((place == rank) & group.ok & ~np.isnan(values))
    found[group.problem[rows]] = rows
    return found


def build_kernels_grid(name: str, group: ResultGroup, facts: GroupData, found: Standing) -> Grid:
    """Every kernel of a group: the problems that it was tried on, and its standing."""
    count = len(group.kernels)
    columns = [
        Column("kernel", "text", list(range(count)), list(facts.kernel_words), list(group.kernels)),
        make_number_column("tried", found.tried, "problems, without those that it does not support"),
        make_number_column("right", found.right),
        make_number_column("failed", found.failed, "wrong, not built, not finished, or not tried after such failures"),
    ]
    if group.where.kind == COUNTERS:
        wins, sort, about = "fewest lines for", "mean of fewest %", "fewest cache lines of a problem divided by its own"
        about_wins = "problems for which no kernel touches fewer cache lines"
    else:
        wins, sort, about = "best for", "mean of best %", "the best time of a problem divided by its own"
        about_wins = "problems for which it is the fastest kernel"
    columns += [
        make_number_column(wins, found.wins, about_wins),
        make_number_column(sort, 100 * found.mean, f"{about}; a failed problem counts as 0"),
    ]
    return Grid(name, tuple(columns), count, count, sort, down=True, page=15)
