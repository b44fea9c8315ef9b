"""A replayed device: recorded times as answers, from tables and journals, and nothing that was not recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.base.errors import FileFormatError, InvalidValueError, UnknownValueError
from tilewright.bench.journal import Journal
from tilewright.bench.measure import TimingSettings, measure_task
from tilewright.bench.record import Record, Task
from tilewright.bench.replay import ReplayDevice, make_replay_device, open_device, read_replay
from tilewright.bench.table import export_table
from tilewright.bench.timing import compute_time_stats
from tilewright.bench.versions import format_versions
from tilewright.ops.problem_values import dump_problem

PROBLEM = dump_problem(tw.gemm.Problem(m=64, n=64, k=64, dtype="fp16", layout="rcr"))
TASK = Task(op="gemm", arch="gfx942", kernel="fast", problem=PROBLEM, device="gpu:0", versions="of the recording")


def recorded(us: float = 10.0, started: float = 0.0, **fields: Any) -> Record:
    times = compute_time_stats([us, us + 1, us - 1], warmups=3)
    return Record(task=replace(TASK, **fields), status="ok", kind="time", times=times, started=started, share=0.25)


def failed(status: str = "wrong", started: float = 0.0, **fields: Any) -> Record:
    return Record(task=replace(TASK, **fields), status=status, message="it is off", started=started)


def asked(device: ReplayDevice, **fields: Any) -> Record:
    task = replace(TASK, device=device.name, versions=format_versions(device), **fields)
    return measure_task(task, device, None, None, None, TimingSettings(cold=task.cold))


def test_the_answer_is_what_was_recorded() -> None:
    device = make_replay_device("mi300x", [recorded(), recorded(20.0, kernel="slow"), failed(kernel="bad")])
    assert (device.name, device.kind) == ("replay:mi300x", "replay")
    found = asked(device)
    assert (found.status, found.kind, found.times, found.share) == ("ok", "time", recorded().times, 0.25)
    assert found.task.device == "replay:mi300x"
    slow, bad = asked(device, kernel="slow"), asked(device, kernel="bad")
    assert slow.times is not None and slow.times.us == 20.0
    assert (bad.status, bad.message, bad.times) == ("wrong", "it is off", None)


@pytest.mark.parametrize(
    "other", [{"op": "fmha"}, {"arch": "gfx950"}, {"kernel": "none"}, {"problem": '{"m":2}'}, {"cold": True}]
)
def test_nothing_is_made_up(other: dict[str, Any]) -> None:
    found = asked(make_replay_device("mi300x", [recorded()], "times.parquet"), **other)
    assert (found.status, found.kind, found.times) == ("not_recorded", "none", None)
    assert found.message == "times.parquet has no such measurement"


def test_of_several_a_measured_one_counts_then_the_latest() -> None:
    records = [recorded(10, 1.0), failed(started=9.0), recorded(30, 3.0), recorded(20, 2.0)]
    for order in (records, records[::-1]):
        found = asked(make_replay_device("mi300x", order))
        assert found.times is not None and found.times.us == 30


def test_counters_are_no_times() -> None:
    counters = Record(task=TASK, status="ok", kind="counters", counters={"waves": 2})
    with pytest.raises(InvalidValueError, match="a replayed device returns times"):
        make_replay_device("mi300x", [recorded(), counters])


def test_nothing_cannot_be_replayed() -> None:
    with pytest.raises(InvalidValueError, match="nothing to replay"):
        make_replay_device("mi300x", [])
    with pytest.raises(InvalidValueError, match="replay:NAME"):
        ReplayDevice("gpu:0", {})


def test_from_a_table_and_from_a_journal(tmp_path: Path) -> None:
    records = [recorded(), failed(kernel="bad")]
    table, folder = tmp_path / "times.parquet", tmp_path / "journal"
    export_table(records, table)
    with Journal(folder, "worker") as journal:
        for record in records:
            journal.append(record)
    one, other = read_replay("mi300x", table), open_device("replay:mi300x", folder)
    assert isinstance(other, ReplayDevice)
    assert one.digest == other.digest == make_replay_device("mi300x", records[::-1]).digest
    for device in (one, other):
        assert asked(device).times == records[0].times
        assert asked(device, kernel="bad").message == "it is off"


def test_another_recording_has_another_digest() -> None:
    plain = make_replay_device("mi300x", [recorded()])
    for records in ([recorded(10.5)], [failed()], [recorded(kernel="other")], [recorded(), failed(kernel="bad")]):
        assert make_replay_device("mi300x", records).digest != plain.digest
    assert format_versions(plain) == f'{{"recording":"{plain.digest}"}}'


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal", "worker") as journal:
        journal.append(recorded())
    (file,) = (tmp_path / "journal").glob("*.jsonl")
    file.write_text(file.read_text() + "{torn\n")
    with pytest.raises(FileFormatError, match=r"worker.jsonl:2"):
        read_replay("mi300x", tmp_path / "journal")


def test_devices_by_name(tmp_path: Path) -> None:
    assert open_device("emulated:gfx942") == tw.Device("emulated:gfx942")
    with pytest.raises(InvalidValueError, match="--replay FILE"):
        open_device("replay:mi300x")
    with pytest.raises(UnknownValueError, match="emulated:gfx942"):
        open_device("emulated:gfx9")
    with pytest.raises(FileFormatError, match="does not exist"):
        open_device("replay:mi300x", tmp_path / "none.parquet")
