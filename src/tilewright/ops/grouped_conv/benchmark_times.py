"""Import what AMD's benchmark of grouped convolutions writes: a CSV file for one of the three directions.

A kernel's name has the direction, type, dimensions, tile and pipeline: `grouped_conv_bwd_data_bf16_2d_64x64x64_compv3`.
The GPU must be given. Tiles stand for the kernels that `gfx950_times` describes; its other fields are from AMD's rules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.base.document_values import parse_digits, parse_number
from tilewright.base.documents import FileProblems
from tilewright.base.errors import InvalidValueError
from tilewright.ops.grouped_conv import Problem
from tilewright.ops.grouped_conv.ck_model_features import DIRECTION_NAMES
from tilewright.ops.grouped_conv.gfx950_times import PLAUSIBLE, SIZES, make_labelled_kernel, read_row_problem
from tilewright.ops.measurement_files import ImportedTime, Readings, read_sheet, require_columns

COLUMNS = ("kernel", "problem_idx", *SIZES, "latency_ms", "non_zero")
# Nothing in the file tells the version that was measured.
VERSIONS = "AMD's grouped_conv_full_benchmark.py"
_TILE = "x".join(["([0-9]{1,4})"] * 3)
_NAME = re.compile(rf"grouped_conv_({'|'.join(DIRECTION_NAMES)})_([a-z0-9]{{1,8}})_2d_{_TILE}_([a-z0-9]{{1,12}})")


def read_times(path: Path, *, arch: str | None = None) -> Readings:
    """The times of a file that were measured on the GPU `arch`."""
    if arch is None:
        raise InvalidValueError("the file does not name the GPU that was measured: give it with --gpu")
    sheet = read_sheet(path)
    require_columns(path, sheet, COLUMNS)
    doubtful: set[tuple[str, str]] = set()
    seen: set[tuple[str, str]] = set()

    def make_time(cells: Sequence[str]) -> ImportedTime:
        row = sheet.get_row(cells)
        direction, dtype, tile, pipeline = parse_kernel_name(row["kernel"])
        problem = read_row_problem(row, direction=direction, dtype=dtype)
        key = (direction, row["problem_idx"])
        seen.add(key)
        if _count_share(row, problem) <= PLAUSIBLE:
            doubtful.add(key)
        kernel = make_labelled_kernel(*tile, pipeline=pipeline, direction=direction, dtype=dtype, arch=arch)
        us = 1e3 * parse_number("latency_ms", row["latency_ms"], above=0)
        return ImportedTime(kernel, problem, us, VERSIONS)

    refused = FileProblems()
    tried = [refused.try_call(place, make_time, cells) for place, cells in sheet.lines]
    return Readings([each for each in tried if each is not None], refused.found, _list_notes(len(doubtful), len(seen)))


def parse_kernel_name(name: str) -> tuple[str, str, tuple[int, int, int], str]:
    """The direction, type, tile and pipeline of a kernel's name."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise InvalidValueError(
            f"the kernel {name!r} is not named grouped_conv_DIRECTION_TYPE_2d_MxNxK_PIPELINE, with one of the "
            f"directions {', '.join(DIRECTION_NAMES)}"
        )
    direction, dtype, m, n, k, pipeline = match.groups()
    return DIRECTION_NAMES[direction], dtype, (int(m), int(n), int(k)), pipeline


def _count_share(row: Mapping[str, str], problem: Problem) -> float:
    """The share of a result's elements that are not zero. Results do not have the problem's padded channels."""
    n, c, k, g = (parse_digits(name, row[name]) for name in ("N", "C", "K", "G"))
    sizes = {
        "forward": n * k * math.prod(problem.output_size),
        "backward_data": n * c * math.prod(problem.input_size),
        "backward_weight": k * (c // g) * math.prod(problem.filter_size),
    }
    return parse_digits("non_zero", row["non_zero"]) / sizes[problem.direction]


def _list_notes(doubtful: int, problems: int) -> tuple[str, ...]:
    if not doubtful:
        return ()
    return (
        f"for {doubtful:,} of {problems:,} problems at most {PLAUSIBLE:.0%} of the results are not zero: AMD's kernels "
        "may not have computed all of them. Their times are kept",
    )
