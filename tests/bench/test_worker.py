"""A worker process: what a kernel does to it costs one record, and it never outlives its coordinator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import faulty_runner as faulty
import pytest
from sweeping import (
    HERE,
    NO_BUILD,
    PLUGIN,
    QUICK,
    eventually,
    is_alive,
    scale_kernels,
    scale_plan,
    scale_problems,
)

from tilewright.base.errors import DeviceError, InvalidValueError
from tilewright.bench import worker_client
from tilewright.bench.executor import Limits, WorkerConfig, WorkItem
from tilewright.bench.record import Record
from tilewright.bench.worker_client import WorkerClient

pytestmark = pytest.mark.usefixtures("plugin")


def works(good: int, *faults: int, kernels: int = 1) -> list[WorkItem]:
    """By kernel, first the good problems as they are numbered, then the faults."""
    plan = scale_plan(scale_kernels(kernels), scale_problems(good, faults))
    ordered = sorted(plan.iterate_tasks(), key=lambda task: (task.kernel, json.loads(task.problem)["n"]))
    return [WorkItem(task) for task in ordered]


@pytest.fixture
def worker(plugin: Path) -> Iterator[WorkerClient]:
    made = WorkerClient(NO_BUILD, WorkerConfig(limits=QUICK, runner="faulty_runner:run"))
    yield made
    made.close()


def pid_of(record: Record) -> int:
    return int(record.worker.rpartition(":")[2])


def test_one_process_measures_many_tasks(worker: WorkerClient) -> None:
    records = [worker.measure(work) for work in works(20)]
    assert [record.counters["n"] for record in records] == list(range(1, 21))
    assert worker.starts == 1
    assert {pid_of(record) for record in records} != {os.getpid()}
    assert all(record.started > 1e9 and record.took_s > 0 for record in records)


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        (faulty.KILLED, "crashed", "signal 9 (SIGKILL)"),
        (faulty.HANGS, "timeout", "the limit is 4 s"),
        (faulty.ENDLESS, "timeout", "the limit is 4 s"),
        (faulty.WRONG, "wrong", "should be 2"),
        (faulty.NO_MEMORY, "out_of_memory", "ran out of memory"),
        (faulty.FAULT, "fault", "0x1234"),
        (faulty.RAISES, "crashed", "TypeError: a mistake in a runner (faulty_runner.py, line"),
        (faulty.ABORTS, "out_of_memory", "SIGABRT"),
    ],
)
def test_a_fault_costs_one_record(worker: WorkerClient, fault: int, status: str, words: str) -> None:
    before, bad, after = works(2, fault)[0], works(2, fault)[-1], works(2, fault)[1]
    assert worker.measure(before).ok
    failed = worker.measure(bad)
    assert (failed.status, failed.task.problem) == (status, bad.task.problem)
    assert words in failed.message
    assert worker.measure(after).ok
    assert worker.starts == (1 if fault == faulty.WRONG else 2)


def test_a_process_that_gives_no_sign_of_life_is_killed_before_its_time(plugin: Path) -> None:
    worker = WorkerClient(NO_BUILD, WorkerConfig(limits=Limits(seconds=600, silence_s=2), runner="faulty_runner:run"))
    try:
        assert "without a heartbeat" in worker.measure(works(0, faulty.SILENT)[0]).message
    finally:
        worker.close()


def test_what_a_kernel_prints_disturbs_nothing(worker: WorkerClient) -> None:
    printing, good = works(1, faulty.PRINTS)[::-1]
    assert worker.measure(printing).ok
    assert worker.measure(good).ok
    assert worker.starts == 1


def test_everything_that_a_task_started_ends_with_its_process(worker: WorkerClient) -> None:
    """A process that a kernel left behind holds the pipes open, and is in the same group."""
    good, leaving, hanging = works(1, faulty.LEAVES_CHILD, faulty.HANGS)
    assert worker.measure(leaving).ok
    pid = pid_of(worker.measure(good))
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    assert len(children) == 1
    assert worker.measure(hanging).status == "timeout"
    eventually(lambda: not any(map(is_alive, [pid, *children])))


def test_closing_ends_the_process_and_what_it_left(worker: WorkerClient) -> None:
    pid = pid_of(worker.measure(works(0, faulty.LEAVES_CHILD)[0]))
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    worker.close()
    eventually(lambda: not any(map(is_alive, [pid, *children])))
    with pytest.raises(ChildProcessError):  # it was waited for: there is no zombie
        os.waitpid(pid, os.WNOHANG)
    with pytest.raises(DeviceError, match="closed"):
        worker.measure(works(1)[0])


def test_a_process_that_died_between_tasks_costs_nothing(worker: WorkerClient) -> None:
    first, second = works(2)
    os.kill(pid_of(worker.measure(first)), signal.SIGKILL)
    assert worker.measure(second).ok


def test_a_process_starts_anew_after_some_kernels(plugin: Path) -> None:
    worker = WorkerClient(NO_BUILD, WorkerConfig(limits=Limits(kernels=2), runner="faulty_runner:run"))
    try:
        pids = [pid_of(worker.measure(work)) for work in works(2, kernels=3)]
    finally:
        worker.close()
    assert len(set(pids[:4])) == 1
    assert len(set(pids)) == 2


def test_memory_is_limited(plugin: Path) -> None:
    """The runner asks for 4 TiB, which some machines promise to anybody who asks; a limit refuses it everywhere."""
    worker = WorkerClient(NO_BUILD, WorkerConfig(limits=Limits(memory_bytes=2**32), runner="faulty_runner:run"))
    try:
        assert worker.measure(works(0, faulty.NO_MEMORY)[0]).status == "out_of_memory"
    finally:
        worker.close()


def test_a_device_on_which_nothing_starts_is_an_error(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_client, "STARTS", 1)
    worker = WorkerClient(NO_BUILD, WorkerConfig(runner="faulty_runner:walk"))
    with pytest.raises(DeviceError, match=r"no worker could be started.*has no function 'walk'"):
        worker.measure(works(1)[0])


def test_limits_that_allow_nothing_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="seconds is 0, must be above 0"):
        Limits(seconds=0)
    with pytest.raises(InvalidValueError, match="memory_bytes is 1,000"):
        Limits(memory_bytes=1000)


# A coordinator that hangs with its worker in a task, whose process it tells.
COORDINATOR = """
import sys, threading, time
from sweeping import crew_of, scale_kernels, scale_plan, scale_problems
from tilewright.bench.worker_client import WorkerClient
from tilewright.bench.executor import Limits, WorkItem
import faulty_runner as faulty
plan = scale_plan(scale_kernels(1), scale_problems(1, [faulty.HANGS]))
worker = WorkerClient("replay:tests", crew_of(plan, Limits(seconds=600)))
good, hanging = [WorkItem(task) for task in sorted(plan.iterate_tasks(), key=lambda task: len(task.problem))]
print(worker.measure(good).worker.rpartition(":")[2], flush=True)
worker.measure(hanging)
"""


def test_a_worker_dies_with_its_coordinator() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PLUGIN), str(HERE.parent)])}
    coordinator = subprocess.Popen(
        [sys.executable, "-c", COORDINATOR], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert coordinator.stdout is not None
    pid = int(coordinator.stdout.readline())
    assert is_alive(pid)
    coordinator.kill()
    coordinator.wait()
    coordinator.stdout.close()
    eventually(lambda: not is_alive(pid))


def with_reference(limits: Limits, **settings: object) -> Record:
    made = WorkerClient(NO_BUILD, WorkerConfig(settings, limits, runner="faulty_runner:run"))
    try:
        return made.measure(works(1)[0])
    finally:
        made.close()


def test_a_kernel_is_not_killed_for_a_reference_that_takes_long() -> None:
    assert with_reference(Limits(seconds=0.5), reference_s=1.0).ok


def test_a_reference_that_takes_too_long_is_told_as_such() -> None:
    found = with_reference(Limits(reference_s=0.5), reference_s=60.0)
    assert found.status == "timeout"
    assert "the limit is 0.5 s for its problem's reference" in found.message


def test_a_reference_that_cannot_be_made_is_a_status() -> None:
    found = with_reference(QUICK, no_reference=True)
    assert (found.status, found.message) == ("out_of_memory", "no room for the reference")
