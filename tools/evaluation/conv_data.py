"""The public sweep of CK Tile's forward convolutions on gfx950, 231 problems × 30 labels, as times of our kernels.

The 30 labels are 13 kernels, as their times show and as our rules say.

- compv5 of a tile takes as long as compv3 of it (0.4 % median difference above 30 µs). CK Tile's compv5 needs two wave
  groups (rules P305, T204), which none of these tiles has: what ran is the compv3 kernel, measured a second time.
- The ten compv4 labels have three distinct times, by the rows of the tile: 16, 32, and 64 or more. AMD's rules list
  compv4 for 16x16 instructions only and double its block k: what ran is 16x64x128, 32x64x128 or 64x64x128.

Waves, instructions and vectors are not in the file; they are those of AMD's rules for these tiles. The runner pads
input and output channels to multiples of 16, so the problems here have padded channels, too.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from evaluation.sources import measurements
from tilewright.learn.dataset import Dataset, dataset
from tilewright.learn.measurements import Measurement, Measurements, problem_json, table_of
from tilewright.ops import grouped_conv, kernel_of
from tilewright.ops.grouped_conv import Problem
from tilewright.ops.kernel import Kernel

FILE = ("ck_tile_conv_gfx950", "conv_fwd_bf16_gfx950.csv")
OP, ARCH = "grouped_conv", "gfx950"
# AMD's runner pads channels to multiples of this.
PADDED_TO = 16
# Share of the outputs that were not zero, above which a problem counts as computed: see the data's README.
PLAUSIBLE = 0.9

# Tile → waves along m and n, and m (as n) and k of the matrix instruction: AMD's grouped_config_rules.py.
TILES: Mapping[tuple[int, int, int], tuple[int, int, int, int]] = {
    (16, 64, 64): (1, 4, 16, 16),
    (32, 64, 64): (2, 2, 16, 16),
    (64, 64, 64): (4, 1, 16, 16),
    (32, 128, 64): (1, 4, 32, 16),
    (64, 128, 64): (2, 2, 32, 16),
    (128, 128, 64): (4, 4, 32, 16),
    (16, 64, 128): (1, 4, 16, 32),
    (32, 64, 128): (2, 2, 16, 32),
    (64, 64, 128): (4, 1, 16, 32),
    (128, 64, 128): (8, 2, 16, 32),
}
PIPELINES = ("compv5", "compv3", "compv4")

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Labelled:
    """The file by rows: AMD's problems and labels, numbered from 0, and what they are to us."""

    table: Measurements
    data: Dataset  # kernels and distinct problems, with the median of the times that stand for one pair
    by_label: Dataset  # all rows; a further feature tells compv5 labels from the compv3 labels of the same kernel
    problem: Integers  # of each row: AMD's problem
    label: Integers  # of each row: its place in `labels`
    us: Floats
    pair: Integers  # of each row: the row of `data` that it belongs to
    plausible: NDArray[np.bool_]  # of each of AMD's problems: whether nearly all outputs were written
    labels: tuple[tuple[int, int, int, str], ...]


def kernel_of_label(m: int, n: int, k: int, pipeline: str) -> Kernel:
    """The kernel that ran under a label."""
    block = (min(m, 64), 64, 128) if pipeline == "compv4" else (m, n, k)
    waves_m, waves_n, mma, mma_k = TILES[block]
    config = grouped_conv.config(
        direction="forward",
        layout="nhwgc",
        dtype="bf16",
        block=block,
        waves=(waves_m, waves_n, 1),
        mma=(mma, mma, 16 if pipeline == "compv4" else mma_k),
        pipeline="compv4" if pipeline == "compv4" else "compv3",
        scheduler="intrawave",
        epilogue="cshuffle",
        vector=(4, 8, 8),
    )
    return kernel_of(config, ARCH)


def problem_of_row(row: Mapping[str, str]) -> Problem:
    """The problem that the runner computed for a row."""
    number = {name: int(text) for name, text in row.items() if text.isdecimal()}
    return Problem(
        direction="forward",
        n=number["N"],
        g=number["G"],
        c=-(-number["C"] // PADDED_TO) * PADDED_TO,
        k=-(-number["K"] // PADDED_TO) * PADDED_TO,
        input_size=(number["Hi"], number["Wi"]),
        filter_size=(number["Y"], number["X"]),
        stride=(number["stride_h"], number["stride_w"]),
        pad=(number["pad_h"], number["pad_w"]),
        dtype="bf16",
    )


@functools.cache
def load() -> Labelled:
    """The public file, read once."""
    with measurements(*FILE).open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    order = {pipeline: i for i, pipeline in enumerate(PIPELINES)}
    keys = [(int(r["tile_m"]), int(r["tile_n"]), int(r["tile_k"]), r["pipeline"]) for r in rows]
    labels = tuple(sorted(set(keys), key=lambda key: (order[key[3]], *key[:3])))
    first = {row["problem_idx"]: row for row in reversed(rows)}
    numbers = {name: i for i, name in enumerate(dict.fromkeys(row["problem_idx"] for row in rows))}
    table = _table(rows, keys, {name: problem_json(problem_of_row(row)) for name, row in first.items()})
    data, every = dataset(table, OP, ARCH), dataset(table, OP, ARCH, repeats="keep")
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
        pair=_pairs(data, every),
        plausible=np.array([float(first[name]["nz_ratio"]) > PLAUSIBLE for name in numbers]),
        labels=labels,
    )


def _table(
    rows: Sequence[Mapping[str, str]], keys: Sequence[tuple[int, int, int, str]], problems: Mapping[str, str]
) -> Measurements:
    slugs = {key: kernel_of_label(*key).slug for key in set(keys)}
    return table_of(
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


def _pairs(data: Dataset, every: Dataset) -> Integers:
    """Of each row the row of the data set that its time went into."""
    number = {(p, k): i for i, (p, k) in enumerate(zip(data.problem, data.kernel, strict=True))}
    return np.array([number[p, k] for p, k in zip(every.problem, every.kernel, strict=True)])
