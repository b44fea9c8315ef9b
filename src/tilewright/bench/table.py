"""Records as a Parquet table: flat columns, one row per record, failures and counters included.

The file's key-value metadata names its schema, and the reader accepts no other. Rates and the GPU model are derived
when the table is written; they are not read back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from tilewright.base.atomic_write import describe_write_error, make_temporary_path, remove_draft
from tilewright.base.errors import FileFormatError, FileProblem, InvalidValueError, JournalError
from tilewright.base.extras import require_data_extra
from tilewright.bench.gpu_model import get_gpu_model
from tilewright.bench.progress import report_progress
from tilewright.bench.rates import Rates, compute_effort, compute_rates
from tilewright.bench.record import Record, Task, TimeStats


def check_version(path: Path | str, found: Any, key: str, wanted: str, what: str) -> None:
    """Raise an error unless the schema's metadata has this version under the key. Other versions have other columns."""
    version = (found.metadata or {}).get(key.encode())
    if version is None:
        raise FileFormatError(path, [FileProblem("", f"has no key {key!r} in its metadata: it is not {what}")])
    if version != wanted.encode():
        said = f"has schema {version.decode(errors='replace')!r}, this version of Tilewright reads {wanted!r}"
        raise FileFormatError(path, [FileProblem("", said)])


def check_columns(path: Path | str, found: Any, wanted: Any, known: Iterable[str]) -> None:
    """Raise an error that names all columns that are missing, unknown, or of another type than wanted."""
    types = {field.name: field.type for field in wanted}
    own = {field.name: field.type for field in found}
    names = ", ".join(known)
    problems = [FileProblem(f"column {name}", "is missing") for name in types if name not in own]
    problems += [FileProblem(f"column {name}", f"is unknown. Known: {names}.") for name in own if name not in types]
    problems += [
        FileProblem(f"column {name}", f"holds {own[name]}, must hold {kind}")
        for name, kind in types.items()
        if name in own and own[name] != kind
    ]
    if problems:
        raise FileFormatError(path, problems)


SCHEMA = "1"
SCHEMA_KEY = "tilewright.records"
COUNTER = "counter_"
# Records in memory at once, and rows per row group: DuckDB and others read one row group at a time.
RECORDS = 5_000
ROWS = 50_000

TASK = ("op", "arch", "kernel", "problem", "device", "cold", "versions")
TIMES = ("us", "us_min", "us_max", "us_p10", "us_p90", "runs", "warmups", "clock_mhz", "power_w")
DERIVED = ("flops", "bytes_moved", "tflops", "gbs")
OWN = ("status", "kind", "message", "share", "error_ulps", "worker", "started", "took_s")
# Column → Arrow's type, in the order of the file.
COLUMNS: Mapping[str, str] = {
    "key": "string",
    "op": "string",
    "arch": "string",
    "kernel": "string",
    "problem": "string",
    "device": "string",
    "cold": "bool",
    "versions": "string",
    "gpu": "string",
    "kind": "string",
    "status": "string",
    "message": "string",
    "us": "double",
    "us_min": "double",
    "us_max": "double",
    "us_p10": "double",
    "us_p90": "double",
    "runs": "int32",
    "warmups": "int32",
    "clock_mhz": "double",
    "power_w": "double",
    "flops": "double",
    "bytes_moved": "double",
    "tflops": "double",
    "gbs": "double",
    "share": "double",
    "error_ulps": "double",
    "worker": "string",
    "started": "double",
    "took_s": "double",
}
NULLABLE = frozenset((*TIMES, *DERIVED, "gpu", "share", "error_ulps"))


