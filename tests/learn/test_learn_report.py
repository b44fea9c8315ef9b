"""Reports and the commands that write them, on a made-up table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

import tilewright
from learn import synthetic
from tilewright.cli.app import root
from tilewright.learn import evaluation
from tilewright.learn.dataset import Dataset, build_dataset
from tilewright.learn.measurements import write_measurements
from tilewright.learn.report import describe_kernels, describe_problems, find_worst_choices, write_report
from tilewright.learn.training_config import TrainingConfig
from tilewright.select.bundle import read_bundle

QUICK = TrainingConfig(rounds=15, patience=0, seeds=(0,), least_in_leaf=5)
PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def data() -> Dataset:
    return build_dataset(synthetic.table(45), "gemm", synthetic.ARCH)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "times.parquet"
    write_measurements(path, synthetic.table(45))
    return path


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(root, [str(arg) for arg in args], prog_name="tilewright")


def test_a_report_is_one_page_with_its_plots_beside_it(data: Dataset, tmp_path: Path) -> None:
    found = evaluation.evaluate_config(data, QUICK)
    curve = (evaluation.CurvePoint(5, 0.9, 0.8), evaluation.CurvePoint(40, 0.95, 0.8))
    page, *plots = write_report(tmp_path / "r", found, curve=curve)
    assert [plot.name for plot in plots] == [
        "efficiency.png",
        "predicted.png",
        "worst.png",
        "features.png",
        "curve.png",
    ]
    assert all(plot.read_bytes().startswith(PNG) for plot in plots)
    text = page.read_text()
    assert text.count("data:image/png;base64,") == len(plots)
    assert 'src="http' not in text
    learned = found.get_split("by cluster").figures["learned"]
    assert f"{100 * learned.mean:.2f}" in text
    for method in evaluation.METHODS:
        assert f"<td>{method}</td>" in text


@pytest.mark.slow
def test_a_report_is_the_same_twice(data: Dataset, tmp_path: Path) -> None:
    found = evaluation.evaluate_config(data, QUICK)
    first, second = (write_report(tmp_path / name, found) for name in "ab")
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def test_the_worst_choices_are_the_worst(data: Dataset) -> None:
    found = evaluation.evaluate_config(data, QUICK)
    worst = find_worst_choices(found, most=5)
    assert [w.efficiency for w in worst] == sorted(w.efficiency for w in worst)
    assert worst[0].efficiency == pytest.approx(found.judged[0].figures["learned"].minimum)
    for each in worst:
        assert each.efficiency == pytest.approx(each.best_us / each.chosen_us)


def test_words_tell_apart(data: Dataset) -> None:
    assert len(set(describe_kernels(data))) == len(data.kernels)
    assert len(set(describe_problems(data))) == len(data.problems)
    assert not any("compv" not in words for words in describe_kernels(data))
    assert not any("fp16" in words for words in (*describe_kernels(data), *describe_problems(data)))


@pytest.mark.slow
def test_train_writes_a_bundle_and_a_report(table: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "bundle", tmp_path / "report"
    result = run("train", table, "--op", "gemm", "--arch", "gfx942", "--out", out, "--report", report, "--rounds", "15")
    assert result.exit_code == 0, result.output
    assert "by cluster: 10 folds of 20 whole clusters" in result.stdout
    assert f"{out}: 30 trees" in result.stdout
    assert (report / "report.html").is_file()
    bundle = read_bundle(out)
    assert bundle.training["problems"] == 45
    judged = run("evaluate", table, "--bundle", out, "--json")
    assert judged.exit_code == 0, judged.output
    assert json.loads(judged.stdout)["splits"]["all problems"]["learned"]["mean"] > 0.9
    assert "trained on these very rows" in judged.stderr
    assert "trained on these very rows" in json.loads(judged.stdout)["seen"]


def test_evaluate_without_a_bundle_trains_by_folds(table: Path) -> None:
    result = run("evaluate", table, "--rounds", "10", "--seeds", "1", "--json", "--kind", "ranker")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert set(document["splits"]) == {"by problem", "by cluster"}
    assert document["subject"] == "ranker of up to 10 rounds × 1 seeds"
    assert len(document["worst"]) == 12
    assert np.isfinite(document["splits"]["by problem"]["random"]["mean"])


def test_errors_are_one_message(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    cases = {
        ("--op", "gemn"): "unknown op of the table 'gemn'. Did you mean 'gemm'?",
        ("--arch", "gfx950"): "unknown arch of the table 'gfx950'",
        ("--kind", "oracle"): "unknown kind of model 'oracle'",
    }
    for options, message in cases.items():
        result = run("train", table, "--out", out, *options)
        assert result.exit_code == 2
        assert message in result.stderr
    few = tmp_path / "few.parquet"
    write_measurements(few, synthetic.table(10))
    result = run("train", few, "--out", out)
    assert result.exit_code == 2
    assert "there are 10 problems of gemm on gfx942; below 40" in result.stderr
    assert not out.exists()


def test_commands_name_the_extra(table: Path, tmp_path: Path) -> None:
    """The packages of this environment but for the extra, in a Python that looks nowhere else."""
    extras = ("numpy", "scipy", "pyarrow", "lightgbm", "matplotlib")
    for package in Path(click.__file__).parents[1].iterdir():
        if not package.name.startswith(extras):
            (tmp_path / package.name).symlink_to(package)
    source = Path(tilewright.__file__).parents[1]
    surroundings = {**os.environ, "PYTHONPATH": f"{tmp_path}:{source}"}
    for command in (["train", str(table), "--out", str(tmp_path / "out")], ["evaluate", str(table)]):
        done = subprocess.run(
            [sys.executable, "-S", "-m", "tilewright", *command],
            capture_output=True,
            text=True,
            env=surroundings,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2
        assert "needs numpy, scipy, pyarrow, lightgbm, matplotlib" in done.stderr
        assert "pip install 'tilewright[learn]'" in done.stderr
        assert "Traceback" not in done.stderr
