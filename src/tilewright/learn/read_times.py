"""Read times to learn from: a table of measurements, or records of sweeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tilewright.base.documents import CONTENT_ERRORS
from tilewright.base.events import Notice, emit
from tilewright.bench.sources import open_sources
from tilewright.bench.table import SCHEMA_KEY
from tilewright.learn.from_records import to_measurements
from tilewright.learn.measurements import Measurements, read_measurements


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
