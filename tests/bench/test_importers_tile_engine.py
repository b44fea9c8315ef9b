"""Benchmarks of CK's tile_engine, in the four forms that its programs and scripts write."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tilewright.base.errors import FileFormatError
from tilewright.bench.plan import parse_problem
from tilewright.bench.record import Record
from tilewright.bench.sources import read_foreign
from tilewright.ops import parse_kernel

NAME = "gemm_fp16_rcr_compv4_cshuffle_intrawave_False_False_True_False_256x128x32_2x2x1_32x32x16"
M, N, K = 3840, 4096, 2048
FLOPS, BYTES = 2 * M * N * K, 2 * (M * K + K * N + M * N)


def problem(**changes: Any) -> dict[str, Any]:
    return {
        "split_k": 1, "m": M, "n": N, "k": K, "stride_a": K, "stride_b": K, "stride_c": N,
        "dtype_a": "fp16", "dtype_b": "fp16", "dtype_acc": "fp32", "dtype_c": "fp16",
        "layout_a": "RowMajor", "layout_b": "ColumnMajor", "layout_c": "RowMajor", "structured_sparsity": False,
        **changes,
    }  # fmt: skip


def figures(us: float, digits: int = 2) -> dict[str, float]:
    """As its programs round them."""
    return {
        "latency(ms)": round(us / 1000, digits),
        "tflops(TFlops)": round(FLOPS / us * 1e-6, digits),
        "bandwidth(GB/s)": round(BYTES / us * 1e-3, digits),
    }


def printed(us: float = 123.4, name: str = NAME, **changes: Any) -> dict[str, Any]:
    return {"name": name, "problem": problem(**changes), "perf_result": figures(us)}


def only(path: Path, **options: Any) -> Record:
    found = read_foreign("tile_engine", path, **{"arch": "gfx942", **options})
    assert not found.refused, found.refused
    (record,) = found.records
    return record


def us_of(record: Record) -> float:
    assert record.times is not None
    return record.times.us


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def test_what_a_program_prints(tmp_path: Path) -> None:
    record = only(write(tmp_path / "r.json", printed()))
    config: Any = parse_kernel(record.task.kernel).config
    assert (config.block, config.waves, config.mma) == ((256, 128, 32), (2, 2, 1), (32, 32, 16))
    assert (config.pipeline, config.epilogue, config.scheduler) == ("compv4", "cshuffle", "intrawave")
    assert (config.pad_m, config.pad_k, config.persistent, config.split_k) == (False, True, False, False)
    assert (config.variant, config.dtype_a, config.dtype_c, config.layout) == ("standard", "fp16", "fp16", "rcr")
    asked = parse_problem("gemm", record.task.problem)
    assert (asked.m, asked.n, asked.k, asked.stride_b) == (M, N, K, K)
    assert (record.task.arch, record.task.device, record.kind) == ("gfx942", "imported:tile_engine", "time")


@pytest.mark.parametrize("us", [3.0, 47.3, 123.4, 9_876.5])
def test_times_are_finer_than_the_rounded_milliseconds(tmp_path: Path, us: float) -> None:
    found = us_of(only(write(tmp_path / "r.json", printed(us))))
    assert found == pytest.approx(us, rel=0.0051 / max(figures(us).values()))


@pytest.mark.parametrize("figure", ["latency(ms)", "tflops(TFlops)", "bandwidth(GB/s)"])
def test_figures_that_are_not_of_one_run_are_refused(tmp_path: Path, figure: str) -> None:
    value = printed()
    value["perf_result"][figure] *= 1.2
    found = read_foreign("tile_engine", write(tmp_path / "r.json", value), arch="gfx942")
    assert "are not from one run" in found.refused[0].what and not found.records


def test_what_the_scripts_export(tmp_path: Path) -> None:
    results = [{**printed(us), "name": f"benchmark_{NAME}", "config_id": "x", "time_ms": 0.1} for us in (100, 130, 110)]
    path = write(tmp_path / "all.json", {"benchmark_metadata": {}, "kernel_results": results})
    record = only(path)
    assert us_of(record) == pytest.approx(110, rel=1e-4)
    assert record.times is not None and record.times.runs == 3
    with (tmp_path / "all.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=sorted(results[0]))
        writer.writeheader()
        writer.writerows(results)
    assert only(tmp_path / "all.csv") == record


def test_what_programs_append_to(tmp_path: Path) -> None:
    rounded = figures(123.4, 4)
    row = {"rocm_version": "7.0.1", "device_name": "gfx942", **problem(structured_sparsity=0), "name": NAME, **rounded}
    with (tmp_path / "r.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=[*row, "metric"])
        writer.writeheader()
        writer.writerow({**row, "metric": "latency"})
    record = only(tmp_path / "r.csv", arch=None)
    assert us_of(record) == pytest.approx(123.4, rel=1e-6) and record.task.versions == "tile_engine, ROCm 7.0.1"
    found = read_foreign("tile_engine", tmp_path / "r.csv", arch="gfx950")
    assert found.refused[0].what == "was measured on gfx942, not on gfx950"


def test_a_figure_that_is_no_number_is_refused_with_its_line(tmp_path: Path) -> None:
    row = {"device_name": "gfx942", **problem(structured_sparsity=0), "name": NAME, "latency(ms)": "n/a"}
    with (tmp_path / "r.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(row))
        writer.writeheader()
        writer.writerow(row)
    (refused,) = read_foreign("tile_engine", tmp_path / "r.csv").refused
    assert refused.where == "r.csv, line 2" and "'n/a'" in refused.what


def test_a_folder_of_results(tmp_path: Path) -> None:
    write(tmp_path / "a.json", printed())
    write(tmp_path / "b.json", printed(m=128, stride_c=N, us=123.4))
    found = read_foreign("tile_engine", tmp_path, arch="gfx942")
    assert len(found.records) == 1 and found.refused[0].where == "b.json, result 0"  # its rates are those of the first
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileFormatError, match=r"has no file \*\.json"):
        read_foreign("tile_engine", tmp_path / "empty", arch="gfx942")


def test_split_k_is_another_kernel(tmp_path: Path) -> None:
    record = only(write(tmp_path / "r.json", printed(split_k=4)))
    config: Any = parse_kernel(record.task.kernel).config
    assert config.split_k is True and parse_problem("gemm", record.task.problem).k_batch == 4


def test_preshuffled_kernels_need_to_know_whether_n_is_permuted(tmp_path: Path) -> None:
    name = NAME.replace("gemm_", "gemm_preshuffle_").replace("compv4", "preshufflev2").replace("intrawave", "default")
    path = write(tmp_path / "r.json", printed(name=name))
    config: Any = parse_kernel(only(path, permute_n=True).task.kernel).config
    assert (config.variant, config.permute_n, config.pipeline) == ("preshuffle", True, "preshufflev2")
    assert "--permute-n" in read_foreign("tile_engine", path, arch="gfx942").refused[0].what


def test_kernels_with_d_tensors_need_to_know_what_is_done(tmp_path: Path) -> None:
    value = printed(name=NAME.replace("gemm_", "gemm_multi_d_").replace("_rcr_", "_rcrr_"), dtype_d0="fp32")
    # Two D tensors, of fp32 and of C's type: tile_engine adds their bytes to the bytes and to the operations.
    extra, us = M * N * (4 + 2), 123.4
    rates = {"tflops(TFlops)": (FLOPS + extra) / us * 1e-6, "bandwidth(GB/s)": (BYTES + extra) / us * 1e-3}
    value["perf_result"] |= {name: round(rate, 2) for name, rate in rates.items()}
    path = write(tmp_path / "r.json", value)
    record = only(path, elementwise="MultiDAdd")
    assert us_of(record) == pytest.approx(us, rel=1e-4)
    config: Any = parse_kernel(record.task.kernel).config
    assert (config.variant, config.num_d, config.elementwise) == ("multi_d", 2, "MultiDAdd")
    assert "--elementwise" in read_foreign("tile_engine", path, arch="gfx942").refused[0].what
    assert "Known: PassThrough" in read_foreign("tile_engine", path, arch="gfx942", elementwise="Add").refused[0].what


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"name": "gemm_fp16"}, "is not a name of a tile_engine kernel"),
        ({"name": NAME.replace("compv4", "compv99")}, "Known: mem"),
        ({"name": NAME.replace("_rcr_", "_rrr_")}, "its problem has layout rcr, but its name has rrr"),
        ({"problem": problem(structured_sparsity=True)}, "structured sparsity"),
        ({"problem": {}}, "has no 'layout_a'"),
        ({"perf_result": {}}, "has no latency(ms)"),
        ({"perf_result": {"latency(ms)": -1, "tflops(TFlops)": -1}}, "the benchmark failed"),
    ],
)
def test_rows_that_are_refused_and_why(tmp_path: Path, change: dict[str, Any], what: str) -> None:
    found = read_foreign("tile_engine", write(tmp_path / "r.json", printed() | change), arch="gfx942")
    assert not found.records and what in found.refused[0].what


def test_the_gpu_must_be_known(tmp_path: Path) -> None:
    found = read_foreign("tile_engine", write(tmp_path / "r.json", printed()))
    assert "--arch" in found.refused[0].what
    for text in ("{", "[1]", "3"):
        (tmp_path / "r.json").write_text(text)
        with pytest.raises(FileFormatError, match=r"JSON|contains no benchmark"):
            read_foreign("tile_engine", tmp_path / "r.json", arch="gfx942")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("latency(ms)", None),
        ("latency(ms)", -1.0),
        ("bandwidth(GB/s)", [1]),
    ],
)
def test_a_figure_that_is_no_number_costs_its_row(tmp_path: Path, key: str, value: Any) -> None:
    bad = {**printed(), "perf_result": {**figures(123.4), key: value}}
    found = read_foreign("tile_engine", write(tmp_path / "r.json", [printed(), bad]), arch="gfx942")
    assert len(found.records) == 1 and [each.where for each in found.refused] == ["r.json, result 1"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400])
def test_a_file_with_a_number_that_is_none_is_refused_with_its_place(tmp_path: Path, value: Any) -> None:
    bad = {**printed(), "perf_result": {**figures(123.4), "latency(ms)": value}}
    with pytest.raises(FileFormatError, match=r"1\.perf_result\.latency"):
        read_foreign("tile_engine", write(tmp_path / "r.json", [printed(), bad]), arch="gfx942")


@pytest.mark.parametrize(("key", "value"), [("m", -1), ("layout_a", []), ("split_k", {})])
def test_a_problem_that_is_none_costs_its_row(tmp_path: Path, key: str, value: Any) -> None:
    bad = {**printed(), "problem": problem(**{key: value})}
    found = read_foreign("tile_engine", write(tmp_path / "r.json", [printed(), bad]), arch="gfx942")
    assert len(found.records) == 1 and len(found.refused) == 1


def test_json_that_is_too_deep_is_no_benchmark(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text("[" * 100_000)
    with pytest.raises(FileFormatError, match="nested too deeply"):
        read_foreign("tile_engine", tmp_path / "r.json", arch="gfx942")
