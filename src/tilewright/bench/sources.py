"""Read records: those of journals and tables as one set, by SQL, or from measurement files of other tools."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base.errors import FileProblem, InvalidValueError, choose
from tilewright.base.extras import require_data_extra
from tilewright.bench.journal_lines import DamagedLine
from tilewright.bench.journal_merge import SelectedLines, select_best, write_records
from tilewright.bench.record import OK, Record, Task, TimeStats
from tilewright.bench.table import check_table, export_table, read_table
from tilewright.ops import list_ops
from tilewright.ops.measurement_files import ImportedTime, MeasurementReader
from tilewright.ops.problem_values import dump_problem

# Fewer values do not have deciles: minimum and maximum are used instead.
DECILES_FROM = 10
# Public measurements of other kernels than ours, by their folder in ../shared/data.
NOT_OURS: Mapping[str, str] = {
    "hipblaslt_mi250x_fp16_sweep": "it holds Tensile GEMMs, whose kernels are assembly with other parameters",
    "aiter_fmoe_profile": "it holds fused mixture of experts, which is not an op of Tilewright",
    "aiter_tuned_gemm_winners": "it holds only winners of classic CK, assembly or Triton, without config fields",
    "aiter_configs_2026-08": "it holds winners of aiter's tuner by compiled kernel name, without config fields",
    "aiter_attention_backends": "it holds backends by name, without the tile or any other kernel field",
    "miopen": "it holds MIOpen solvers, without kernel fields; its perf-db has no times",
}
TABLE_SUFFIX = ".parquet"
VIEW = "records"


@dataclass(frozen=True, eq=False)
class OpenedSources:
    """The records of some sources. The temporary files of the merge are removed with this value."""

    selected: SelectedLines

    def __len__(self) -> int:
        return len(self.selected)

    @property
    def seen(self) -> int:
        """The number of intact records, duplicate keys included."""
        return self.selected.seen

    @property
    def damaged(self) -> Sequence[DamagedLine]:
        """The damaged lines of journals."""
        return self.selected.damaged

    def iterate_records(self) -> Iterator[Record]:
        """The records, one per key: memory does not grow with their number."""
        yield from self.selected.iterate_records()

    def list_counters(self) -> tuple[str, ...]:
        """The names of all counters of the records, sorted."""
        return self.selected.list_counters()


def open_sources(*sources: Path | str) -> OpenedSources:
    """The records of journals (folders or files) and tables (.parquet), merged: see `journal.merge_records`.

    Tables are first written as journals into a temporary folder, so that they are merged in little memory, too.
    """
    if not sources:
        raise InvalidValueError("no journal or table is given: pass at least one")
    paths = [Path(source) for source in sources]
    if all(path.suffix != TABLE_SUFFIX for path in paths):
        return OpenedSources(select_best(*paths))
    folder = Path(tempfile.mkdtemp(prefix="tilewright-"))
    try:
        opened = OpenedSources(
            select_best(*(_convert_to_journal(path, folder / f"{i:06}.jsonl") for i, path in enumerate(paths)))
        )
    except BaseException:
        shutil.rmtree(folder)
        raise
    weakref.finalize(opened, shutil.rmtree, folder)
    return opened


def _convert_to_journal(source: Path, file: Path) -> Path:
    if source.suffix != TABLE_SUFFIX:
        return source
    write_records(read_table(source), file)
    return file


@dataclass(frozen=True)
class QueryResult:
    """The columns and rows of a result, and the damaged journal lines that were skipped."""

    columns: Sequence[str]
    rows: Sequence[tuple[Any, ...]]
    damaged: Sequence[DamagedLine] = ()


def run_query(sql: str, *sources: Path | str) -> QueryResult:
    """Run a DuckDB statement on the records of journals and tables.

    A single table is queried directly. Anything else is merged into a temporary table first, for each query again.
    """
    require_data_extra("a query")
    paths = [Path(source) for source in sources]
    if len(paths) == 1 and paths[0].suffix == TABLE_SUFFIX:
        # The schema is checked first: otherwise another kind of table would only seem to lack columns.
        check_table(paths[0])
        return _execute_query(sql, paths[0], ())
    opened = open_sources(*paths)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        table = Path(folder) / f"records{TABLE_SUFFIX}"
        export_table(opened.iterate_records(), table, counters=opened.list_counters())
        return _execute_query(sql, table, opened.damaged)


def _execute_query(sql: str, table: Path, damaged: Sequence[DamagedLine]) -> QueryResult:
    import duckdb  # noqa: PLC0415

    quoted = str(table).replace("'", "''")
    with duckdb.connect() as connection:
        try:
            connection.execute(f"CREATE VIEW {VIEW} AS SELECT * FROM read_parquet('{quoted}')")
            answer = connection.execute(sql)
            return QueryResult([column[0] for column in answer.description or ()], answer.fetchall(), damaged)
        except duckdb.Error as error:
            raise InvalidValueError(f"DuckDB rejected the query: {error}") from error


@dataclass(frozen=True)
class ImportResult:
    """The content of a file: records, the rejected rows with the reasons, and notes for the user."""

    records: Sequence[Record]
    refused: Sequence[FileProblem] = ()
    notes: Sequence[str] = ()


def list_formats() -> dict[str, MeasurementReader]:
    """The formats that ops can read, sorted by name."""
    return dict(sorted(each for op in list_ops() for each in op.measurement_readers.items()))


def read_foreign(name: str, path: Path | str, **options: Any) -> ImportResult:
    """The records of a file in the format `name`. Raises an error for options that the format does not have."""
    known = list_formats()
    if name in NOT_OURS:
        raise InvalidValueError(f"{name} cannot be imported: {NOT_OURS[name]}. Formats: {', '.join(known)}.")
    reader = known[choose("format", name, known)]
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        choose(f"option of the format {name}", option, reader.options)
    found = reader.read(Path(path), **given)
    return ImportResult(_make_records(found.rows, reader.source, f"import:{name}"), found.refused, found.notes)


def _make_records(rows: Iterable[ImportedTime], source: str, worker: str) -> list[Record]:
    """One record per task, with the median and spread of its times in microseconds."""
    repeats: dict[Task, list[float]] = {}
    for row in rows:
        repeats.setdefault(_make_task(row, source), []).append(row.us)
    return [
        Record(task=task, status=OK, kind="time", times=_compute_times(us), worker=worker)
        for task, us in repeats.items()
    ]


def _make_task(row: ImportedTime, source: str) -> Task:
    return Task(
        op=row.kernel.op,
        arch=row.kernel.arch,
        kernel=row.kernel.slug,
        problem=dump_problem(row.problem),
        device=f"imported:{source}",
        versions=row.versions,
    )


def _compute_times(us: Sequence[float]) -> TimeStats:
    low, high = min(us), max(us)
    if len(us) >= DECILES_FROM:
        deciles = statistics.quantiles(us, n=10, method="inclusive")
        low, high = deciles[0], deciles[-1]
    return TimeStats(
        us=statistics.median(us),
        us_min=min(us),
        us_max=max(us),
        us_p10=low,
        us_p90=high,
        runs=len(us),
        warmups=0,
    )
