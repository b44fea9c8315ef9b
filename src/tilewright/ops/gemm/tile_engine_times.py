"""Import benchmarks of CK's tile_engine: GEMM, GEMM with preshuffled B, GEMM with D tensors.

Reads four file formats: the JSON that a benchmark program prints (one kernel and problem), the JSON and the CSV that
tile_engine's scripts export (many), and the CSV that benchmark programs append to. A folder stands for all JSON files
in it.

A kernel's name contains its types, layout, traits and tiles. The rest must be given: the GPU (except for the last file
format), `permute_n` of preshuffle kernels, `elementwise` of those with D tensors.

tile_engine's JSON rounds milliseconds to two decimals, which is 10 µs. It rounds rates to two decimals, too, but they
mostly have more significant digits. So the time is computed from the figure that is rounded least.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tilewright.arch.dtypes import find_dtype
from tilewright.base.document_values import expect_integer, expect_number, expect_table, expect_text, parse_number
from tilewright.base.documents import CsvTable, FileProblems, read_json
from tilewright.base.errors import FileFormatError, FileProblem, InvalidValueError, choose
from tilewright.ops import gemm, kernel_of
from tilewright.ops.gemm import Problem
from tilewright.ops.measurement_files import ImportedTime, Readings, read_sheet, require_columns

FIGURES = LATENCY, TFLOPS, BANDWIDTH = "latency(ms)", "tflops(TFlops)", "bandwidth(GB/s)"
# Decimals of the figures of its programs: two in JSON, four in CSV (gemm_benchmark.hpp, gemm_profiler.hpp).
JSON_DIGITS, CSV_DIGITS = 2, 4
VARIANTS = {"gemm": "standard", "gemm_preshuffle": "preshuffle", "gemm_multi_d": "multi_d"}
LAYOUTS = {"RowMajor": "r", "ColumnMajor": "c"}
# Its builder generates kernels with this many D tensors.
MULTI_D = 2
_TILE = r"([0-9]{1,9}x[0-9]{1,9}x[0-9]{1,9})"
_FLAG = r"(True|False)"
_TEXT = r"'[^'\\\x00-\x1f]*'"
_PLAIN = rf"(?:{_TEXT}|True|False|None|-?[0-9]{{1,20}}(?:\.[0-9]{{1,20}})?(?:e[+-]?[0-9]{{1,3}})?)"
_LITERAL = re.compile(rf"{_PLAIN}|\{{(?:{_TEXT}: ?{_PLAIN}(?:, ?)?)*\}}")
_NAME = re.compile(
    r"(?:benchmark_)?(gemm(?:_preshuffle|_multi_d)?)_([a-z0-9]+)_([rc]{3,4})_([a-z0-9_]+)_(cshuffle|default)_"
    rf"(intrawave|interwave|default)_{_FLAG}_{_FLAG}_{_FLAG}_{_FLAG}_{_TILE}_{_TILE}_{_TILE}"
)


@dataclass(frozen=True)
class _BenchmarkRow:
    """One benchmark of any file format."""

    name: str
    problem: Mapping[str, Any]
    figures: Mapping[str, float]
    digits: int
    arch: str = ""
    rocm: str = ""


@dataclass(frozen=True)
class _ImportOptions:
    """Values that the files do not contain."""

    arch: str | None
    elementwise: str | None
    permute_n: bool | None


def read_times(
    path: Path, *, arch: str | None = None, elementwise: str | None = None, permute_n: bool | None = None
) -> Readings:
    """The times of a file, or of all JSON files of a folder. Rows that cannot be imported are reported."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise FileFormatError(path, [FileProblem("", "has no file *.json")])
    asked = _ImportOptions(arch, elementwise, permute_n)
    refused = FileProblems()
    tried = [
        refused.try_call(f"{file.name}, {where}", read, asked) for file in files for where, read in _iterate_rows(file)
    ]
    return Readings([each for each in tried if each is not None], refused.found)


def _iterate_rows(file: Path) -> Iterator[tuple[str, Callable[[_ImportOptions], ImportedTime]]]:
    """The location of each benchmark of a file, and a function that reads it."""
    if file.suffix == ".csv":
        yield from _iterate_csv_rows(file)
        return
    value = read_json(file)
    results = value.get("kernel_results", [value]) if isinstance(value, dict) else value
    if not isinstance(results, list) or not all(isinstance(each, dict) for each in results):
        raise FileFormatError(file, [FileProblem("", "contains no benchmark, and no list kernel_results of them")])
    for place, each in enumerate(results):
        yield f"result {place}", partial(_make_time, partial(_parse_nested, each))


def _iterate_csv_rows(file: Path) -> Iterator[tuple[str, Callable[[_ImportOptions], ImportedTime]]]:
    sheet = read_sheet(file)
    nested = "perf_result" in sheet.header
    if not nested:
        require_columns(file, sheet, ("name", "m", "n", "k", LATENCY))
    for where, cells in sheet.lines:
        yield where, partial(_make_time, partial(_parse_nested_cells if nested else _parse_flat_cells, sheet, cells))


def _parse_nested_cells(sheet: CsvTable, cells: Sequence[str]) -> _BenchmarkRow:
    """A line of tile_engine's script, which writes nested values as Python literals."""
    return _parse_nested({key: _parse_literal(cell) for key, cell in sheet.get_row(cells).items()})


def _parse_flat_cells(sheet: CsvTable, cells: Sequence[str]) -> _BenchmarkRow:
    row = sheet.get_row(cells)
    figures = {key: parse_number(key, row[key]) for key in FIGURES if row.get(key)}
    problem = {key: _parse_literal(cell) for key, cell in row.items()}
    return _BenchmarkRow(
        row["name"], problem, figures, CSV_DIGITS, row.get("device_name", ""), row.get("rocm_version", "")
    )


