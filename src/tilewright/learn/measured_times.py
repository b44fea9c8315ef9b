"""Measured times of kernels as a matrix of problems × kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import InvalidValueError
from tilewright.learn.measurements import Measurements
from tilewright.learn.medians import compute_medians


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
