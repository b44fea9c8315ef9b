"""Write a sweep's report: one self-contained page with pictures, tables and script, without network access."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base.atomic_write import write_text
from tilewright.base.digest import digest_value
from tilewright.base.errors import InvalidValueError
from tilewright.base.events import report_task
from tilewright.bench.record import OK, STATUSES, Record
from tilewright.bench.report import plots
from tilewright.bench.report.columns import COUNTERS, TIME, ResultGroup, group_records
from tilewright.bench.report.figures import FAILURES, QUARANTINED, Reason, collect_reasons
from tilewright.bench.report.group_data import GroupData, collect_group_data
from tilewright.bench.report.rows import MOST_ROWS, Grid, build_results_grid, to_script_json
from tilewright.bench.report.sections import (
    ReportPlot,
    ReportSection,
    build_section,
    count_failures,
    describe_context,
    get_decisive_values,
    make_summary_row,
)

TEMPLATE, SCRIPTS = "sweep.html.j2", ("sortable.js", "hover.js")
# The largest groups get their own pictures. All are in the first table and in the table of results.
MOST_SECTIONS = 8
# The most failure reasons that are listed; the others are counted.
MOST_REASONS = 20
# Columns of the first table that are omitted if all of their values are 0.
_RARE = ("quarantined", "unsupported", "not recorded")


@dataclass(frozen=True)
class ReportPage:
    """A page and its summary: the number of results, of missing values by status, and omissions."""

    html: str
    results: int
    right: int
    by_status: dict[str, int]
    groups: tuple[dict[str, str], ...]
    left_out: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """All but the page."""
        return {
            "results": self.results,
            "right": self.right,
            "by_status": self.by_status,
            "groups": list(self.groups),
            "left_out": list(self.left_out),
        }


def write_report(
    path: Path | str, records: Iterable[Record], *, source: str = "", title: str = "", notes: Sequence[str] = ()
) -> ReportPage:
    """Write the page to a file, atomically."""
    path = Path(path)
    made = make_report(records, source=source, title=title, notes=notes)
    write_text(path, made.html)
    return made


def make_report(
    records: Iterable[Record], *, source: str = "", title: str = "", notes: Sequence[str] = ()
) -> ReportPage:
    """The page of a sweep's results, one record per key (`tilewright.bench.journal.merge_records`).

    Records are read once and not kept. `source` describes their origin; `notes` are shown at the top, such as damaged
    journal lines. The same records give the same page, in any order.
    """
    groups = group_records(records)
    if not groups:
        raise InvalidValueError("the journal or table is empty: it has no results to report")
    places = _make_group_names(groups)
    facts = [collect_group_data(group) for group in groups]
    shown = sorted(sorted(range(len(groups)), key=lambda i: -len(groups[i]))[:MOST_SECTIONS])
    sections = []
    with report_task("drawing", len(shown)) as advance:
        for number, i in enumerate(shown, 1):
            sections.append(build_section(number, places[i], groups[i], facts[i]))
            advance(places[i])
    tables = _build_tables(groups, facts, places)
    found = collect_reasons(groups)
    by_status = {status: sum(group.count(status) for group in groups) for status in STATUSES}
    left_out = tuple(_list_omissions(groups, places, shown, tables, found))
    summary = tuple(make_summary_row(place, group) for place, group in zip(places, groups, strict=True))
    html = _render(
        title=title or _make_title(groups),
        source=source,
        notes=notes,
        kinds=_count_by_kind(groups),
        totals=_compute_totals(groups, by_status),
        summary=_drop_empty_columns(summary),
        sections=sections,
        failures=_plot_failures(places, groups),
        reasons=found[:MOST_REASONS],
        tables=tables,
        left_out=left_out,
    )
    right = by_status[OK]
    counts = {status: count for status, count in by_status.items() if count}
    return ReportPage(html, sum(len(group) for group in groups), right, counts, summary, left_out)


def _make_group_names(groups: Sequence[ResultGroup]) -> list[str]:
    """The names of groups, with a mark of their software if they differ only in that."""
    plain = [describe_context(group.where) for group in groups]
    return [
        describe_context(group.where, software=digest_value(group.where.versions)[:8])
        if plain.count(name) > 1
        else name
        for name, group in zip(plain, groups, strict=True)
    ]


def _make_title(groups: Sequence[ResultGroup]) -> str:
    ops = ", ".join(sorted({group.where.op for group in groups}))
    return f"Sweep of {ops} kernels on {', '.join(sorted({group.where.arch for group in groups}))}"


def _count_by_kind(groups: Sequence[ResultGroup]) -> dict[str, int]:
    """The number of results by measurement: times or counters."""
    return {kind: sum(len(g) for g in groups if g.where.kind == kind) for kind in (TIME, COUNTERS)}


def _compute_totals(groups: Sequence[ResultGroup], by_status: dict[str, int]) -> list[tuple[str, str, str]]:
    """The figures at the top: name, number, and colour."""
    failed = sum(by_status[status] for status in FAILURES)
    found = [
        ("results", sum(by_status.values()), ""),
        ("recorded" if all(group.where.recorded for group in groups) else "right", by_status[OK], "good"),
        ("failed", failed, "bad" if failed else ""),
        ("quarantined", by_status[QUARANTINED], "bad" if by_status[QUARANTINED] else ""),
        ("unsupported", by_status["unsupported"], ""),
        ("not recorded", by_status["not_recorded"], ""),
        ("kernels", len({kernel for group in groups for kernel in group.kernels}), ""),
        ("problems", len({(group.where.op, problem) for group in groups for problem in group.problems}), ""),
    ]
    return [(name, f"{count:,}", colour) for name, count, colour in found if count or name not in _RARE]


def _drop_empty_columns(rows: Sequence[dict[str, str]]) -> dict[str, Any]:
    """The first table without columns that are 0 everywhere."""
    names = [name for name in rows[0] if name not in _RARE or any(row[name] != "0" for row in rows)]
    return {"names": names, "rows": [[row[name] for name in names] for row in rows]}


def _build_tables(groups: Sequence[ResultGroup], facts: Sequence[GroupData], places: Sequence[str]) -> list[Grid]:
    """Results with times and results with counters are never in one table."""
    kinds = sorted({group.where.kind for group in groups}, reverse=True)
    made = []
    for kind in kinds:
        own = [i for i, group in enumerate(groups) if group.where.kind == kind]
        mine = [groups[i] for i in own]
        values = [get_decisive_values(group) for group in mine]
        name = "times" if kind == TIME else "counters"
        chosen, called = [facts[i] for i in own], [places[i] for i in own]
        made.append(build_results_grid(name, mine, chosen, values, called, MOST_ROWS // len(kinds)))
    return made


def _plot_failures(places: Sequence[str], groups: Sequence[ResultGroup]) -> ReportPlot | None:
    statuses = tuple(status for status in STATUSES if status != OK)
    counts = count_failures(list(zip(places, groups, strict=True)), statuses)
    if not counts:
        return None
    return ReportPlot("By status", "", plots.plot_failures(counts, (*FAILURES, QUARANTINED)))


def _list_omissions(
    groups: Sequence[ResultGroup],
    places: Sequence[str],
    shown: Sequence[int],
    tables: Sequence[Grid],
    found: Sequence[Reason],
) -> Iterable[str]:
    for table in tables:
        if table.rows < table.total:
            yield f"The table of {table.name} has {table.rows:,} of {table.total:,} results: {table.note}."
    if len(shown) < len(groups):
        others = [places[i] for i in range(len(groups)) if i not in shown]
        yield f"Pictures show the {len(shown)} groups with the most results; not {'; '.join(others)}."
    if len(found) > MOST_REASONS:
        rest = sum(reason.count for reason in found[MOST_REASONS:])
        yield f"{len(found) - MOST_REASONS:,} rarer reasons, of {rest:,} results, are not listed."


def _render(sections: Sequence[ReportSection], **values: Any) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415
    from markupsafe import Markup  # noqa: PLC0415

    folder = Path(__file__).with_name("templates")
    environment = Environment(loader=FileSystemLoader(folder), undefined=StrictUndefined, autoescape=True)
    environment.filters["spots"] = lambda picture: Markup(to_script_json(picture.spots))
    scripts = [Markup((folder / name).read_text(encoding="utf-8")) for name in SCRIPTS]  # our own files
    return environment.get_template(TEMPLATE).render(sections=sections, scripts=scripts, **values)
