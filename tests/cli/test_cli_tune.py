"""`tilewright tune`: what it reads, what it says, and what it refuses."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import tilewright as tw
from tilewright.bench.journal import Journal
from tilewright.bench.record import Record, Task, TimeStats
from tilewright.bench.table import export_table
from tilewright.ops import find_op
from tilewright.ops.aiter_table import read_aiter_table
from tilewright.ops.kernel import Kernel
from tilewright.ops.problem_list import read_problems
from tilewright.ops.problem_values import dump_problem
from tilewright.select.tuned import read_tuned

KERNELS = sorted(find_op("gemm").sets()["fp16_rcr_essential"].kernels("gfx942"), key=lambda kernel: kernel.slug)[:3]
SIZES = (1024, 2048)

Run = Callable[..., Result]


def problem(m: int) -> Any:
    return tw.gemm.Problem(m=m, n=4096, k=4096, dtype="fp16", layout="rcr")


def record(kernel: Kernel, m: int, us: float | None, **more: Any) -> Record:
    """A time, or with None counters."""
    task = {"op": kernel.op, "arch": kernel.arch, "kernel": kernel.slug, "problem": dump_problem(problem(m))}
    asked = Task(**{**task, "device": "gpu:0", **more})
    if us is None:
        return Record(task=asked, status="ok", kind="counters", counters={"cache_lines": 1})
    times = TimeStats(us=us, us_min=us, us_max=us, us_p10=us, us_p90=us, runs=20, warmups=5)
    return Record(task=asked, status="ok", kind="time", times=times)


def write(folder: Path, *records: Record) -> Path:
    with Journal(folder, "worker", fsync="never") as journal:
        for each in records:
            journal.append(each)
    return folder


@pytest.fixture
def records() -> list[Record]:
    """The second kernel wins for all sizes."""
    return [record(kernel, m, us) for m in SIZES for kernel, us in zip(KERNELS, (30.0, 20.0, 25.0), strict=True)]


def test_winners_of_a_journal(run: Run, tmp_path: Path, records: list[Record]) -> None:
    out = tmp_path / "winners.json"
    done = run("tune", str(write(tmp_path / "journal", *records)), "--out", str(out))
    assert done.exit_code == 0, done.stderr
    found = {entry.problem.m: (entry.kernel, entry.us) for entry in read_tuned(out)}
    assert found == dict.fromkeys(SIZES, (KERNELS[1], 20.0))
    assert "gemm on gfx942" in done.stdout
    assert "2, with 6 times of 3 kernels" in done.stdout
    assert f"{out}: the winners of 2 problems" in done.stdout


def test_winners_as_a_table_of_aiter(run: Run, tmp_path: Path, records: list[Record]) -> None:
    """The rows are read back as the problems that were measured, with the winners' times."""
    out, aiter = tmp_path / "winners.json", tmp_path / "mine_bf16_tuned_gemm.csv"
    journal = str(write(tmp_path / "journal", *records))
    assert run("tune", journal, "--out", str(out), "--aiter", str(aiter)).exit_code == 0
    assert read_problems("gemm", aiter, "aiter") == [problem(m) for m in SIZES]
    cells = [cells for _, cells in read_aiter_table(aiter).cells]
    assert [(row["gfx"], row["cu_num"], row["us"], row["libtype"]) for row in cells] == [
        ("gfx942", "304", "20.0000", "cktile")
    ] * len(SIZES)
    assert {row["kernelName"] for row in cells} == {KERNELS[1].slug}
    # 2 · 1024 · 4096 · 4096 operations in 20 µs.
    assert cells[0]["tflops"] == "1717.99"


