"""Import the public sweep of CK Tile's forward convolutions on gfx950, 231 problems × 30 labels.

The 30 labels are 13 kernels, according to their times and to Tilewright's rules.

- compv5 with a tile takes as long as compv3 with it (0.4 % median difference above 30 µs). CK Tile's compv5 needs two
  wave groups (rules P305, T204), which none of these tiles has: the compv3 kernel was measured a second time.
- The ten compv4 labels have three distinct times, by the rows of the tile: 16, 32, and 64 or more. AMD's rules list
  compv4 for 16x16 instructions only and double its block k: the kernels are 16x64x128, 32x64x128 or 64x64x128.

Waves, instructions and vectors are not in the file; they are taken from AMD's rules for these tiles. The runner pads
input and output channels to multiples of 16, so the problems here have padded channels, too.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.base.document_values import parse_digits, parse_number
from tilewright.base.documents import FileProblems
from tilewright.base.errors import InvalidValueError
from tilewright.ops import grouped_conv, kernel_of
from tilewright.ops.grouped_conv import Problem
from tilewright.ops.kernel import Kernel
from tilewright.ops.measurement_files import ImportedTime, Readings, read_sheet, require_columns

ARCH = "gfx950"
# The commit of ROCm/rocm-libraries that contains the file.
VERSIONS = "rocm-libraries dd65539"
# AMD's runner pads channels to multiples of this.
PADDED_TO = 16
# The share of non-zero outputs above which a problem counts as computed: see the data's README.
PLAUSIBLE = 0.9
SIZES = ("N", "C", "K", "G", "Hi", "Wi", "Y", "X", "stride_h", "stride_w", "pad_h", "pad_w")
TILE = ("tile_m", "tile_n", "tile_k")
COLUMNS = (
    *("problem_idx", *SIZES),
    *("nz_ratio", *TILE, "pipeline", "latency_us"),
)

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


@functools.cache
def make_labelled_kernel(
    m: int, n: int, k: int, pipeline: str, *, direction: str = "forward", dtype: str = "bf16", arch: str = ARCH
) -> Kernel:
    """The kernel that ran under a label."""
    block = (min(m, 64), 64, 128) if pipeline == "compv4" else (m, n, k)
    if pipeline not in PIPELINES or block not in TILES:
        tiles = ", ".join("x".join(map(str, tile)) for tile in TILES)
        raise InvalidValueError(
            f"{m}x{n}x{k} {pipeline} is none of the sweep's labels: tiles {tiles} with {', '.join(PIPELINES)}"
        )
    waves_m, waves_n, mma, mma_k = TILES[block]
    config = grouped_conv.config(
        direction=direction,
        layout="nhwgc",
        dtype=dtype,
        block=block,
        waves=(waves_m, waves_n, 1),
        mma=(mma, mma, 16 if pipeline == "compv4" else mma_k),
        pipeline="compv4" if pipeline == "compv4" else "compv3",
        scheduler="intrawave",
        epilogue="cshuffle",
        vector=(4, 8, 8),
    )
    return kernel_of(config, arch)


def read_row_problem(row: Mapping[str, str], *, direction: str = "forward", dtype: str = "bf16") -> Problem:
    """The problem that the runner computed for a row."""
    number = {name: parse_digits(name, row[name]) for name in SIZES}
    return Problem(
        direction=direction,
        n=number["N"],
        g=number["G"],
        c=-(-number["C"] // PADDED_TO) * PADDED_TO,
        k=-(-number["K"] // PADDED_TO) * PADDED_TO,
        input_size=(number["Hi"], number["Wi"]),
        filter_size=(number["Y"], number["X"]),
        stride=(number["stride_h"], number["stride_w"]),
        pad=(number["pad_h"], number["pad_w"]),
        dtype=dtype,
    )


def read_times(path: Path) -> Readings:
    """The times of the file. Labels of the same kernel are repeats."""
    sheet = read_sheet(path)
    require_columns(path, sheet, COLUMNS)
    problems: dict[str, Problem] = {}
    doubtful: set[str] = set()

    def make_time(cells: Sequence[str]) -> ImportedTime:
        row = sheet.get_row(cells)
        name = row["problem_idx"]
        if name not in problems:
            problems[name] = read_row_problem(row)
        kernel = make_labelled_kernel(*(parse_digits(key, row[key]) for key in TILE), pipeline=row["pipeline"])
        us = parse_number("latency_us", row["latency_us"], above=0)
        if parse_number("nz_ratio", row["nz_ratio"]) <= PLAUSIBLE:
            doubtful.add(name)
        return ImportedTime(kernel, problems[name], us, VERSIONS)

    refused = FileProblems()
    tried = [refused.try_call(place, make_time, cells) for place, cells in sheet.lines]
    rows = [each for each in tried if each is not None]
    return Readings(rows, refused.found, _list_notes(len(doubtful), len(problems)))


def _list_notes(doubtful: int, problems: int) -> tuple[str, ...]:
    if not doubtful:
        return ()
    return (
        f"for {doubtful:,} of {problems:,} problems at most {PLAUSIBLE:.0%} of the outputs are not zero: AMD's "
        "kernels may not have computed all of them. Their times are kept",
    )
