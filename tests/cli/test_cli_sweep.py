"""`sweep` and `bench` on a replayed device: what they measure, keep, resume and refuse."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import tilewright as tw
from tilewright.bench.journal import Journal, read_journal
from tilewright.bench.record import Record, Task, TimeStats
from tilewright.bench.timing import TimingSettings
from tilewright.cli.measure_options import MeasureArguments, add_measure_options
from tilewright.ops import find_op
from tilewright.ops.problem_values import dump_problem
from tilewright.select.tuned import read_tuned

SIZES = (256, 512, 1024)
MANY = 3000
KERNELS = tuple(itertools.islice(find_op("gemm").sets()["fp16_rcr_essential"].kernels("gfx942"), 3))
ON_REPLAY = ("--device", "replay:monday", "--replay")


def recorded(kernel: int, size: int) -> Record:
    """The second kernel was wrong on the largest problem; of the others the first is the fastest."""
    problem = tw.gemm.Problem(m=size, n=size, k=size, dtype="fp16", layout="rcr")
    task = Task(op="gemm", arch="gfx942", kernel=KERNELS[kernel].slug, problem=dump_problem(problem), device="gpu:0")
    if (kernel, size) == (1, SIZES[-1]):
        return Record(task=task, status="wrong", message="c[0, 0] is 1, should be 2")
    us = float(size * (kernel + 1))
    times = TimeStats(us=us, us_min=us, us_max=us, us_p10=us, us_p90=us, runs=20, warmups=3)
    return Record(task=task, status="ok", kind="time", times=times, share=0.5)


@pytest.fixture
def recording(tmp_path: Path) -> str:
    folder = tmp_path / "recording"
    with Journal(folder, "gpu", fsync="never") as journal:
        for kernel, size in itertools.product(range(3), SIZES):
            journal.append(recorded(kernel, size))
    return str(folder)


def test_all_that_was_recorded_is_swept_and_resumed(
    run: Callable[..., Result], run_json: Callable[..., Any], recording: str, tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    found = run_json("sweep", *ON_REPLAY, recording, "--out", out)
    assert (found["tasks"], found["statuses"], found["left"]) == (9, {"ok": 8, "wrong": 1}, 0)
    records = read_journal(out).records
    assert {record.task.device for record in records} == {"replay:monday"}
    assert sum(record.times.us for record in records if record.times is not None) == 1792 * 6 - 2048
    again = run("sweep", *ON_REPLAY, recording, "--out", out)
    assert again.exit_code == 0
    assert "known before" in again.stdout and "9 tasks" in again.stdout and "complete" in again.stdout


def test_kernels_and_problems_can_be_chosen(run_json: Callable[..., Any], recording: str, tmp_path: Path) -> None:
    chosen = (KERNELS[0].slug, KERNELS[1].slug, "--problem", "m=256,n=256,k=256", "--problem", "m=300,n=256,k=256")
    found = run_json("sweep", *chosen, *ON_REPLAY, recording, "--out", str(tmp_path / "out"))
    assert (found["tasks"], found["statuses"]) == (4, {"ok": 2, "not_recorded": 2})


def test_shards_are_the_whole(run_json: Callable[..., Any], recording: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    done = [
        sum(run_json("sweep", *ON_REPLAY, recording, "--out", out, "--shard", f"{n}/2")["statuses"].values())
        for n in (1, 2)
    ]
    assert sum(done) == 9
    assert len({record.key for record in read_journal(out).records}) == 9


def test_another_sweep_is_refused(run: Callable[..., Result], recording: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert run("sweep", KERNELS[0].slug, *ON_REPLAY, recording, "--out", out).exit_code == 0
    refused = run("sweep", KERNELS[1].slug, *ON_REPLAY, recording, "--out", out)
    assert refused.exit_code == 2
    assert "holds another sweep: other kernels (1 there and now). Repeat the same request" in refused.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--device", "gpu:0", "--device", "emulated:gfx942"), "use GPUs, emulated devices or one replayed device"),
        (("--device", "replay:monday"), "needs records: use --replay FILE"),
        (("--device", "emulated:gfx942", "--cold", "--problem", "m=1,n=1,k=1"), "--cold applies to times only"),
        (("--device", "emulated:gfx942", "--runs", "9", "--problem", "m=1,n=1,k=1"), "emulated:gfx942 is not timed"),
        (("--device", "emulated:gfx942"), "either --problem or --problems"),
        (("--device", "emulated:gfx942", "--problem", "m=1,n=1,k=1", "--shard", "3/2"), "shard 3/2"),
    ],
)
def test_what_cannot_be_asked(run: Callable[..., Result], tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    result = run("sweep", KERNELS[0].slug, *words, "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "out").exists()


def test_bench_lists_the_fastest_first(
    run: Callable[..., Result], run_json: Callable[..., Any], recording: str
) -> None:
    asked = ("bench", *(kernel.slug for kernel in KERNELS[::-1]), "--problem", "m=1024,n=1024,k=1024", *ON_REPLAY)
    found = run_json(*asked, recording)["records"]
    assert [record["task"]["kernel"] for record in found] == [KERNELS[n].slug for n in (0, 2, 1)]
    assert [record["status"] for record in found] == ["ok", "ok", "wrong"]
    told = run(*asked, recording)
    assert told.exit_code == 0
    assert "1,024.00" in told.stdout and "2.10" in told.stdout  # microseconds, and the TFLOPS that follow
    assert "should be 2" in told.stdout
    refused = run(*asked, recording, "--by", "waves")
    assert (refused.exit_code, "--by is for the counters" in refused.stderr) == (2, True)


@pytest.fixture
def many(tmp_path: Path) -> str:
    """A recording that takes a while to sweep."""
    folder = tmp_path / "many"
    with Journal(folder, "gpu", fsync="never") as journal:
        for kernel, size in itertools.product(range(3), range(1, MANY // 3 + 1)):
            journal.append(recorded(kernel, 8 * size))
    return str(folder)


def started(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tilewright", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.deep
def test_a_sweep_on_a_cluster_is_interrupted_and_tune_goes_on(many: str, tmp_path: Path) -> None:
    """Ctrl-C keeps what was measured, the next command does the rest, and Ray says nothing of its own."""
    pytest.importorskip("ray", reason="needs the extra `cluster`")
    out = tmp_path / "out"
    asked = (*ON_REPLAY, many, "--cluster", "local", "--fsync")
    first = started("sweep", *asked, "record", "--out", str(out))  # slow, so that there is something to interrupt
    deadline = time.monotonic() + 300
    while not any(file.stat().st_size for file in out.glob("*.jsonl")):
        assert first.poll() is None and time.monotonic() < deadline, first.communicate()
        time.sleep(0.01)
    first.send_signal(signal.SIGINT)
    told, noticed = first.communicate(timeout=300)
    assert (first.returncode, noticed.splitlines()) == (
        130,
        [
            "note: SIGINT: running tasks are finished and kept, then the sweep ends. Repeat to end it at once.",
            "",
            "Run the same command to resume.",
        ],
    )
    kept = {record.key for record in read_journal(out).records}
    assert 0 < len(kept) < MANY
    assert f"{len(kept):,} tasks in" in told and f"{MANY - len(kept):,} tasks" in told
    second = started("tune", str(out), *asked, "batch", "--out", str(tmp_path / "winners.json"), "--json")
    told, noticed = second.communicate(timeout=300)
    assert (second.returncode, noticed) == (0, "")
    found = json.loads(told)["parts"][0]
    assert (found["problems"], found["times"], found["winners"]) == (MANY // 3, MANY - 1, 1)
    records = read_journal(out).records
    assert len({record.key for record in records}) == len(records) == MANY
    assert {entry.kernel for entry in read_tuned(tmp_path / "winners.json")} == {KERNELS[0]}


def test_on_a_cluster_nodes_say_how_many_processes_there_are(
    run: Callable[..., Result], recording: str, tmp_path: Path
) -> None:
    for option in ("--workers", "--jobs"):
        done = run("sweep", *ON_REPLAY, recording, "--out", str(tmp_path / "o"), "--cluster", "local", option, "2")
        assert (done.exit_code, f"{option} is for this machine only" in done.stderr) == (2, True)


def test_how_much_is_timed_can_be_said() -> None:
    words = ["--device", "gpu:0", "--runs", "50", "--max-runs", "60", "--run-ms", "5", "--warmup-ms", "1"]
    found: dict[str, Any] = {}

    @click.command()
    @add_measure_options
    def command(**options: Any) -> None:
        found.update(MeasureArguments(**options).make_worker_config().settings)

    CliRunner().invoke(command, words, catch_exceptions=False)
    wanted = TimingSettings(least_runs=50, max_runs=60, least_ms=5.0, least_warmup_ms=1.0)
    assert TimingSettings.from_json(found) == wanted


def test_a_dry_run_says_what_is_left_and_writes_nothing(
    run_json: Callable[..., Any], recording: str, tmp_path: Path
) -> None:
    asked = ("sweep", *ON_REPLAY, recording, "--out", str(tmp_path / "out"))
    before = run_json(*asked, "--dry-run")
    assert (before["known"], before["left"]) == (0, before["tasks"])
    assert not (tmp_path / "out").exists()
    half = run_json(*asked, "--shard", "1/2")
    after = run_json(*asked, "--dry-run")
    assert after["known"] == sum(half["statuses"].values()) > 0
    assert after["left"] == before["tasks"] - after["known"]
    assert run_json(*asked, "--dry-run", "--shard", "1/2")["left"] == 0
