"""The results of sweeps and tuning as values: records as rows, as tables of Arrow and pandas, reports, and winners."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import InvalidValueError, MissingExtraError
from tilewright.base.short_text import MOST_ROWS, cut, format_count, format_html_table
from tilewright.bench.plan import SweepPlan, parse_problem
from tilewright.bench.rates import compute_rates
from tilewright.bench.record import Record
from tilewright.bench.sources import OpenedSources
from tilewright.bench.sweep import SweepSummary
from tilewright.bench.table import make_arrow_table
from tilewright.bench.tune import Gains, ProblemTimes, compute_gains
from tilewright.ops.kernel import DIGEST_LENGTH
from tilewright.ops.problem_text import format_short_problem, list_problem_fields
from tilewright.ops.problem_values import format_problem_value
from tilewright.select.tuned import TunedTable, write_tuned

if TYPE_CHECKING:
    from tilewright.bench.report.page import ReportPage

_COLUMNS = ("kernel", "problem", "status", "µs", "TFLOPS", "message")


@dataclass(frozen=True, repr=False)
class SweepResult:
    """All results in a sweep's folder, measured now or before. Iterate over it for the records.

    `folder` has the journal: the same call with `out=` this folder resumes the sweep. A temporary folder lives as long
    as this value.
    """

    folder: Path
    plan: SweepPlan
    summary: SweepSummary
    sources: OpenedSources
    _temporary: Any = field(default=None, compare=False)  # keeps a temporary folder

    def __len__(self) -> int:
        return len(self.sources)

    def __iter__(self) -> Iterator[Record]:
        yield from self.sources.iterate_records()  # a generator keeps this value, and with it a temporary folder

    @property
    def complete(self) -> bool:
        """Whether nothing is left to measure: of a search, within its budget."""
        return not self.summary.left

    @property
    def failures(self) -> list[Record]:
        """The records without a measurement, each with its status and the reason in `message`."""
        return [record for record in self if not record.ok]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The records as flat mappings: kernel, problem, status, time, rates and counters."""
        return [make_row(record) for record in self]

    def to_arrow(self) -> Any:
        """The records as a `pyarrow.Table`, with the columns of exported tables (extra `data`)."""
        return make_arrow_table(self)

    def to_pandas(self) -> Any:
        """The same as a `pandas.DataFrame`. Install pandas for it."""
        _require_pandas()
        return self.to_arrow().to_pandas()

    def write_report(self, path: Path | str, title: str = "") -> ReportPage:
        """Write the records as an HTML page."""
        from tilewright.bench.report.page import write_report  # noqa: PLC0415  (loads matplotlib)

        return write_report(Path(path), iter(self), title=title or self.folder.name)

    def __repr__(self) -> str:
        return f"SweepResult({self._describe()})"

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        rows = [list_cells(record) for record in islice(self, MOST_ROWS)]
        return format_html_table(f"Sweep: {self._describe()}", _COLUMNS, rows, len(self))

    def _describe(self) -> str:
        counts: dict[str, int] = {}
        for record in self:
            counts[record.status] = counts.get(record.status, 0) + 1
        said = ", ".join(f"{count:,} {status}" for status, count in sorted(counts.items())) or "no results"
        size = f"{format_count(len(self.plan.kernels), 'kernel')} × {format_count(len(self.plan.problems), 'problem')}"
        left = f"; {self.summary.left:,} left" if self.summary.left else ""
        return f"{size}: {said}{left}; in {self.folder}"


@dataclass(frozen=True, repr=False)
class TuneResult:
    """The fastest measured kernel of each problem. `registry.with_tuned(result.table)` selects it first."""

    problems: tuple[ProblemTimes, ...]
    sweep: SweepResult

    @cached_property
    def table(self) -> TunedTable:
        """The winners, for `Registry.with_tuned`."""
        return TunedTable(each.winner for each in self.problems)

    @cached_property
    def gains(self) -> Gains:
        """The benefit of measuring: the winners compared with the kernels that the estimate selects."""
        return compute_gains(self.problems)

    def save(self, path: Path | str) -> None:
        """Write the winners as a file for `Registry.with_tuned` and `tilewright select --tuned`."""
        write_tuned(self.table, Path(path))

    def __len__(self) -> int:
        return len(self.problems)

    def __repr__(self) -> str:
        return f"TuneResult({self._describe()})"

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        rows = [_list_winner_cells(each) for each in self.problems]
        return format_html_table(f"Tuned: {self._describe()}", ("problem", "kernel", "µs", "measured"), rows)

    def _describe(self) -> str:
        winners = len({each.winner.kernel for each in self.problems})
        times = sum(len(each.us) for each in self.problems)
        return (
            f"{format_count(winners, 'kernel')} win{'s' * (winners == 1)} "
            f"{format_count(len(self.problems), 'problem')}, from {format_count(times, 'time')}; in {self.sweep.folder}"
        )


def _list_winner_cells(problem: ProblemTimes) -> tuple[object, ...]:
    winner = problem.winner
    return cut(format_short_problem(problem.problem), 100), winner.kernel.digest, winner.us, len(problem.us)


def make_row(record: Record) -> dict[str, Any]:
    """A record as a flat mapping: the problem's fields by name, then the result. Values that it lacks are None."""
    task = record.task
    times = record.times
    rates = None if times is None else compute_rates(task, times.us)
    return {
        "kernel": task.kernel,
        **_read_fields(task.op, task.problem),
        "device": task.device,
        "status": record.status,
        "us": None if times is None else times.us,
        "tflops": None if rates is None else rates.tflops,
        "gbs": None if rates is None else rates.gbs,
        "message": record.message,
        **{f"counter_{name}": value for name, value in record.counters.items()},
    }


def list_cells(record: Record) -> tuple[object, ...]:
    """The cells of a record in a table of a notebook."""
    row = make_row(record)
    fields = _read_fields(record.task.op, record.task.problem)
    problem = ", ".join(f"{name}={format_problem_value(value)}" for name, value in fields.items())
    digest = record.task.kernel[-DIGEST_LENGTH:]
    return digest, cut(problem, 80), record.status, row["us"], row["tflops"], cut(record.message, 80)


def _read_fields(op: str, text: str) -> Mapping[str, Any]:
    """The fields that define a problem. A problem that cannot be read here, as of another version, has its JSON's."""
    try:
        return list_problem_fields(parse_problem(op, text), None)
    except InvalidValueError:
        found: Mapping[str, Any] = json.loads(text)
        return found


def _require_pandas() -> None:
    if importlib.util.find_spec("pandas") is None:
        raise MissingExtraError(
            "a DataFrame needs pandas. Get it with: pip install pandas. to_arrow() does not need it"
        )
