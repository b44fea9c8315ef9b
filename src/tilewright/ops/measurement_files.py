"""Measurement files of other tools: times of kernels and problems of an op, and rows that cannot be imported."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.base.documents import CsvTable, read_csv
from tilewright.base.errors import FileFormatError, FileProblem, InvalidValueError
from tilewright.ops.kernel import Kernel

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True)
class ImportedTime:
    """One time of a kernel for a problem. Several times of the same pair are repeats. `versions`: software versions."""

    kernel: Kernel
    problem: DataclassInstance
    us: float
    versions: str

    def __post_init__(self) -> None:
        if not 0 < self.us < math.inf:
            raise InvalidValueError(f"the time is {self.us:g} µs, it must be positive and finite")


@dataclass(frozen=True)
class Readings:
    """The contents of a file: times, the rows that cannot be imported and why, and notes for the user."""

    rows: Sequence[ImportedTime]
    refused: Sequence[FileProblem] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class MeasurementReader:
    """A reader for one file format. `read` takes a file or a folder, and `options` by name.

    `source` is the origin of the times in records. A reader imports the rows of kernels that Tilewright can generate
    and reports every other row.
    """

    source: str
    read: Callable[..., Readings]
    options: tuple[str, ...] = ()


def read_sheet(path: Path) -> CsvTable:
    """Read a CSV file with measurements. It must have a header without repeated columns."""
    sheet = read_csv(path)
    if sheet is None:
        raise FileFormatError(path, [FileProblem("", "is empty: its first line must name the columns")])
    require_columns(path, sheet)
    return sheet


def require_columns(path: Path, sheet: CsvTable, columns: Iterable[str] = ()) -> None:
    """Raise `FileFormatError` if columns are missing; it lists all of them."""
    if faults := sheet.check_header(columns):
        raise FileFormatError(path, faults)
