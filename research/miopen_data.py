"""MIOpen's find-db of gfx90a: convolution problems and the times of their fastest solvers.

A line is `key=solver:ms,workspace,algorithm;…`, at most four solvers, fastest first. The key is
C-H-W-filter-K-Ho-Wo-N-pad-stride-dilation-bias-layout-type-direction, with depths for three dimensions, and `_g` with
the number of groups. In keys of both gradients input and output have changed places: what the kernel reads comes
first. Here a problem is always written as its forward convolution, so that the three directions of a layer are seen
to be one geometry.
"""

from __future__ import annotations

import bz2
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research.sources import find_measurements
from tilewright.base.errors import FileFormatError, FileProblem, choose

DIRECTIONS, DTYPES, LAYOUTS = "FBW", ("FP32", "FP16", "BF16", "INT8"), ("NCHW", "NCDHW", "NHWC", "NDHWC")
FIELDS = (
    "direction dtype channels_last dims bias n c d h w k do ho wo fd fh fw pd ph pw sd sh sw dd dh dw g".split()  # noqa: SIM905
)
# The fields that identify a layer: all except batch, type, layout and direction.
GEOMETRY = [name for name in FIELDS if name not in ("direction", "dtype", "channels_last", "bias", "n")]


@dataclass(frozen=True)
class FindDb:
    """Problems (a row of `FIELDS` each) and timings, those of a problem in random order."""

    problems: NDArray[np.float64]
    problem: NDArray[np.int64]
    solver: NDArray[np.int64]
    us: NDArray[np.float64]
    workspace: NDArray[np.float64]
    solvers: tuple[str, ...]
    left_out: tuple[tuple[str, int], ...]  # causes and counts

    def field(self, name: str) -> NDArray[np.float64]:
        return self.problems[:, FIELDS.index(name)]

    @property
    def geometry(self) -> NDArray[np.int64]:
        """The number of each problem's geometry."""
        columns = self.problems[:, [FIELDS.index(name) for name in GEOMETRY]]
        return np.unique(columns, axis=0, return_inverse=True)[1].ravel()


def load(seed: int = 0) -> FindDb:
    """Load all problems with at least two timed solvers, and count the excluded rows."""
    problems: list[list[float]] = []
    rows: list[tuple[int, int, float, float]] = []
    solvers: dict[str, int] = {}
    left_out: Counter[str] = Counter()
    path = find_measurements("miopen", "gfx90a68.HIP.fdb.2024-10.txt.bz2")
    with bz2.open(path, "rt") as file:
        for line in file:
            key, _, entries = line.rstrip("\n").partition("=")
            timed = _parse_timings(entries, left_out)
            if len(timed) < 2:
                left_out["problems with fewer than two timed solvers"] += 1
                left_out["timings of those problems"] += len(timed)
                continue
            rows.extend((len(problems), solvers.setdefault(name, len(solvers)), us, size) for name, us, size in timed)
            problems.append(parse_key(key))
    table = np.array(rows)
    # The file is sorted by time: shuffle it, so that ties do not reveal the answer.
    table = table[np.lexsort((np.random.default_rng(seed).random(len(table)), table[:, 0]))]
    return FindDb(
        np.array(problems, float),
        table[:, 0].astype(np.int64),
        table[:, 1].astype(np.int64),
        table[:, 2],
        table[:, 3],
        tuple(solvers),
        tuple(left_out.items()),
    )


def _parse_timings(entries: str, left_out: Counter[str]) -> list[tuple[str, float, float]]:
    """Parse the solver, microseconds and workspace bytes of each entry with a time."""
    timed = {}
    for entry in entries.split(";"):
        solver, _, values = entry.partition(":")
        parts = values.split(",")
        if len(parts) < 2:
            left_out["entries without a time"] += 1
        elif float(parts[0]) <= 0:
            left_out["timings of zero"] += 1
        elif solver in timed:
            left_out["timings of a solver that stands twice"] += 1
        else:
            timed[solver] = (solver, float(parts[0]) * 1e3, float(parts[1]))
    return list(timed.values())


def parse_key(key: str) -> list[float]:
    """Parse the values of a problem in the order of `FIELDS`."""
    body, _, groups = key.partition("_g")
    parts = body.split("-")
    # The filter, the only field with an x so early, is the fourth in two dimensions and the fifth in three.
    dims = 2 if "x" in parts[3] else 3
    sizes = 3 if dims == 2 else 4
    *first, filter_, k = parts[: sizes + 2]
    second, rest = parts[sizes + 2 : 2 * sizes + 1], parts[2 * sizes + 1 :]
    # Either one layout or three: of input, weights and output.
    if len(rest) not in (8, 10):
        raise FileFormatError(key, [FileProblem("", f"{len(parts)} fields; known are 15 to 19")])
    n, pad, stride, dilation, bias, layout, *_, dtype, direction = rest
    read = [int(first[0]), *_extend_to_three(first[1:], 1)]
    written = [int(k), *_extend_to_three(second, 1)]
    source, result = (read, written) if direction == "F" else (written, read)
    return [
        DIRECTIONS.index(choose("direction", direction, DIRECTIONS)),
        DTYPES.index(choose("type", dtype, DTYPES)),
        choose("layout", layout, LAYOUTS).endswith("C"),
        dims,
        int(bias),
        int(n),
        *source,
        *result,
        *_extend_to_three(filter_.split("x"), 1),
        *_extend_to_three(pad.split("x"), 0),
        *_extend_to_three(stride.split("x"), 1),
        *_extend_to_three(dilation.split("x"), 1),
        int(groups or 1),
    ]


def _extend_to_three(values: list[str], fill: int) -> list[int]:
    return [fill] * (3 - len(values)) + [int(value) for value in values]