def test_ops_without_tables_of_aiter(run: Run, tmp_path: Path) -> None:
    op = find_op("norm")
    kernel = op.make_kernel(op.make_example(), "gfx942")
    asked = Task(
        op="norm",
        arch="gfx942",
        kernel=kernel.slug,
        problem=dump_problem(op.problem_type(**op.example_problem)),
        device="gpu:0",
    )
    times = TimeStats(us=5.0, us_min=5.0, us_max=5.0, us_p10=5.0, us_p90=5.0, runs=20, warmups=5)
    journal = write(tmp_path / "journal", Record(task=asked, status="ok", kind="time", times=times))
    done = run("tune", str(journal), "--out", str(tmp_path / "w.json"), "--aiter", str(tmp_path / "a.csv"))
    assert done.exit_code != 0 and "norm declares no tables of aiter. Ops that do: gemm, gemm_quant." in done.stderr
    assert not (tmp_path / "w.json").exists()


def test_a_table_and_a_journal_are_one(run_json: Callable[..., Any], tmp_path: Path, records: list[Record]) -> None:
    """What stands in both counts once, and what stands in one of them counts, too."""
    export_table(records[:4], tmp_path / "some.parquet")
    journal = write(tmp_path / "journal", *records[2:], record(KERNELS[0], 8192, 7.0))
    found = run_json("tune", str(tmp_path / "some.parquet"), str(journal), "--out", str(tmp_path / "winners.json"))
    (part,) = found["parts"]
    assert (part["op"], part["arch"], part["problems"], part["times"]) == ("gemm", "gfx942", 3, 7)
    assert part["winners"] == 2
    assert found["damaged"] == 0


def test_a_damaged_line_is_told(run: Run, tmp_path: Path, records: list[Record]) -> None:
    journal = write(tmp_path / "journal", *records)
    (file,) = journal.glob("*.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b"20.0", b"00.1")  # the winner of the first problem
    file.write_bytes(b"".join(lines))
    done = run("tune", str(journal), "--out", str(tmp_path / "winners.json"))
    assert done.exit_code == 0
    assert f"not read: {file}:2: " in done.stderr
    assert {entry.us for entry in read_tuned(tmp_path / "winners.json")} == {25.0, 20.0}


def test_one_op_and_one_gpu(run: Run, run_json: Callable[..., Any], tmp_path: Path, records: list[Record]) -> None:
    journal, out = str(write(tmp_path / "journal", *records)), str(tmp_path / "winners.json")
    assert run_json("tune", journal, "--op", "gemm", "--arch", "gfx942", "--out", out)["problems"] == 2
    for option, value in (("--op", "fmha"), ("--arch", "gfx950")):
        done = run("tune", journal, option, value, "--out", out)
        assert done.exit_code == 2
        assert f"of the records '{value}'" in done.stderr
        assert ("gemm" if option == "--op" else "gfx942") in done.stderr


def test_counters_have_no_winner(run: Run, tmp_path: Path) -> None:
    journal = write(tmp_path / "journal", record(KERNELS[0], 64, None, device="emulated:gfx942"))
    done = run("tune", str(journal), "--out", str(tmp_path / "winners.json"))
    assert done.exit_code == 2
    assert "no record holds a time, so a winner cannot be chosen. There are: 1 counters." in done.stderr
    assert not (tmp_path / "winners.json").exists()


def test_cold_or_warm(run: Run, run_json: Callable[..., Any], tmp_path: Path, records: list[Record]) -> None:
    cold = record(KERNELS[0], 64, 3.0, cold=True)
    journal, out = str(write(tmp_path / "journal", *records, cold)), str(tmp_path / "winners.json")
    done = run("tune", journal, "--out", out)
    assert (done.exit_code, "which are not comparable" in done.stderr) == (2, True)
    assert run_json("tune", journal, "--out", out, "--cold")["problems"] == 1
    assert run_json("tune", journal, "--out", out, "--warm")["problems"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "winners.toml"], "winners.toml ends in '.toml'. Can be written: .json."),
        (["--out", "w.json", "--cold", "--warm"], "--cold and --warm exclude each other"),
        (["--out", "w.json", "--limit", "3"], "--limit is a sweep option: give the device too (--device)"),
        (["--out", "w.json", "--kernels", "fp16_rcr_essential"], "--kernels is a sweep option"),
        (["--out", "w.json", "--cluster", "local"], "--cluster is a sweep option"),
        (["--out", "w.json", "--retry-failed"], "--retry-failed is a sweep option"),
    ],
)
def test_what_does_not_go_together(
    words: list[str], said: str, run: Run, tmp_path: Path, records: list[Record]
) -> None:
    done = run("tune", str(write(tmp_path / "journal", *records)), *words)
    assert done.exit_code == 2
    assert said in done.stderr


