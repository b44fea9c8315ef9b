"""From rows of a foreign file to records: rows of one kernel and problem are repeats of one measurement."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.errors import FileFormatError, FileProblem, InvalidValueError
from tilewright.bench.record import OK, Record, Task, Times

# Of fewer figures there are no deciles: the extremes stand for them.
DECILES_FROM = 10


@dataclass(frozen=True)
class Imported:
    """What a file gave: records, the rows that are none of ours and why, and what else a user should know."""

    records: Sequence[Record]
    refused: Sequence[FileProblem] = ()
    notes: Sequence[str] = ()


@contextmanager
def csv_rows(path: Path, columns: Iterable[str] = ()) -> Iterator[csv.DictReader[str]]:
    """The rows of a CSV file that has these columns. What is no such file is a `FileFormatError`."""
    try:
        with path.open(newline="") as stream:
            rows = csv.DictReader(stream)
            need_columns(path, rows, columns)
            yield rows
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(path, [FileProblem("", f"cannot be read as CSV: {error}")]) from error


def need_columns(path: Path, rows: csv.DictReader[str], columns: Iterable[str]) -> None:
    """Raise `FileFormatError` with all columns that are missing."""
    missing = [name for name in columns if name not in (rows.fieldnames or ())]
    if missing:
        raise FileFormatError(path, [FileProblem(f"column {name}", "is missing") for name in missing])


def why(error: Exception) -> str:
    """Why a row is refused, in words: of a field that is not there, Python says the name only."""
    return f"has no {error}" if isinstance(error, KeyError) else str(error)


def records_of(rows: Iterable[tuple[Task, float]], worker: str) -> list[Record]:
    """One record for each task, with the median of its times in microseconds and their spread."""
    repeats: dict[Task, list[float]] = {}
    for task, us in rows:
        repeats.setdefault(task, []).append(us)
    return [Record(task=task, status=OK, kind="time", times=_times(us), worker=worker) for task, us in repeats.items()]


def _times(us: Sequence[float]) -> Times:
    if min(us) <= 0:
        raise InvalidValueError(f"a time is {min(us):g} µs, must be above zero")
    low, high = min(us), max(us)
    if len(us) >= DECILES_FROM:
        deciles = statistics.quantiles(us, n=10, method="inclusive")
        low, high = deciles[0], deciles[-1]
    return Times(
        us=statistics.median(us),
        us_min=min(us),
        us_max=max(us),
        us_p10=low,
        us_p90=high,
        runs=len(us),
        warmups=0,
    )
