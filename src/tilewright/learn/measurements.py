"""Measurements in a file: one row per timed kernel and problem, including failures.

The file is Parquet. Its key-value metadata names its schema, and the reader accepts no other. Another schema, a column
that is missing, unknown or of another type, and an invalid value are errors that name the file, the column and the
value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.base.atomic_write import write_atomically
from tilewright.base.digest import to_canonical_json
from tilewright.base.documents import convert_read_errors, parse_json
from tilewright.base.errors import FileFormatError, FileProblem, InvalidValueError, choose
from tilewright.bench.table import check_columns, check_version

SCHEMA = "1"
SCHEMA_KEY = "tilewright.measurements"

OK = "ok"
# Why a run has no time: it crashed or was rejected by the device, took too long, computed a wrong result, or the built
# kernel reported that it does not support the problem.
STATUSES = (OK, "failed", "timeout", "wrong", "unsupported")

WORDS = ("op", "arch", "kernel", "problem", "status", "source")
TIMES = ("us", "us_min", "us_max")
COLUMNS = ("op", "arch", "kernel", "problem", "us", "status", "source", "runs", "us_min", "us_max")

Floats = NDArray[np.float64]
Codes = NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One row: a kernel's time for a problem, in microseconds, or the reason why it has none.

    `problem` is the canonical JSON of the problem's fields (`dump_problem`), `source` is the origin of the row. `us` is
    the median of `runs` repeats, `us_min` and `us_max` their extremes if known.
    """

    op: str
    arch: str
    kernel: str
    problem: str
    us: float | None
    status: str = OK
    source: str = ""
    runs: int = 1
    us_min: float | None = None
    us_max: float | None = None


@dataclass(frozen=True, eq=False)
class TextColumn:
    """A text column: the distinct texts, sorted, and the index of each row's text."""

    values: tuple[str, ...]
    codes: Codes

    @staticmethod
    def from_texts(texts: Sequence[str]) -> TextColumn:
        values = tuple(sorted(set(texts)))
        place = {text: i for i, text in enumerate(values)}
        return TextColumn(values, np.array([place[text] for text in texts], np.int32))

    def to_list(self) -> list[str]:
        return [self.values[code] for code in self.codes]

    def select_rows(self, rows: NDArray[Any]) -> TextColumn:
        """The column of some rows, without unused texts."""
        used, codes = np.unique(self.codes[rows], return_inverse=True)
        return TextColumn(tuple(self.values[i] for i in used), codes.astype(np.int32))


@dataclass(frozen=True, eq=False)
class Measurements:
    """A table of measurements by columns. A missing time is nan."""

    op: TextColumn
    arch: TextColumn
    kernel: TextColumn
    problem: TextColumn
    us: Floats
    status: TextColumn
    source: TextColumn
    runs: Codes
    us_min: Floats
    us_max: Floats

    def __len__(self) -> int:
        return len(self.us)

    def select_rows(self, rows: NDArray[Any]) -> Measurements:
        """Some rows, by number or as a mask."""
        columns: dict[str, Any] = {}
        for name in COLUMNS:
            column = getattr(self, name)
            columns[name] = column.select_rows(rows) if isinstance(column, TextColumn) else column[rows]
        return Measurements(**columns)

    @cached_property
    def digest(self) -> str:
        """128 bits over every row in order, independent of the writer of the file."""
        hasher = hashlib.blake2b(digest_size=16)
        for name in COLUMNS:
            column = getattr(self, name)
            texts = to_canonical_json(column.values) if isinstance(column, TextColumn) else ""
            numbers = column.codes if isinstance(column, TextColumn) else column
            hasher.update(f"{name}\0{texts}\0".encode())
            hasher.update(np.ascontiguousarray(numbers, numbers.dtype.newbyteorder("<")).tobytes())
        return hasher.hexdigest()


def make_table(rows: Iterable[Measurement]) -> Measurements:
    """Rows as a table. Raises `InvalidValueError` for an invalid row."""
    listed = list(rows)
    columns: dict[str, Any] = {name: TextColumn.from_texts([getattr(row, name) for row in listed]) for name in WORDS}
    for name in TIMES:
        values = [getattr(row, name) for row in listed]
        columns[name] = np.array([np.nan if value is None else value for value in values], np.float64)
    columns["runs"] = np.array([row.runs for row in listed], np.int32)
    table = Measurements(**columns)
    if problems := _find_problems(table):
        raise InvalidValueError("these measurements are invalid:\n" + "\n".join(f"  {p}" for p in problems))
    return table


