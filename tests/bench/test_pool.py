"""The pool of workers: each piece of work gives one record, whatever becomes of devices; a stop keeps what runs."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import faulty_runner as faulty
import pytest
from sweeping import NO_BUILD, QUICK, eventually, is_alive, scale_kernels, scale_plan, scale_problems

from tilewright.base import events
from tilewright.base.errors import DeviceError, InvalidValueError
from tilewright.bench import worker_client
from tilewright.bench.executor import Limits, WorkerConfig, WorkItem
from tilewright.bench.local import LocalPool
from tilewright.bench.quarantine import Quarantine
from tilewright.bench.record import Record

pytestmark = pytest.mark.usefixtures("plugin")
CREW = WorkerConfig(limits=QUICK, runner="faulty_runner:run")


def works(good: int, faults: Iterable[int] = (), kernels: int = 1, device: str = NO_BUILD) -> list[WorkItem]:
    return [
        WorkItem(task)
        for task in scale_plan(scale_kernels(kernels), scale_problems(good, faults), device).iterate_tasks()
    ]


def submitted(pool: LocalPool, work: Iterable[WorkItem]) -> threading.Thread:
    """Work is submitted by one thread while another takes results."""

    def submit() -> None:
        for each in work:
            if not pool.submit(each):
                return
        pool.finish_input()

    thread = threading.Thread(target=submit)
    thread.start()
    return thread


def results(pool: LocalPool, work: Iterable[WorkItem]) -> list[Record]:
    thread = submitted(pool, work)
    try:
        return list(pool.iterate_results())
    finally:
        pool.close()
        thread.join()


def test_each_piece_of_work_gives_one_record() -> None:
    asked = works(40, [faulty.KILLED, faulty.WRONG], kernels=3)
    found = results(LocalPool([(NO_BUILD, "gfx942")] * 2, CREW), asked)
    assert sorted(record.key for record in found) == sorted(work.task.key for work in asked)
    assert Counter(record.status for record in found) == {"ok": 120, "crashed": 3, "wrong": 3}
    assert len({record.worker for record in found}) > 1


def test_a_worker_stays_with_its_problem() -> None:
    """Its reference is worked out once, and not by two workers; only at an end may two be at one problem."""
    plan = scale_plan(scale_kernels(15), scale_problems(30), NO_BUILD)
    team = {kernel.slug for kernel in plan.grids[-1].kernels}
    assert len(team) == 8
    found = results(LocalPool([(NO_BUILD, "gfx942")] * 2, CREW), [WorkItem(task) for task in plan.iterate_tasks()])
    workers: dict[str, set[str]] = defaultdict(set)
    for record in found:
        if record.task.kernel in team:
            workers[record.task.problem].add(record.worker)
    assert len(workers) == 30
    assert sum(len(each) > 1 for each in workers.values()) <= 3


def test_submitting_waits_while_too_much_is_under_way() -> None:
    pool = LocalPool([(NO_BUILD, "gfx942")], CREW, in_flight=3)
    count = 0

    def counted() -> Iterable[WorkItem]:
        nonlocal count
        for work in works(20):
            yield work
            count += 1

    thread = submitted(pool, counted())
    eventually(lambda: count == 3)
    time.sleep(0.3)
    assert count == 3  # nobody takes results
    assert len(list(pool.iterate_results())) == 20
    pool.close()
    thread.join()


def test_a_stop_finishes_what_runs_and_begins_nothing() -> None:
    pool = LocalPool([(NO_BUILD, "gfx942")], WorkerConfig({"seconds": 0.2}, QUICK, runner="faulty_runner:run"))
    thread = submitted(pool, works(50))
    found = []
    for record in pool.iterate_results():
        found.append(record)
        if len(found) == 2:
            pool.stop()
    pool.close()
    thread.join()
    assert 2 <= len(found) <= 4
    assert all(record.ok for record in found)


def test_closing_ends_all_processes_at_once() -> None:
    patient = WorkerConfig(limits=Limits(seconds=60), runner="faulty_runner:run")
    pool = LocalPool([(NO_BUILD, "gfx942")] * 2, patient)
    thread = submitted(pool, works(10, [faulty.HANGS] * 2))
    pids = {int(next(iter(pool.iterate_results())).worker.rpartition(":")[2])}
    began = time.monotonic()
    pool.close()
    thread.join()
    assert time.monotonic() - began < 30
    assert not any(map(is_alive, pids))


def held() -> tuple[int, set[int]]:
    """How many descriptors this process has open, and which processes it started, zombies included."""
    children = {int(pid) for listed in Path("/proc/self/task").glob("*/children") for pid in listed.read_text().split()}
    return len(list(Path("/proc/self/fd").iterdir())), children


@pytest.mark.slow
def test_crashes_leave_no_descriptor_and_no_process() -> None:
    faults = [faulty.KILLED, faulty.RAISES, faulty.NO_MEMORY, faulty.ABORTS, faulty.HANGS, faulty.LEAVES_CHILD]
    before = held()
    found = results(LocalPool([(NO_BUILD, "gfx942")] * 2, CREW), works(4, faults))
    assert held() == before
    assert Counter(record.ok for record in found) == {True: 5, False: 5}
    # Closed in the middle: while one hangs and another one may be starting.
    pool = LocalPool([(NO_BUILD, "gfx942")] * 2, CREW)
    thread = submitted(pool, works(0, faults[-2:] * 5))
    next(pool.iterate_results())
    pool.close()
    thread.join()
    assert held() == before


def test_what_is_refused_does_not_run() -> None:
    kept_away = Quarantine(1)
    bad, *rest = works(3, [faulty.WRONG])[::-1]
    kept_away.count_record(Record(task=bad.task, status="wrong"))
    found = results(LocalPool([(NO_BUILD, "gfx942")], CREW, refuse=kept_away.reject_task), rest)
    assert {record.status for record in found} == {"quarantined"}
    assert "failed 1 times" in found[0].message


@pytest.fixture
def one_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_client, "STARTS", 1)


def test_work_of_a_lost_device_goes_to_those_that_are_alike(one_start: None) -> None:
    worker_config = WorkerConfig({"broken": "gpu:1"}, QUICK, runner="faulty_runner:run")
    asked = works(20, device="gpu:0")
    noticed: list[events.Event] = []
    with events.add_listener(noticed.append):
        found = results(LocalPool([("gpu:0", "gfx942"), ("gpu:1", "gfx942")], worker_config), asked)
    assert sorted(record.key for record in found) == sorted(work.task.key for work in asked)
    assert {record.task.device for record in found} == {"gpu:0"}
    assert ["gpu:1: no worker could be started" in str(event) for event in noticed] == [True]


def test_without_any_device_left_it_ends_with_an_error(one_start: None) -> None:
    pool = LocalPool([(NO_BUILD, "gfx942")], WorkerConfig({"broken": NO_BUILD}, QUICK, runner="faulty_runner:run"))
    with pytest.raises(DeviceError, match="is broken"):
        results(pool, works(5))


def test_devices_that_cannot_be(plugin: Path) -> None:
    with pytest.raises(InvalidValueError, match="gpu:0 would have two workers"):
        LocalPool([("gpu:0", "gfx942")] * 2, CREW)
    with pytest.raises(InvalidValueError, match="without a device"):
        LocalPool([], CREW)
    pool = LocalPool([("gpu:0", "gfx942")], CREW)
    with pytest.raises(InvalidValueError, match=r"no device of this pool is a replay:tests \(gfx942\)"):
        pool.submit(works(1)[0])
    pool.close()
