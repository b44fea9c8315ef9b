"""Measurements of other tools in files: rows of kernels and problems of an op, and the rows that are none of ours."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base.errors import FileFormatError, FileProblem, InvalidValueError
from tilewright.ops.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Measured:
    """One time of a kernel on a problem. Several of one pair are repeats. `versions` are those of the software."""

    kernel: Kernel
    problem: Any
    us: float
    versions: str

    def __post_init__(self) -> None:
        if not 0 < self.us < math.inf:
            raise InvalidValueError(f"its time is {self.us:g} µs, must be above zero and finite")


@dataclass(frozen=True)
class Readings:
    """What a file gave: times, the rows that are none of ours and why, and what else a user should know."""

    rows: Sequence[Measured]
    refused: Sequence[FileProblem] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class MeasurementReader:
    """How files of a format are read. `read` takes a file or a folder, and `options` by name.

    `source` says in records where times are from. A reader takes what is a kernel of ours, and tells of every row that
    is not: times of kernels that Tilewright cannot make stay out.
    """

    source: str
    read: Callable[..., Readings]
    options: tuple[str, ...] = ()


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
