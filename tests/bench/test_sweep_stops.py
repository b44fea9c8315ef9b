"""Sweeps that are stopped, killed, or have no disk: what was begun is finished or told, nothing is done again."""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sweeping import NO_BUILD, answer, eventually, is_alive, scale_kernels, scale_plan, scale_problems, start, swept

from tests.building.stores import forked, kill
from tests.compile.engine import children_of
from tilewright.bench.journal import read_journal

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("plugin")]
SEED = 36_2026


def journalled(folder: Path) -> list[str]:
    """The keys of all records, equal ones as often as they are there."""
    contents = read_journal(folder)
    assert contents.damaged == []
    return sorted(record.key for record in contents.records)


def request(folder: Path, kernels: int, good: int, **more: Any) -> dict[str, Any]:
    """What a coordinator of its own process is asked."""
    return {
        "folder": str(folder),
        "kernels": [asdict(kernel.config) for kernel in scale_kernels(kernels)],
        "problems": [asdict(problem) for problem in scale_problems(good)],
        "device": NO_BUILD,
        **more,
    }


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_finishes_what_runs_and_keeps_it(tmp_path: Path, number: signal.Signals) -> None:
    folder, log = tmp_path / "sweep", tmp_path / "log"
    asked = request(folder, 1, 60, settings={"seconds": 0.05, "log": str(log)})
    coordinator = start(asked)
    eventually(lambda: log.exists() and len(log.read_text().splitlines()) > 5)
    os.kill(coordinator.pid, number)
    found = answer(coordinator, code=130)
    begun = log.read_text().splitlines()
    assert found["left"] == 60 - len(begun)
    assert journalled(folder) == sorted(begun)  # what was begun was finished and kept
    assert answer(start(asked))["known"] == len(begun)
    assert len(journalled(folder)) == 60


def test_nothing_journalled_is_done_again_after_the_coordinator_was_killed(tmp_path: Path) -> None:
    folder, log = tmp_path / "sweep", tmp_path / "log"
    asked = request(folder, 2, 60, workers=2, settings={"seconds": 0.02, "log": str(log)})
    for kill_after in (20, 70):
        coordinator = start(asked)
        eventually(lambda n=kill_after: log.exists() and len(log.read_text().splitlines()) > n)
        workers = [
            int(word)
            for word in Path(f"/proc/{coordinator.pid}/task").glob("*/children")
            for word in word.read_text().split()
        ]
        before = set(journalled(folder))
        coordinator.kill()
        coordinator.communicate()
        eventually(lambda w=workers: not any(map(is_alive, w)))
        kept = {record.key for record in read_journal(folder).records}
        assert before <= kept
    kept = {record.key for record in read_journal(folder).records}
    begun = len(log.read_text().splitlines())
    found = answer(start(asked))
    assert found["known"] == len(kept)
    again = log.read_text().splitlines()[begun:]
    assert kept.isdisjoint(again)
    assert len(again) == 120 - len(kept)
    records = [record.key for record in read_journal(folder).records]
    assert len(records) == len(set(records)) == 120


@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.deep)])
def test_sweeps_killed_at_any_instant_lose_and_repeat_nothing(tmp_path: Path, kills: int) -> None:
    """Each sweep is killed ten times, at a random time after its start or after some task, and then completed."""
    chance = Random(SEED)
    for first in range(0, kills, 10):
        folder, log = tmp_path / f"sweep-{first}", tmp_path / f"log-{first}"
        plan = scale_plan(scale_kernels(1), scale_problems(80), log=str(log), seconds=0.005)
        for _ in range(min(10, kills - first)):
            known = _read_known(folder)
            begun = len(_read_lines(log))
            pid = forked(lambda plan=plan, folder=folder: swept(plan, folder))  # type: ignore[misc]
            if chance.random() < 0.5:
                time.sleep(chance.uniform(0, 1.0))
            else:
                _wait_for_lines(log, begun + chance.randrange(12), pid)
                time.sleep(chance.uniform(0, 0.01))
            workers = children_of(pid)
            kill(pid)
            eventually(lambda workers=workers: not any(map(is_alive, workers)))
            assert known <= _read_known(folder), "a record was lost"
            assert known.isdisjoint(_read_lines(log)[begun:]), "a task with a record was done again"
        summary = swept(plan, folder)
        assert (summary.left, summary.damaged) == (0, 0)
        assert journalled(folder) == sorted(task.key for task in plan.iterate_tasks())


def _wait_for_lines(log: Path, count: int, pid: int) -> None:
    """Wait until more tasks have begun, or the sweep has ended."""
    eventually(lambda: len(_read_lines(log)) > count or not is_alive(pid), 300)


def _read_known(folder: Path) -> set[str]:
    return {record.key for record in read_journal(folder).records} if folder.exists() else set()


def _read_lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    found = answer(start(request(tmp_path / "sweep", 1, 30, full_disks=3)))
    assert (found["statuses"], found["full_disks"]) == ({"ok": 30}, 3)
    assert len(set(journalled(tmp_path / "sweep"))) == 30


def test_a_sweep_waits_until_its_disk_has_room(small_disk: Path, tmp_path: Path) -> None:
    folder, log = small_disk / "sweep", tmp_path / "log"
    coordinator = start(request(folder, 1, 60, settings={"seconds": 0.02, "log": str(log)}))
    eventually(lambda: len(_read_lines(log)) > 5)
    (small_disk / "ballast").write_bytes(b"\0" * shutil.disk_usage(small_disk).free)
    begun = len(_read_lines(log))
    eventually(lambda: shutil.disk_usage(small_disk).free == 0 and len(_read_lines(log)) > begun + 2)
    time.sleep(0.3)
    assert len(_read_lines(log)) < 60, "it did not wait"
    (small_disk / "ballast").unlink()
    assert answer(coordinator)["statuses"] == {"ok": 60}
    assert sorted(_read_lines(log)) == journalled(folder)
