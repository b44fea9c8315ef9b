"""Read times to learn from: a table of measurements, or records of sweeps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.base.documents import CONTENT_ERRORS
from tilewright.base.errors import InvalidValueError
from tilewright.base.events import Notice, emit
from tilewright.bench.sources import open_sources
from tilewright.bench.table import SCHEMA_KEY
from tilewright.learn.dataset import compute_medians
from tilewright.learn.from_records import to_measurements
from tilewright.learn.measurements import Measurements, read_measurements


@dataclass(frozen=True, eq=False)
class MeasuredTimes:
    """Microseconds, problems × kernels; nan where a kernel has no time for a problem."""

    kernels: tuple[str, ...]  # names
    problems: tuple[str, ...]  # canonical JSON, as in the table
    us: NDArray[np.float64]


def collect_measured_times(table: Measurements, op: str, arch: str) -> MeasuredTimes:
    """The times of an op's kernels on a GPU; the median if a pair was measured several times."""
    mine = _match_text(table.op.values, op)[table.op.codes] & _match_text(table.arch.values, arch)[table.arch.codes]
    if not mine.any():
        held = sorted({f"{o} on {a}" for o, a in zip(table.op.to_list(), table.arch.to_list(), strict=True)})
        raise InvalidValueError(f"the table has no row of {op} on {arch}; it has {', '.join(held) or 'no rows'}")
    rows = table.select_rows(mine)
    kernels, problems = rows.kernel.values, rows.problem.values
    us = np.full((len(problems), len(kernels)), np.nan)
    timed = np.flatnonzero(~np.isnan(rows.us))
    pair = rows.problem.codes[timed].astype(np.int64) * len(kernels) + rows.kernel.codes[timed]
    found = compute_medians(pair, rows.us[timed])
    us.flat[found.group] = found.median
    return MeasuredTimes(kernels, problems, us)


def _match_text(values: tuple[str, ...], wanted: str) -> NDArray[np.bool_]:
    return np.array([value == wanted for value in values], bool)


def read_times(path: Path) -> Measurements:
    """The table of a measurements file, or one converted from a journal (a folder) or a table of records."""
    if not path.is_dir() and not _has_records(path):
        return read_measurements(path)
    found = open_sources(path)
    for damage in found.damaged:
        emit(Notice(f"skipped: {damage}"))
    return _sort_rows(to_measurements(found.iterate_records()))


def _sort_rows(table: Measurements) -> Measurements:
    """Rows in a fixed order: the order in which workers wrote them is random, and models should not depend on it."""
    columns = (table.us, table.source.codes, table.kernel.codes, table.problem.codes, table.arch.codes, table.op.codes)
    return table.select_rows(np.lexsort(columns))


def _has_records(path: Path) -> bool:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        metadata = pq.read_schema(path).metadata or {}
    except (pa.ArrowException, OSError, *CONTENT_ERRORS):
        return False  # the reader of measurements reports what is wrong with it
    return SCHEMA_KEY.encode() in metadata
