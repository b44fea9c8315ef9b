"""A complete sweep of Tensile's fp16 kernels on one die of an MI250X: every kernel timed once for every problem."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research import tensile
from research.sources import find_measurements
from tilewright.base.errors import InvalidValueError


@dataclass(frozen=True)
class Sweep:
    """`us` has a row for each problem (m, n, k) and a column for each kernel."""

    problems: NDArray[np.float64]
    us: NDArray[np.float64]
    kernels: tensile.Columns
    names: tuple[str, ...]
    left_out: tuple[tuple[str, int], ...]


def load() -> Sweep:
    """Load the first round of the sweep. Later rounds have different kernels for each problem."""
    import pyarrow.parquet

    path = find_measurements("hipblaslt_mi250x_fp16_sweep", "sweep.parquet")
    stored = pyarrow.parquet.read_table(path)
    table = {name: stored.column(name).to_numpy() for name in stored.column_names}
    first = np.array([name.startswith("Round1_") for name in table["round"]])
    # The same name in both series means two builds, with 16×16 and with 32×32 matrix instructions.
    labels = np.array(
        [f"{series} {name}" for series, name in zip(table["try"][first], table["kernel"][first], strict=True)]
    )
    sizes = np.column_stack([table[axis][first] for axis in ("M", "N", "K")]).astype(float)
    problems, row = np.unique(sizes, axis=0, return_inverse=True)
    names, column = np.unique(labels, return_inverse=True)
    us = np.full((len(problems), len(names)), np.nan)
    us[row.ravel(), column] = table["us"][first]
    if np.isnan(us).any() or first.sum() != us.size:
        raise InvalidValueError(f"{path}: {first.sum()} timings of {us.size} pairs; the first round should be complete")
    plain = [name.partition(" ")[2] for name in names]
    left = (("timings of later rounds, whose kernels differ from problem to problem", int((~first).sum())),)
    return Sweep(problems, us, tensile.parse_names(plain), tuple(plain), left)
