"""Measurements of other tools in files: rows of kernels and problems of an op, and the rows that are none of ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base.documents import Sheet, read_csv
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


def read_sheet(path: Path) -> Sheet:
    """The sheet of a CSV file with measurements: it has a header, and each column once."""
    sheet = read_csv(path)
    if sheet is None:
        raise FileFormatError(path, [FileProblem("", "is empty: its first line names columns")])
    need_columns(path, sheet)
    return sheet


def need_columns(path: Path, sheet: Sheet, columns: Iterable[str] = ()) -> None:
    """Raise `FileFormatError` with all columns that are missing."""
    if faults := sheet.header_faults(columns):
        raise FileFormatError(path, faults)
