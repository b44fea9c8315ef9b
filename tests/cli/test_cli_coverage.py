"""`tilewright coverage`: rows that are there, rows of another size, and rows that are missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Run = Callable[..., Result]
KEY = "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle"
TYPES = "False,torch.bfloat16,torch.bfloat16,False,False"
REST = "asm,0,0,{us},some_kernel,0.0,1.0,1.0"
FOLDER = Path(__file__).parents[3] / "shared" / "data" / "aiter_configs_2026-08" / "model_configs"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    sizes = {64: 10.0, 128: 11.0, 256: 13.0, 512: 20.0}
    rows = [f"gfx950,256,{m},1024,4096,{TYPES},{REST.format(us=us)}" for m, us in sizes.items()]
    other = f"gfx942,304,40,1024,4096,{TYPES},{REST.format(us=1)}"
    head = f"gfx,cu_num,{KEY},libtype,solidx,splitK,us,kernelName,err_ratio,tflops,bw"
    file = tmp_path / "model_bf16_tuned_gemm.csv"
    file.write_text("\n".join((head, *rows, other)) + "\n")
    return file


def write_problems(tmp_path: Path, *sizes: tuple[int, int]) -> str:
    file = tmp_path / "untuned.csv"
    file.write_text("\n".join((KEY, *(f"{m},{n},4096,{TYPES}" for m, n in sizes))))
    return str(file)


def test_rows_that_are_missing(table: Path, tmp_path: Path, run: Run, run_json: Callable[..., Any]) -> None:
    problems = write_problems(tmp_path, (64, 1024), (40, 1024), (64, 2048), (128, 1024), (256, 1024))
    shown = run("coverage", str(table), "--problems", problems, "--gpu", "gfx950")
    assert shown.exit_code == 1
    assert "5 problems: 3 with a row, 1 with the row of another size, 1 without" in shown.stdout
    lines = [line.split() for line in shown.stdout.splitlines() if "standard-bf16" in line]
    assert [line[:4] for line in lines] == [["40", "1024", "M=64", "10"], ["64", "2048", "none", lines[1][3]]]
    found = run_json("coverage", str(table), "--problems", problems, "--gpu", "gfx950", code=1)
    own, other, none, *_ = found["problems"]
    assert [each["row"] for each in (own, other, none)] == ["own", "other", "none"]
    assert (own["row_us"], other["row_us"], none["row_us"]) == (10.0, 10.0, None)
    assert none["loss"] == pytest.approx(none["estimate_us"] / none["expected_us"] - 1)
    # The nearest rows of M = 40 are those of 64, 128 and 256: an expected time near theirs, whatever the estimate is.
    assert 5 < other["expected_us"] < 13
    everything = run("coverage", str(table), "--problems", problems, "--gpu", "gfx950", "--all")
    assert sum("standard-bf16" in line for line in everything.stdout.splitlines()) == 5


def test_a_complete_table_and_another_gpu(table: Path, tmp_path: Path, run: Run) -> None:
    problems = write_problems(tmp_path, (64, 1024), (512, 1024))
    assert run("coverage", str(table), "--problems", problems, "--gpu", "gfx950").exit_code == 0
    other = run("coverage", str(table), "--problems", problems, "--gpu", "gfx942")
    assert other.exit_code == 1 and "0 with a row, 0 with the row of another size, 2 without" in other.stdout


def test_problems_of_a_log(table: Path, tmp_path: Path, run: Run) -> None:
    log = tmp_path / "server.log"
    miss = "not found tuned config in /tmp/bf16_tuned_gemm.csv, will use default config!"
    options = "dtype='torch.bfloat16' otype='torch.bfloat16' bias=False, scaleAB=False, bpreshuffle=False"
    log.write_text(f"[aiter] shape is M:8, N:1024, K:4096 {options} {miss}\n")
    shown = run("coverage", str(table), "--problems", str(log), "--gpu", "gfx950")
    assert "1 problem: 0 with a row, 0 with the row of another size, 1 without" in shown.stdout
    log.write_text("nothing\n")
    assert "has no line with" in run("coverage", str(table), "--problems", str(log), "--gpu", "gfx950").stderr


def test_tables_of_no_known_family(tmp_path: Path, table: Path, run: Run) -> None:
    unknown = table.rename(tmp_path / "tuned_fmoe.csv")
    shown = run("coverage", str(unknown), "--problems", str(unknown), "--gpu", "gfx950")
    assert shown.exit_code != 0 and "Words in the names of known tables: gemm: bf16 and gemm" in shown.stderr


@pytest.mark.skipif(not FOLDER.is_dir(), reason="needs aiter's tables in ../shared/data/aiter_configs_2026-08")
def test_a_models_table(run_json: Callable[..., Any]) -> None:
    """Expected times of rows, each from the other rows, are near the measured ones."""
    tuned, untuned = (str(FOLDER / f"kimik2_bf16_{name}_gemm.csv") for name in ("tuned", "untuned"))
    found = run_json("coverage", tuned, "--problems", untuned, "--gpu", "gfx950", code=1)
    states = [each["row"] for each in found["problems"]]
    assert (states.count("own"), states.count("other"), states.count("none")) == (96, 18, 11)
    errors = found["errors"]
    assert errors[len(errors) // 10] > 0.8 and errors[-len(errors) // 10] < 1.25


@pytest.mark.skipif(not FOLDER.is_dir(), reason="needs aiter's tables in ../shared/data/aiter_configs_2026-08")
def test_a_models_table_with_scales(run_json: Callable[..., Any]) -> None:
    """Rows of fp8 are problems of the op with scales. Rows of int8 are none."""
    tuned, untuned = (str(FOLDER / f"a8w8_bpreshuffle_{name}_gemm_kimik3.csv") for name in ("tuned", "untuned"))
    found = run_json("coverage", tuned, "--problems", untuned, "--gpu", "gfx950")
    assert found["op"] == "gemm_quant" and {each["row"] for each in found["problems"]} == {"own"}
    assert all(each["kernel"].startswith("gemm_quant-gfx950-rowcol-fp8") for each in found["problems"])
    general = str(FOLDER.parent / "a8w8_bpreshuffle_tuned_gemm.csv")
    found = run_json("coverage", general, "--problems", general, "--gpu", "gfx950", code=1)
    assert found["refused"] and all("torch.int8" in each["reason"] for each in found["refused"])
