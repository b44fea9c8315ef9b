"""Faults of all kinds in one sweep: good results are kept once, and every failure is reported."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import faulty_runner as faulty
import pytest
from sweeping import ARCH, BUILT, answer, eventually, is_alive, scale_plan, scale_problems, start

from tilewright.bench.journal import list_journal_files, read_journal
from tilewright.bench.plan import SweepPlan, parse_problem
from tilewright.ops import find_op

pytestmark = [pytest.mark.compile, pytest.mark.slow, pytest.mark.usefixtures("plugin")]

GOOD_PROBLEMS = 20
# How tasks of each kernel that compiles fail, and how often in the large sweep.
FAULTS = {
    faulty.KILLED: (16, "crashed"),
    faulty.HANGS: (2, "timeout"),
    faulty.WRONG: (22, "wrong"),
    faulty.NO_MEMORY: (8, "out_of_memory"),
    faulty.ABORTS: (4, "out_of_memory"),
    faulty.FAULT: (6, "fault"),
    faulty.RAISES: (4, "crashed"),
}
KERNELS = [{"dtype": "fp32", "threads": 64, "factor": factor} for factor in (901, 902)]
# Legal, and refused by the compiler: none of its tasks can be measured.
REFUSED = {"dtype": "fp64", "threads": 64, "factor": 666}
REFUSED_PROBLEMS = 56
KILLED_COORDINATORS, DAMAGED_LINES, FULL_DISKS = 2, 12, 6


@pytest.mark.parametrize(("divisor", "faults"), [(8, 45), pytest.param(1, 200, marks=pytest.mark.deep)])
def test_faults_of_all_kinds(divisor: int, faults: int, tmp_path: Path) -> None:
    folder, log = tmp_path / "sweep", tmp_path / "log"
    counts = {fault: -(-count // divisor) for fault, (count, _) in FAULTS.items()}
    asked = _asked(folder, log, tmp_path / "store", counts, REFUSED_PROBLEMS // divisor)
    plan = _plan(asked)
    of_tasks = 2 * sum(counts.values()) + REFUSED_PROBLEMS // divisor
    assert of_tasks + KILLED_COORDINATORS + DAMAGED_LINES + FULL_DISKS >= faults

    for number in range(KILLED_COORDINATORS):
        _killed_in_the_middle(asked, log, after=(number + 1) * max(40 // divisor, 20))
        _damage(folder, DAMAGED_LINES // KILLED_COORDINATORS)
    whole = _intact(folder)
    begun = len(log.read_text().splitlines())
    found = answer(start({**asked, "full_disks": FULL_DISKS}))

    assert (found["left"], found["known"], found["full_disks"]) == (0, len(whole), FULL_DISKS)
    assert found["damaged"] >= DAMAGED_LINES
    # What was journalled, and not damaged afterwards, was not done again; all else was done once.
    again = log.read_text().splitlines()[begun:]
    assert whole.keys().isdisjoint(again)
    assert len(again) == len(set(again))

    contents = read_journal(folder)
    records = {record.key: record for record in contents.records}
    assert len(records) == len(contents.records)  # nothing twice
    assert records.keys() == {task.key for task in plan.iterate_tasks()}  # and nothing missing
    for key, status in whole.items():
        assert records[key].status == status
    wrong = [
        (record.status, record.message)
        for record in records.values()
        if record.status != _wanted(record.task.kernel, parse_problem("scale", record.task.problem))
    ]
    assert wrong == []
    assert all(record.message for record in records.values() if not record.ok)
    assert Counter(record.ok for record in records.values()) == {True: 2 * GOOD_PROBLEMS, False: of_tasks}


def _asked(folder: Path, log: Path, store: Path, counts: dict[int, int], refused: int) -> dict[str, Any]:
    """Good tasks and bad ones, mixed."""
    faults = [fault for fault, count in counts.items() for _ in range(count)]
    problems = [asdict(problem) for problem in scale_problems(GOOD_PROBLEMS, faults)]
    mixed = sorted(problems, key=lambda fields: (fields["n"] * 7919) % 101)
    return {
        "folder": str(folder),
        "kernels": [*KERNELS, REFUSED],
        "problems": [*mixed, *({"n": n, "dtype": "fp64"} for n in range(1, refused + 1))],
        "device": BUILT,
        "store": str(store),
        "workers": 2,
        "settings": {"log": str(log)},
    }


def _plan(asked: dict[str, Any]) -> SweepPlan:
    op = find_op("scale")
    kernels = [op.make_kernel(op.make_config(**fields), ARCH) for fields in asked["kernels"]]
    return scale_plan(kernels, [op.problem_type(**fields) for fields in asked["problems"]], BUILT, **asked["settings"])


def _wanted(kernel: str, problem: Any) -> str:
    if "-x666-" in kernel:
        return "build_failed"
    return FAULTS[problem.stride_x][1] if problem.stride_x in FAULTS else "ok"


def _killed_in_the_middle(asked: dict[str, Any], log: Path, after: int) -> None:
    """Begin the sweep, kill its coordinator, and see that nothing of it is left."""
    coordinator = start(asked)
    eventually(lambda: log.exists() and len(log.read_text().splitlines()) >= after, timeout_s=120)
    lists = Path(f"/proc/{coordinator.pid}/task").glob("*/children")
    children = [int(word) for each in lists for word in each.read_text().split()]
    assert children
    coordinator.kill()
    coordinator.communicate()
    eventually(lambda: not any(map(is_alive, children)))


def _damage(folder: Path, lines: int) -> None:
    """Change a letter in some lines of the journal, as a failing disk does."""
    left = lines
    for file in list_journal_files(folder):
        parts = file.read_bytes().splitlines(keepends=True)
        for place in range(0, len(parts), 3):
            if left and b"#" not in parts[place]:
                parts[place] = parts[place].replace(b"scale", b"#cale", 1)
                left -= 1
        file.write_bytes(b"".join(parts))
    assert left == 0


def _intact(folder: Path) -> dict[str, str]:
    return {record.key: record.status for record in read_journal(folder).records}
