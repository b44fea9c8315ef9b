"""The public sweep of CK Tile's forward convolutions on gfx950, 231 problems × 30 labels, as times of our kernels.

Which kernels the labels are, and why, is told where the file is imported: `tilewright.ops.grouped_conv.gfx950_times`.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from research.sources import find_measurements
from tilewright.learn.dataset import Dataset, build_dataset
from tilewright.learn.measurements import Measurement, Measurements, make_table
from tilewright.ops.grouped_conv.gfx950_times import ARCH, PIPELINES, PLAUSIBLE, make_labelled_kernel, read_row_problem
from tilewright.ops.problem_values import dump_problem

OP = "grouped_conv"
FILE = ("ck_tile_conv_gfx950", "conv_fwd_bf16_gfx950.csv")
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Labelled:
    """The rows of the file: AMD's problems and labels, numbered from 0, and our problems and kernels for them."""

    table: Measurements
    data: Dataset  # kernels and distinct problems, with the median time of each pair
    by_label: Dataset  # all rows; an additional feature marks compv5 labels
    problem: Integers  # AMD's problem of each row
    label: Integers  # the index in `labels` of each row
    us: Floats
    pair: Integers  # the row of `data` for each row
    plausible: NDArray[np.bool_]  # for each of AMD's problems, whether nearly all outputs were written
    labels: tuple[tuple[int, int, int, str], ...]


@functools.cache
def load() -> Labelled:
    """Load the public file, once."""
    with find_measurements(*FILE).open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    order = {pipeline: i for i, pipeline in enumerate(PIPELINES)}
    keys = [(int(r["tile_m"]), int(r["tile_n"]), int(r["tile_k"]), r["pipeline"]) for r in rows]
    labels = tuple(sorted(set(keys), key=lambda key: (order[key[3]], *key[:3])))
    first = {row["problem_idx"]: row for row in reversed(rows)}
    numbers = {name: i for i, name in enumerate(dict.fromkeys(row["problem_idx"] for row in rows))}
    table = _make_dataset(rows, keys, {name: dump_problem(read_row_problem(row)) for name, row in first.items()})
    data, every = build_dataset(table, OP, ARCH), build_dataset(table, OP, ARCH, repeats="keep")
    second = [float(key[3] == "compv5") for key in keys]
    return Labelled(
        table=table,
        data=data,
        by_label=replace(
            every, names=(*every.names, "second_label"), features=np.column_stack([every.features, second])
        ),
        problem=np.array([numbers[row["problem_idx"]] for row in rows]),
        label=np.array([labels.index(key) for key in keys]),
        us=table.us,
        pair=_find_pairs(data, every),
        plausible=np.array([float(first[name]["nz_ratio"]) > PLAUSIBLE for name in numbers]),
        labels=labels,
    )


def _make_dataset(
    rows: Sequence[Mapping[str, str]], keys: Sequence[tuple[int, int, int, str]], problems: Mapping[str, str]
) -> Measurements:
    slugs = {key: make_labelled_kernel(*key).slug for key in set(keys)}
    return make_table(
        Measurement(
            op=OP,
            arch=ARCH,
            kernel=slugs[key],
            problem=problems[row["problem_idx"]],
            us=float(row["latency_us"]),
            source="rocm-libraries dd65539 {}x{}x{} {}".format(*key),
        )
        for row, key in zip(rows, keys, strict=True)
    )


def _find_pairs(data: Dataset, every: Dataset) -> Integers:
    """Find, for each row, the row of the data set that contains its time."""
    number = {(p, k): i for i, (p, k) in enumerate(zip(data.problem, data.kernel, strict=True))}
    return np.array([number[p, k] for p, k in zip(every.problem, every.kernel, strict=True)])
