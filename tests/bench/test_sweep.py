"""Sweeps: every result is journalled once, resuming does nothing again, shards add up, a stop keeps what runs."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import faulty_runner as faulty
import pytest
from sweeping import (
    ARCH,
    NO_BUILD,
    crew_of,
    eventually,
    scale_kernels,
    scale_plan,
    scale_problems,
    swept,
)

from tilewright.base import events
from tilewright.base.errors import JournalError
from tilewright.bench.executor import WorkItem
from tilewright.bench.journal import read_journal
from tilewright.bench.local import LocalExecutor
from tilewright.bench.plan import Shard, SweepPlan
from tilewright.bench.record import Record
from tilewright.bench.sweep import TASK, SweepOptions, run_plan

pytestmark = pytest.mark.usefixtures("plugin")


def keys(plan: SweepPlan) -> list[str]:
    return sorted(task.key for task in plan.iterate_tasks())


def journalled(folder: Path) -> list[str]:
    """The keys of all records, equal ones as often as they are there."""
    contents = read_journal(folder)
    assert contents.damaged == []
    return sorted(record.key for record in contents.records)


def test_every_task_has_one_record(tmp_path: Path) -> None:
    plan = scale_plan(scale_kernels(3), scale_problems(30, [faulty.WRONG, faulty.KILLED]))
    summary = swept(plan, tmp_path, workers=2)
    assert journalled(tmp_path) == keys(plan)
    assert summary.statuses == Counter(ok=90, wrong=3, crashed=3)
    assert (summary.known, summary.left, summary.stopped) == (0, 0, False)


def test_resuming_does_nothing_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    plan = scale_plan(scale_kernels(2), scale_problems(10, [faulty.WRONG]), log=str(log))
    swept(plan, tmp_path / "sweep")
    again = swept(plan, tmp_path / "sweep")
    assert (again.done, again.known) == (0, 22)
    assert len(log.read_text().splitlines()) == 22
    retried = swept(plan, tmp_path / "sweep", retry_failed=True)
    assert (retried.statuses, retried.known) == (Counter(wrong=2), 20)


def test_another_sweep_is_refused_in_its_folder(tmp_path: Path) -> None:
    swept(scale_plan(scale_kernels(1), scale_problems(2)), tmp_path)
    with pytest.raises(JournalError, match=r"holds another sweep: 2 problems there, 3 now\. Repeat"):
        swept(scale_plan(scale_kernels(1), scale_problems(3)), tmp_path)
    assert len(journalled(tmp_path)) == 2


def test_two_at_once_on_the_same_work_are_refused(tmp_path: Path) -> None:
    plan = scale_plan(scale_kernels(1), scale_problems(5), seconds=0.2)
    first = threading.Thread(target=swept, args=(plan, tmp_path))
    first.start()
    eventually(lambda: list(tmp_path.glob("*.jsonl")))
    with pytest.raises(JournalError, match="another process is sweeping shard 1/1"):
        swept(plan, tmp_path)
    first.join()
    assert journalled(tmp_path) == keys(plan)


def test_shards_into_one_folder_are_the_whole(tmp_path: Path) -> None:
    plan = scale_plan(scale_kernels(2), scale_problems(20))
    done = [swept(plan, tmp_path, shard=Shard(number, 3)).done for number in (1, 2, 3)]
    assert sum(done) == 40
    assert min(done) > 0
    assert journalled(tmp_path) == keys(plan)


def test_a_kernel_that_fails_too_often_is_kept_away(tmp_path: Path) -> None:
    bad, good = scale_kernels(2)
    problems = scale_problems(0, [faulty.WRONG] * 200)
    summary = swept(scale_plan([bad], problems), tmp_path / "one", quarantine=2)
    assert summary.statuses["wrong"] >= 2
    assert summary.statuses["quarantined"] > 100
    assert summary.done == 200
    assert summary.quarantined == (bad.slug,)
    assert len(journalled(tmp_path / "one")) == 200
    never = swept(scale_plan([good], problems), tmp_path / "two", quarantine=0)
    assert never.statuses == Counter(wrong=200)


def test_the_quarantine_is_remembered(tmp_path: Path) -> None:
    """What failed before a restart counts after it."""
    plan = scale_plan(scale_kernels(1), scale_problems(40, [faulty.WRONG] * 3))
    tasks = list(plan.iterate_tasks())

    class Some:
        """An executor that ends after the failures."""

        def run(self, work: Any, kernels: Any = ()) -> Any:
            wanted = {task.key for task in tasks[-3:]}
            for each in work:
                if each.task.key in wanted:
                    yield Record(task=each.task, status="wrong")

        def stop(self) -> None: ...

        def close(self) -> None: ...

    first = run_plan(plan, tmp_path, Some(), SweepOptions(fsync="never"))
    assert (first.left, first.quarantined) == (40, (tasks[0].kernel,))
    assert swept(plan, tmp_path).statuses == Counter(quarantined=40)


def test_a_result_that_comes_twice_is_kept_once(tmp_path: Path) -> None:
    plan = scale_plan(scale_kernels(1), scale_problems(3))

    class Twice:
        def run(self, work: Any, kernels: Any = ()) -> Any:
            for each in work:
                yield from [Record(task=each.task, status="fault")] * 2

        def stop(self) -> None: ...

        def close(self) -> None: ...

    assert run_plan(plan, tmp_path, Twice(), SweepOptions(quarantine=0, fsync="never")).done == 3
    assert journalled(tmp_path) == keys(plan)


def test_damaged_lines_are_told_and_measured_again(tmp_path: Path) -> None:
    plan = scale_plan(scale_kernels(1), scale_problems(6))
    swept(plan, tmp_path)
    (file,) = tmp_path.glob("*.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"ok", b"kO", 1)
    file.write_bytes(b"".join(lines)[:-20])  # and the last one is torn
    heard: list[events.Event] = []
    with events.add_listener(heard.append):
        summary = swept(plan, tmp_path)
    assert (summary.done, summary.known, summary.damaged) == (2, 4, 2)
    assert any("2 damaged lines" in str(event) for event in heard)
    assert sorted(record.key for record in read_journal(tmp_path).records) == keys(plan)


def test_progress_says_done_failed_rate_and_how_long(tmp_path: Path) -> None:
    plan = scale_plan(scale_kernels(1), scale_problems(20, [faulty.WRONG] * 2), seconds=0.03)
    heard: list[events.Event] = []
    with events.add_listener(heard.append):
        swept(plan, tmp_path)
    assert events.Started(TASK, 22) in heard
    assert sum(event.done for event in heard if isinstance(event, events.Advanced) and event.task == TASK) == 22
    working = [event for event in heard if isinstance(event, events.Working) and event.task == TASK]
    assert all("/s" in event.on[0] and event.left_s is not None and event.left_s >= 0 for event in working)
    assert working


def test_what_makes_going_on_impossible_is_raised_and_the_rest_is_kept(tmp_path: Path) -> None:
    plan = scale_plan(scale_kernels(1), scale_problems(50), seconds=0.01)
    executor = LocalExecutor([(NO_BUILD, ARCH)], crew_of(plan))

    class Breaking:
        def run(self, work: Any, kernels: Any = ()) -> Any:
            def some() -> Any:
                for number, each in enumerate(work):
                    if number == 10:
                        raise OSError("the list of problems cannot be read any more")
                    yield WorkItem(each.task)

            return executor.run(some(), kernels)

        def stop(self) -> None:
            executor.stop()

        def close(self) -> None:
            executor.close()

    with pytest.raises(OSError, match="cannot be read any more"):
        run_plan(plan, tmp_path, Breaking(), SweepOptions(fsync="never"))
    before = len(journalled(tmp_path))
    assert swept(plan, tmp_path).done == 50 - before
    assert journalled(tmp_path) == keys(plan)