def write_measurements(path: Path | str, table: Measurements) -> None:
    """Write a table. Equal tables give equal bytes with one version of Arrow."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    schema = _make_schema().with_metadata({SCHEMA_KEY: SCHEMA})
    columns = []
    for name in COLUMNS:
        column = getattr(table, name)
        if isinstance(column, TextColumn):
            texts = pa.array(column.values, pa.string())
            columns.append(pa.DictionaryArray.from_arrays(pa.array(column.codes), texts).cast(pa.string()))
        elif name == "runs":
            columns.append(pa.array(column, pa.int32()))
        else:
            columns.append(pa.array(column, pa.float64(), mask=np.isnan(column)))
    with write_atomically(Path(path)) as draft:
        pq.write_table(pa.Table.from_arrays(columns, schema=schema), draft, compression="zstd")


def read_measurements(path: Path | str) -> Measurements:
    """The table in a file. Raises `FileFormatError` with all errors in it."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    if not Path(path).exists():
        raise FileFormatError(path, [FileProblem("", "does not exist")])
    with convert_read_errors(path):
        try:
            with pq.ParquetFile(path) as file:
                _check_schema(path, file.schema_arrow)
                raw = file.read()
        except (pa.ArrowException, OSError) as error:
            raise FileFormatError(path, [FileProblem("", f"is not a Parquet file: {error}")]) from error
        _check_nulls(path, raw)
        columns: dict[str, Any] = {name: _read_text_column(raw.column(name)) for name in WORDS}
        columns |= {name: raw.column(name).to_numpy().astype(np.float64) for name in TIMES}
        columns["runs"] = raw.column("runs").to_numpy().astype(np.int32)
        table = Measurements(**columns)
        if problems := _find_problems(table):
            raise FileFormatError(path, problems)
    return table


def _make_schema() -> Any:
    import pyarrow as pa  # noqa: PLC0415

    kinds = {**dict.fromkeys(WORDS, pa.string()), **dict.fromkeys(TIMES, pa.float64()), "runs": pa.int32()}
    return pa.schema([pa.field(name, kinds[name], nullable=name in TIMES) for name in COLUMNS])


def _check_schema(path: Path | str, found: Any) -> None:
    check_version(path, found, SCHEMA_KEY, SCHEMA, "a table of measurements")
    check_columns(path, found, _make_schema(), COLUMNS)


def _check_nulls(path: Path | str, raw: Any) -> None:
    empty = {name: raw.column(name).null_count for name in COLUMNS if name not in TIMES}
    problems = [FileProblem(f"column {n}", f"is empty in {count:,} rows") for n, count in empty.items() if count]
    if problems:
        raise FileFormatError(path, problems)


def _read_text_column(column: Any) -> TextColumn:
    import pyarrow as pa  # noqa: PLC0415

    joined = column.combine_chunks().dictionary_encode()
    if isinstance(joined, pa.ChunkedArray):
        joined = joined.combine_chunks()
    texts = joined.dictionary.to_pylist()
    order = sorted(range(len(texts)), key=texts.__getitem__)
    rank = np.empty(len(texts), np.int32)
    rank[order] = np.arange(len(texts), dtype=np.int32)
    return TextColumn(tuple(texts[i] for i in order), rank[joined.indices.to_numpy()])


def _find_problems(table: Measurements) -> list[FileProblem]:
    """The errors in a table's values."""
    found = []
    for status in table.status.values:
        try:
            choose("status", status, STATUSES)
        except InvalidValueError as error:
            found.append(FileProblem("column status", str(error)))
    wrong_texts = [text for text in table.problem.values if not _is_object(text)]
    found += [FileProblem("column problem", f"{text[:60]!r} is not a JSON object") for text in wrong_texts]
    ok = np.array([status == OK for status in table.status.values], bool)[table.status.codes]
    for name in TIMES:
        values = getattr(table, name)
        wrong = ~(np.isfinite(values) & (values > 0)) & ~np.isnan(values)
        found += _report_values(f"column {name}", wrong, values, "must be above zero and finite")
    found += _report_values("column us", ok & np.isnan(table.us), table.us, f"must be a time where status is {OK!r}")
    found += _report_values(
        "column us", ~ok & ~np.isnan(table.us), table.us, f"must be empty where status is not {OK!r}"
    )
    found += _report_values("column runs", table.runs < 1, table.runs, "must be at least 1")
    found += _report_values("column us_min", table.us_min > table.us, table.us_min, "must not be above us")
    found += _report_values("column us_max", table.us_max < table.us, table.us_max, "must not be below us")
    return found


def _report_values(where: str, wrong: NDArray[np.bool_], values: NDArray[Any], what: str) -> list[FileProblem]:
    rows = np.flatnonzero(wrong)
    if not len(rows):
        return []
    value = "empty" if np.isnan(values[rows[0]]) else f"{values[rows[0]]:g}"
    more = f", and in {len(rows) - 1:,} more rows" if len(rows) > 1 else ""
    return [FileProblem(where, f"is {value} in row {rows[0]:,}{more}; it {what}")]


def _is_object(text: str) -> bool:
    try:
        return isinstance(parse_json(text), dict)
    except InvalidValueError:
        return False
