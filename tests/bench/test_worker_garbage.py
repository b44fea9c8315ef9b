"""Garbage on the descriptor of results: it costs the task that wrote it one record, and nobody else anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journalled import counted, timed
from rambling_runner import CHANGES, RAMBLES, SAID, good_times, said
from sweeping import NO_BUILD, eventually, scale_kernels, scale_plan, scale_problems

from tilewright.base.errors import DeviceError
from tilewright.base.events import Notice, add_listener
from tilewright.bench import worker_client, worker_process
from tilewright.bench.executor import Limits, WorkerConfig, WorkItem
from tilewright.bench.journal import read_journal
from tilewright.bench.local import LocalExecutor
from tilewright.bench.record import Record
from tilewright.bench.sweep import SweepOptions, run_plan
from tilewright.bench.worker_client import WorkerClient
from tilewright.bench.worker_process import Alive, Begun, Done, InvalidLine, Ready, read_message

LIMITS = Limits(seconds=20.0)


def rambling(says: str, when: str = "before") -> WorkerConfig:
    return WorkerConfig({"says": says, "when": when}, LIMITS, runner="rambling_runner:run")


def works(good: int) -> tuple[list[WorkItem], WorkItem]:
    """Good tasks in the order of their problems, and the one that writes garbage."""
    plan = scale_plan(scale_kernels(1), scale_problems(good, [RAMBLES]))
    ordered = sorted(plan.iterate_tasks(), key=lambda task: int(json.loads(task.problem)["n"]))
    return [WorkItem(task) for task in ordered[:-1]], WorkItem(ordered[-1])


@pytest.mark.parametrize("name", [*SAID, *CHANGES])
def test_no_line_is_anything_but_garbage_or_a_message(name: str) -> None:
    found = read_message(said(name, timed() if "times" in name else counted(n=1)).removesuffix(b"\n"))
    if name == "begun for another":
        assert found == Begun("0")
    elif name == "ready again":
        assert found == Ready()
    else:
        assert isinstance(found, InvalidLine) and len(found.why) < 1000
        found.why.encode()


def test_what_workers_write_is_read() -> None:
    assert read_message(b'{"ready":17}') == Ready()
    assert read_message(b'{"alive":1.5}') == Alive()
    record = Record(task=timed().task, status="ok", kind="time", times=good_times())
    line = json.dumps({"done": record.to_json(), "sound": False}).encode()
    assert read_message(line) == Done(record, False)


@given(st.binary(max_size=200) | st.text(max_size=50).map(lambda text: text.encode(errors="surrogatepass")))
def test_any_bytes_are_a_message(line: bytes) -> None:
    read_message(line)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from([timed(), counted(n=1)]), st.data())
def test_a_record_with_any_value_in_any_field_is_itself_or_garbage(record: Record, data: st.DataObject) -> None:
    body = record.to_json()
    place = data.draw(st.sampled_from([body, body["task"], *([body["times"]] if record.times else [])]))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(_JSON)
    found = read_message(json.dumps({"done": body, "sound": True}).encode())
    assert isinstance(found, Done | InvalidLine)
    if isinstance(found, Done):
        assert json.dumps(found.record.to_json()) == json.dumps(Record.from_json(found.record.to_json()).to_json())


@pytest.mark.parametrize("says", ["number", "brackets", "endless line", "took_s huge"])
@pytest.mark.usefixtures("plugin")
def test_garbage_costs_one_record(says: str) -> None:
    (before, after), bad = works(2)
    worker = WorkerClient(NO_BUILD, rambling(says))
    try:
        assert worker.measure(before).ok
        failed = worker.measure(bad)
        assert (failed.status, failed.task) == ("crashed", bad.task)
        assert failed.message.startswith("the worker sent")
        assert worker.measure(after).ok
    finally:
        worker.close()
    assert worker.starts == 2


@pytest.mark.usefixtures("plugin")
def test_a_sweep_with_garbage_ends_with_one_record_for_each_task(tmp_path: Path) -> None:
    plan = scale_plan(scale_kernels(1), scale_problems(5, [RAMBLES, RAMBLES]))
    executor = LocalExecutor([(NO_BUILD, "gfx942")], rambling("list"))
    summary = run_plan(plan, tmp_path, executor, SweepOptions(fsync="never"))
    assert dict(summary.statuses) == {"ok": 5, "crashed": 2} and summary.left == 0
    assert len({record.key for record in read_journal(tmp_path).records}) == 7


@pytest.mark.usefixtures("plugin")
def test_a_sweep_tells_of_a_worker_that_was_ended_between_tasks(tmp_path: Path) -> None:
    problems = scale_problems(5, [RAMBLES])
    notices: list[str] = []
    with add_listener(lambda event: notices.append(event.message) if isinstance(event, Notice) else None):
        executor = LocalExecutor([(NO_BUILD, "gfx942")], rambling("second answer", "next"))
        summary = run_plan(scale_plan(scale_kernels(1), problems), tmp_path, executor, SweepOptions(fsync="never"))
    assert dict(summary.statuses) == {"ok": 6}
    assert len(notices) == 1 and "a record of another task" in notices[0]


def answered(worker: WorkerClient, work: WorkItem) -> str:
    """The notices of a good record."""
    assert worker.measure(work).ok
    return " ".join(worker.take_notices())


@pytest.mark.parametrize("says", ["second answer", "half a line"])
@pytest.mark.usefixtures("plugin")
def test_a_worker_that_says_something_between_tasks_is_ended(says: str) -> None:
    (first, second), bad = works(2)
    worker = WorkerClient(NO_BUILD, rambling(says, "after"))
    try:
        assert answered(worker, first) == answered(worker, bad) == ""
        process = worker._process
        assert process is not None
        eventually(lambda: worker_process._poll_readable([process._results], 0))
        told = answered(worker, second)
        assert "without a request" in told and bad.task.kernel in told
        assert answered(worker, first) == ""
    finally:
        worker.close()
    assert worker.starts == 2


@pytest.mark.usefixtures("plugin")
def test_what_comes_when_the_next_task_is_asked_is_not_blamed_on_it() -> None:
    (first, second), bad = works(2)
    worker = WorkerClient(NO_BUILD, rambling("second answer", "next"))
    try:
        assert answered(worker, first) == answered(worker, bad) == ""
        assert "the worker sent" in answered(worker, second)
    finally:
        worker.close()
    assert worker.starts == 2


def test_a_signal_without_a_name_is_told() -> None:
    assert worker_process._get_signal_name(9) == "SIGKILL"
    assert worker_process._get_signal_name(40) == "a real-time signal"


@pytest.mark.usefixtures("plugin")
def test_a_machine_without_room_for_a_process_is_an_error_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mocked: the system's refusal to start a process."""

    def refused(*_: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(worker_client, "WorkerProcess", refused)
    with pytest.raises(DeviceError, match="Resource temporarily unavailable"):
        WorkerClient(NO_BUILD, rambling("number")).measure(works(1)[0][0])
