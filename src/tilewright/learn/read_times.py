"""Times to learn from, whatever holds them: a table of measurements, or records of sweeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tilewright.base.documents import CONTENT_ERRORS
from tilewright.base.events import Noticed, emit
from tilewright.bench.sources import open_sources
from tilewright.bench.table import SCHEMA_KEY
from tilewright.learn.from_records import to_measurements
from tilewright.learn.measurements import Measurements, read_measurements


def read_times(path: Path) -> Measurements:
    """The table of a file of measurements, or what is made of a journal (a folder) or of a table of records."""
    if not path.is_dir() and not _holds_records(path):
        return read_measurements(path)
    found = open_sources(path)
    for damage in found.damaged:
        emit(Noticed(f"not read: {damage}"))
    return _ordered(to_measurements(found.records()))


def _ordered(table: Measurements) -> Measurements:
    """Rows by what they are about: in which order workers wrote them is chance, and models should not depend on it."""
    columns = (table.us, table.source.codes, table.kernel.codes, table.problem.codes, table.arch.codes, table.op.codes)
    return table.kept(np.lexsort(columns))


def _holds_records(path: Path) -> bool:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        metadata = pq.read_schema(path).metadata or {}
    except (pa.ArrowException, OSError, *CONTENT_ERRORS):
        return False  # the reader of measurements says what is wrong with it
    return SCHEMA_KEY.encode() in metadata