def export_table(records: Iterable[Record], path: Path | str, *, counters: Sequence[str] | None = None) -> int:
    """Write records as a table, atomically, and return the number of rows.

    `counters` are the names of all counters that occur. Without them, all records are held in memory to find the names.
    """
    require_data_extra("writing tables")
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    path = Path(path)
    if counters is None:
        records = list(records)
        counters = sorted({name for record in records for name in record.counters})
    schema = _make_schema(counters)
    draft = make_temporary_path(path)
    rows = 0
    try:
        with (
            pq.ParquetWriter(draft, schema, compression="zstd") as writer,
            report_progress("records exported", len(records) if isinstance(records, Sequence) else None) as count,
        ):
            batches = _iterate_batches(count(records), schema, counters)
            while group := list(islice(batches, ROWS // RECORDS)):
                writer.write_table(pa.Table.from_batches(group), row_group_size=ROWS)
                rows += sum(map(len, group))
        draft.replace(path)
    except OSError as error:
        raise JournalError(describe_write_error(path, error, f"after {rows:,} rows")) from error
    finally:
        remove_draft(draft)
    return rows


def make_arrow_table(records: Iterable[Record]) -> Any:
    """The same table in memory, as a `pyarrow.Table`."""
    require_data_extra("a table of Arrow")
    import pyarrow as pa  # noqa: PLC0415

    listed = list(records)
    counters = sorted({name for record in listed for name in record.counters})
    schema = _make_schema(counters)
    return pa.Table.from_batches(list(_iterate_batches(listed, schema, counters)), schema=schema)


def read_table(path: Path | str) -> Iterator[Record]:
    """The records of a table, some rows at a time. Raises `FileFormatError` with the errors in the file."""
    row = 0
    with _open_table(path) as (file, counters):
        for batch in file.iter_batches(RECORDS):
            yield from _parse_records(path, batch, counters, row)
            row += len(batch)


def check_table(path: Path | str) -> None:
    """Raise `FileFormatError` unless the file is a table of records. Only the schema is checked, not the rows."""
    with _open_table(path):
        pass


@contextmanager
def _open_table(path: Path | str) -> Iterator[tuple[Any, Sequence[str]]]:
    """A table of records and the names of its counters. Arrow's errors become a `FileFormatError`."""
    require_data_extra("reading tables")
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        with pq.ParquetFile(path) as file:
            yield file, _check_schema(path, file.schema_arrow)
    except FileNotFoundError as error:
        raise FileFormatError(path, [FileProblem("", "does not exist")]) from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise FileFormatError(path, [FileProblem("", f"is not a Parquet file, or is damaged: {error}")]) from error


def _make_schema(counters: Sequence[str]) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    fields = [pa.field(name, pa.type_for_alias(kind), name in NULLABLE) for name, kind in COLUMNS.items()]
    fields += [pa.field(f"{COUNTER}{name}", pa.int64(), True) for name in counters]
    return pa.schema(fields, metadata={SCHEMA_KEY: SCHEMA})


def _iterate_batches(records: Iterable[Record], schema: Any, counters: Sequence[str]) -> Iterator[Any]:
    remaining = iter(records)
    while part := list(islice(remaining, RECORDS)):
        yield _make_batch(part, schema, counters)


def _make_batch(records: Sequence[Record], schema: Any, counters: Sequence[str]) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    columns = {name: list(map(read, records)) for name, read in _READERS.items()}
    for name, values in zip(DERIVED, zip(*map(_compute_derived, records), strict=True), strict=True):
        columns[name] = list(values)
    known = frozenset(counters)
    for record in records:
        if more := record.counters.keys() - known:
            raise InvalidValueError(f"the counter {min(more)!r} is not in `counters`: {', '.join(counters)}")
    columns |= {f"{COUNTER}{name}": [record.counters.get(name) for record in records] for name in counters}
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def _compute_derived(record: Record) -> tuple[float | None, ...]:
    """Flops and bytes of the problem, and the rates. Records with counters have no rates."""
    own = compute_effort(record.task.op, record.task.problem)
    made = Rates(None, None) if record.times is None else compute_rates(record.task, record.times.us)
    return own.flops, own.bytes_moved, made.tflops, made.gbs


def _make_time_reader(name: str) -> Callable[[Record], Any]:
    return lambda record: None if record.times is None else getattr(record.times, name)


_READERS: Mapping[str, Callable[[Record], Any]] = {
    "key": attrgetter("key"),
    **{name: attrgetter(f"task.{name}") for name in TASK},
    "gpu": lambda record: get_gpu_model(record.task.versions),
    **{name: _make_time_reader(name) for name in TIMES},
    **{name: attrgetter(name) for name in OWN},
}


def _check_schema(path: Path | str, found: Any) -> tuple[str, ...]:
    """The names of the counters. Raises an error if the schema is not that of a table of records."""
    check_version(path, found, SCHEMA_KEY, SCHEMA, "a table of records")
    counters = tuple(name.removeprefix(COUNTER) for name in found.names if name.startswith(COUNTER))
    check_columns(path, found, _make_schema(counters), (*COLUMNS, f"{COUNTER}*"))
    return counters


def _parse_records(path: Path | str, batch: Any, counters: Sequence[str], first: int) -> Iterator[Record]:
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    counted_by = [(name, columns[f"{COUNTER}{name}"]) for name in counters]
    for i in range(len(batch)):
        try:
            task = Task.create_interned({name: columns[name][i] for name in TASK})
            times = {name: columns[name][i] for name in TIMES}
            record = Record(
                task=task,
                times=None if times["us"] is None else TimeStats(**times),
                counters={name: values[i] for name, values in counted_by if values[i] is not None},
                **{name: columns[name][i] for name in OWN},
            )
            if record.key != columns["key"][i]:
                raise InvalidValueError(f"its key is {columns['key'][i]}, but its task has {record.key}")
        except InvalidValueError as error:
            raise FileFormatError(path, [FileProblem(f"row {first + i:,}", f"is not a record: {error}")]) from error
        yield record