def _parse_nested(value: Mapping[str, Any]) -> _BenchmarkRow:
    figures = expect_table("perf_result", value.get("perf_result"))
    numbers = {key: expect_number(key, figures[key]) for key in FIGURES if key in figures}
    problem = expect_table("problem", value.get("problem"))
    return _BenchmarkRow(expect_text("name", value.get("name")), problem, numbers, JSON_DIGITS)


def _parse_literal(cell: str) -> Any:
    """The value of a cell: a number, a flag or a flat table in Python syntax. Other text is returned unchanged."""
    return ast.literal_eval(cell) if _LITERAL.fullmatch(cell) else cell


def _make_time(read: Callable[[], _BenchmarkRow], asked: _ImportOptions) -> ImportedTime:
    row = read()
    if asked.arch and row.arch and asked.arch != row.arch:
        raise InvalidValueError(f"was measured on {row.arch}, not on {asked.arch}")
    arch = row.arch or asked.arch
    if not arch:
        raise InvalidValueError("does not state its GPU: give it with --arch")
    fields = _parse_config(row.name, asked)
    problem = _read_problem(row.problem, fields)
    fields["split_k"] = problem.k_batch > 1
    kernel = kernel_of(gemm.config(**fields), arch)
    versions = f"tile_engine, ROCm {row.rocm}" if row.rocm else "tile_engine"
    return ImportedTime(kernel, problem, _compute_microseconds(row, problem), versions)


def _parse_config(name: str, asked: _ImportOptions) -> dict[str, Any]:
    """The fields of a kernel from its name."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise InvalidValueError(f"{name!r} is not a name of a tile_engine kernel of {', '.join(VARIANTS)}")
    family, types, layout, pipeline, epilogue, scheduler, *flags = found.groups()[:10]
    fields: dict[str, Any] = {
        "variant": VARIANTS[family],
        "dtype": types,
        "layout": layout[:3],
        "pipeline": pipeline,
        "epilogue": epilogue,
        "scheduler": scheduler,
        **{key: flag == "True" for key, flag in zip(("pad_m", "pad_n", "pad_k", "persistent"), flags, strict=True)},
        **{key: _parse_tile(text) for key, text in zip(("block", "waves", "mma"), found.groups()[10:], strict=True)},
    }
    if fields["variant"] == "multi_d":
        if asked.elementwise is None:
            raise InvalidValueError("does not state the operation on the D tensors: give it with --elementwise")
        fields |= {"elementwise": asked.elementwise, "num_d": MULTI_D}
    if fields["variant"] == "preshuffle":
        if asked.permute_n is None:
            raise InvalidValueError("does not state whether N is permuted: give --permute-n or --no-permute-n")
        fields["permute_n"] = asked.permute_n
    return fields


def _parse_tile(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("x"))


def _read_problem(given: Mapping[str, Any], fields: Mapping[str, Any]) -> Problem:
    layout = "".join(LAYOUTS[choose(f"layout_{x}", given[f"layout_{x}"], LAYOUTS)] for x in "abc")
    if layout != fields["layout"]:
        raise InvalidValueError(f"its problem has layout {layout}, but its name has {fields['layout']}")
    if given.get("structured_sparsity") in (True, 1):
        raise InvalidValueError("was measured with structured sparsity, which Tilewright does not support")
    values: dict[str, Any] = {
        **{key: expect_integer(key, given[key]) for key in ("m", "n", "k")},
        **{key: expect_text(key, given[key]) for key in ("dtype_a", "dtype_b", "dtype_c")},
        **{key: expect_integer(key, given.get(key, 0)) for key in ("stride_a", "stride_b", "stride_c")},
        **{key: fields[key] for key in ("num_d", "elementwise") if key in fields},
    }
    return Problem(**values, layout=layout, k_batch=expect_integer("split_k", given.get("split_k", 1)))


def _compute_microseconds(row: _BenchmarkRow, problem: Problem) -> float:
    """The time, from the largest of the figures: all are rounded to the same decimals. The others must agree."""
    figures = row.figures
    if LATENCY not in figures:
        raise InvalidValueError(f"has no {LATENCY}")
    if min(figures.values()) < 0 or max(figures.values()) == 0:
        raise InvalidValueError(f"{LATENCY} is {figures[LATENCY]:g}, it must be positive: the benchmark failed")
    best = max(figures, key=lambda key: figures[key])
    work = _count_work(row.problem, problem)
    us = figures[best] * 1e3 if best == LATENCY else work[best] / figures[best]
    for key, figure in figures.items():
        wanted = us * 1e-3 if key == LATENCY else work[key] / us
        # Half of the last digit of both, and the error of single precision.
        allowed = 0.5 * 10**-row.digits * (1 + wanted / figures[best]) + 1e-5 * wanted
        if not (math.isfinite(allowed) and abs(figure - wanted) <= allowed):
            figures_differ = f"{key} is {figure:g}, but {best} = {figures[best]:g} implies {wanted:.6g}"
            raise InvalidValueError(f"{figures_differ}: they are not from one run")
    return us


def _count_work(given: Mapping[str, Any], problem: Problem) -> dict[str, float]:
    """The numerators of tile_engine's rates. It also counts each byte of D as an operation."""
    extra = sum(
        problem.m * problem.n * find_dtype(given.get(f"dtype_d{i}", problem.dtype_c)).bits // 8
        for i in range(problem.num_d)
    )
    bare = replace(problem, num_d=0)
    return {TFLOPS: (bare.flops + extra) * 1e-6, BANDWIDTH: (bare.bytes_moved + extra) * 1e-3}