def test_an_interrupted_sweep_gives_no_table(tmp_path: Path) -> None:
    recorded = write(tmp_path / "recorded", *(record(kernel, m, 9.0) for m in range(1, 1001) for kernel in KERNELS))
    journal, out = tmp_path / "journal", tmp_path / "winners.json"
    command = ["tune", str(journal), "--device", "replay:x", "--replay", str(recorded), "--out", str(out)]
    tune = subprocess.Popen([sys.executable, "-m", "tilewright", *command], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not any(file.stat().st_size for file in journal.glob("*.jsonl")):
        assert tune.poll() is None and time.monotonic() < deadline, tune.communicate()
        time.sleep(0.01)
    tune.send_signal(signal.SIGINT)
    told = tune.communicate(timeout=60)[1]
    kept = sum(len(file.read_bytes().splitlines()) for file in journal.glob("*.jsonl"))
    assert tune.returncode == 130
    assert f"{3000 - kept:,} tasks left, and no table written" in told
    assert not out.exists()


def test_no_such_journal(run: Run, tmp_path: Path) -> None:
    done = run("tune", str(tmp_path / "nothing"), "--out", str(tmp_path / "w.json"))
    assert done.exit_code == 2
    assert "does not exist" in done.stderr


def test_a_device_without_times_is_refused_before_anything_is_built(run: Run, tmp_path: Path) -> None:
    """The kernels and problems are nowhere: that would be told if they were looked for first."""
    words = ["--device", "emulated:gfx942", "--kernels", "nowhere.toml", "--problem", "m=1"]
    done = run("tune", str(tmp_path / "journal"), *words, "--out", str(tmp_path / "w.json"))
    assert done.exit_code == 2 and "emulated:gfx942 has counters only" in done.stderr
    assert not (tmp_path / "journal").exists()


def replay(run: Run, tmp_path: Path, records: list[Record], *more: str) -> Result:
    """Tune on a replayed device, into the journal `again`."""
    journal = write(tmp_path / "recorded", *records) if not (tmp_path / "recorded").exists() else tmp_path / "recorded"
    out = str(tmp_path / "winners.json")
    return run(
        "tune", str(tmp_path / "again"), "--device", "replay:mi300x", "--replay", str(journal), "--out", out, *more
    )


def test_a_budget_measures_a_part_and_the_rest_follows_without_one(
    run: Run, tmp_path: Path, records: list[Record]
) -> None:
    for given, times in (("4", "4 times"), ("50%", "3 times"), ("0.5", "3 times")):
        shutil.rmtree(tmp_path / "again", ignore_errors=True)
        done = replay(run, tmp_path, records, "--budget", given)
        assert done.exit_code == 0, done.output
        assert times in done.stdout
    assert "6 times" in replay(run, tmp_path, records).stdout


@pytest.mark.parametrize(
    ("budget", "said"), [("many", "is not a budget"), ("0", "at least 1"), ("150%", "at most 1"), ("-3", "above 0")]
)
def test_budgets_that_mean_nothing(run: Run, tmp_path: Path, records: list[Record], budget: str, said: str) -> None:
    done = replay(run, tmp_path, records, f"--budget={budget}")
    assert done.exit_code == 2 and said in done.stderr


def test_a_search_has_no_shards_and_no_dry_run(run: Run, tmp_path: Path, records: list[Record]) -> None:
    journal = write(tmp_path / "recorded", *records)
    sweep = ["sweep", "--device", "replay:x", "--replay", str(journal), "--out", str(tmp_path / "o"), "--budget", "2"]
    assert "--budget and --shard exclude each other" in run(*sweep, "--shard", "1/2").stderr
    assert "--dry-run shows the whole sweep" in run(*sweep, "--dry-run").stderr
