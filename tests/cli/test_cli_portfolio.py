"""`tilewright portfolio`: from problems or measurements to a table, a picture and a kernel-set file."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

import tilewright
from tilewright.learn.measurements import Measurement, make_table, write_measurements
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel
from tilewright.ops.kernel_set import load_kernel_set
from tilewright.ops.problem_values import dump_problem

GEMM = find_op("gemm")
SET = ("--preselected", "fp16_rcr_essential")
SHAPES = """\
m,n,k,dtype,layout
1,4096,4096,fp16,rcr
128,1024,8192,fp16,rcr
8192,8192,8192,fp16,rcr
4096,64,512,fp16,rcr
"""
PNG = b"\x89PNG"


@pytest.fixture
def shapes(tmp_path: Path) -> str:
    path = tmp_path / "shapes.csv"
    path.write_text(SHAPES, encoding="utf-8")
    return str(path)


def measured_kernels(count: int) -> list[Kernel]:
    return list(GEMM.sets()["fp16_rcr_essential"].kernels("gfx942"))[:count]


def table(path: Path, kernels: Sequence[Kernel], times: Sequence[Sequence[float | None]]) -> str:
    """A table of measurements: a row of `times` for each problem; None did not run."""
    problems = [GEMM.problem_type(m=64 * (i + 1), n=64, k=64, dtype="fp16", layout="rcr") for i in range(len(times))]
    rows = [
        Measurement(
            op="gemm",
            arch="gfx942",
            kernel=kernel.slug,
            problem=dump_problem(problem),
            us=us,
            status="failed" if us is None else "ok",
        )
        for problem, row in zip(problems, times, strict=True)
        for kernel, us in zip(kernels, row, strict=True)
    ]
    write_measurements(path, make_table(rows))
    return str(path)


def test_measured_times_choose_the_kernels(run_json: Callable[..., Any], tmp_path: Path) -> None:
    kernels = measured_kernels(3)
    file = table(tmp_path / "sweep.parquet", kernels, [[1.0, 4.0, 2.0], [1.0, 4.0, 2.0], [None, 8.0, None]])
    found = run_json("portfolio", "gemm", "--arch", "gfx942", "--measured", file, "--keep", "2")

    assert (found["times"], found["problems"], found["computable"], found["kernels"]) == ("measured", 3, 3, 3)
    assert [row["kernel"] for row in found["portfolio"]] == [kernels[0].slug, kernels[1].slug]
    assert [row["mean"] for row in found["portfolio"]] == pytest.approx([2 / 3, 1.0])
    assert [row["computed"] for row in found["portfolio"]] == [2, 3]


def test_of_repeated_measurements_the_median_counts(run_json: Callable[..., Any], tmp_path: Path) -> None:
    kernels = measured_kernels(2)
    file = table(tmp_path / "sweep.parquet", [*kernels, kernels[0], kernels[0]], [[1.0, 4.0, 9.0, 8.0]])
    found = run_json("portfolio", "gemm", "--arch", "gfx942", "--measured", file, "--keep", "1")

    assert found["portfolio"][0]["kernel"] == kernels[1].slug  # 4 µs; the other took 1, 8 and 9


def test_filters_choose_among_measured_kernels(run: Callable[..., Result], tmp_path: Path) -> None:
    kernels = measured_kernels(4)
    file = table(tmp_path / "sweep.parquet", kernels, [[1.0, 2.0, 3.0, 4.0]])
    options = ("portfolio", "gemm", "--arch", "gfx942", "--measured", file, "--keep", "1")
    wanted = kernels[-1].config.pipeline  # type: ignore[attr-defined]

    assert f"pipeline={wanted}" in run(*options, "--pipeline", wanted).stdout
    refused = run(*options, "--datatype", "bf16")
    assert refused.exit_code == 2
    assert "none of the 4 kernels of" in refused.stderr and "has dtype bf16" in refused.stderr


def test_predicted_times_choose_a_set_that_reads_back(
    run_json: Callable[..., Any], shapes: str, tmp_path: Path
) -> None:
    out = tmp_path / "shipped.toml"
    options = ("--problems", shapes, *SET, "--keep", "3", "--out", str(out))
    found = run_json("portfolio", "gemm", "--arch", "gfx942", *options)
    kept = [row["kernel"] for row in found["portfolio"]]
    means = [row["mean"] for row in found["portfolio"]]

    assert (found["times"], found["problems"]) == ("predicted", 4)
    assert 1 <= len(kept) <= 3 and means == sorted(means)
    assert [kernel.slug for kernel in load_kernel_set(out).kernels("gfx942")] == kept


def test_a_problem_listed_twice_counts_twice(run_json: Callable[..., Any], shapes: str) -> None:
    once = run_json("portfolio", "gemm", "--arch", "gfx942", "--problems", shapes, *SET, "--keep", "2")
    twice = run_json(
        "portfolio", "gemm", "--arch", "gfx942", "--problems", shapes, "--problems", shapes, *SET, "--keep", "2"
    )

    assert twice["problems"] == 2 * once["problems"]
    assert [r["kernel"] for r in twice["portfolio"]] == [r["kernel"] for r in once["portfolio"]]


def test_a_declared_space_gives_kernels(
    run_json: Callable[..., Any], settings: Callable[..., Any], shapes: str
) -> None:
    space = settings(block="128x128x32,64x64x32", pipeline="compv3,mem")
    found = run_json("portfolio", "gemm", "--arch", "gfx942", "--problems", shapes, *space, "--keep", "1")

    assert found["kernels"] == 4


def test_the_table_tells_kernels_apart_by_what_differs(run: Callable[..., Result], shapes: str) -> None:
    shown = run("portfolio", "gemm", "--arch", "gfx942", "--problems", shapes, *SET, "--keep", "2")

    assert shown.exit_code == 0, shown.stderr
    assert "gemm on gfx942: 4 problems, predicted times" in shown.stdout
    assert "all of them: " in shown.stdout and "dtype_a=fp16" in shown.stdout
    assert "of the best on average" in shown.stdout


def test_problems_that_no_kernel_computes_are_said(run: Callable[..., Result], shapes: str, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("m,n,k,dtype,layout\n64,64,64,bf16,rcr\n", encoding="utf-8")
    options = ("--problems", shapes, "--problems", str(other), *SET, "--keep", "2")
    shown = run("portfolio", "gemm", "--arch", "gfx942", *options)

    assert "not counted, since none of the kernels computes them alone: 1 problem" in shown.stderr


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
@pytest.mark.parametrize(("name", "begins"), [("coverage.png", PNG), ("coverage.svg", b"<?xml")])
def test_a_picture_is_drawn(run: Callable[..., Result], tmp_path: Path, name: str, begins: bytes) -> None:
    file = table(tmp_path / "sweep.parquet", measured_kernels(3), [[1.0, 2.0, 4.0], [4.0, 1.0, 2.0]])
    plot = tmp_path / name
    options = ("portfolio", "gemm", "--arch", "gfx942", "--measured", file, "--keep", "2", "--plot", str(plot))

    assert run(*options).exit_code == 0
    first = plot.read_bytes()
    assert first.startswith(begins)
    assert run(*options).exit_code == 0 and plot.read_bytes() == first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "give either --problems or --measured"),
        (("--problems", "{shapes}", "--measured", "{shapes}"), "give either --problems or --measured"),
        (("--measured", "{shapes}", *SET), "the kernels are those of --measured"),
        (("--measured", "{shapes}", "--format", "csv"), "--format applies to --problems"),
        (("--problems", "{shapes}", "--out", "set.json"), "set.json ends in '.json'. Can be written: .toml."),
        (("--problems", "{shapes}", "--plot", "a.gif"), "a.gif ends in '.gif'. Can be written: .png, .svg, .pdf."),
        (("--problems", "{shapes}", *SET, "--keep", "5000"), "cannot keep 5,000 of 10 kernels"),
        (("--problems", "{shapes}", *SET, "--pipeline", "nope"), "unknown pipeline 'nope'"),
        (("--measured", "{shapes}"), "is not a Parquet file"),
    ],
)
def test_what_does_not_go_together_is_refused(
    run: Callable[..., Result], shapes: str, options: Sequence[str], message: str
) -> None:
    words = [word.format(shapes=shapes) for word in options]
    result = run("portfolio", "gemm", "--arch", "gfx942", *words)

    assert result.exit_code == 2
    assert message in result.stderr


def test_a_table_of_other_kernels_is_refused(run: Callable[..., Result], tmp_path: Path) -> None:
    file = table(tmp_path / "sweep.parquet", measured_kernels(1), [[1.0]])
    result = run("portfolio", "gemm", "--arch", "gfx950", "--measured", file)

    assert result.exit_code == 2
    assert "the table has no row of gemm on gfx950; it has gemm on gfx942" in result.stderr


@pytest.mark.parametrize(
    ("lacking", "options", "needed"),
    [
        ("numpy", (), "a portfolio needs numpy. Get it with: pip install 'tilewright[select]'"),
        ("matplotlib", ("--plot", "a.png"), "--plot needs matplotlib. Get it with: pip install 'tilewright[plots]'"),
    ],
)
def test_a_missing_extra_is_named(
    tmp_path: Path, shapes: str, lacking: str, options: Sequence[str], needed: str
) -> None:
    """The packages of this environment but for one, in a Python that looks nowhere else."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for package in Path(click.__file__).parents[1].iterdir():
        if not package.name.startswith(lacking):
            (folder / package.name).symlink_to(package)
    words = ("portfolio", "gemm", "--arch", "gfx942", "--problems", shapes, *SET, "--keep", "2", *options)
    surroundings = {**os.environ, "PYTHONPATH": f"{folder}:{Path(tilewright.__file__).parents[1]}"}
    command = [sys.executable, "-S", "-m", "tilewright", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=surroundings, timeout=60, check=False)

    assert done.returncode == 2
    assert needed in done.stderr
