"""What the tests of sweeps share: plans of the small op `scale`, whose tasks fail as their problems ask.

Run as a program it is the coordinator of a sweep (its request is JSON in the first argument), which tests can kill.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.base import events
from tilewright.base.errors import JournalError
from tilewright.bench import sweep as sweeps
from tilewright.bench.executor import Limits, WorkerConfig
from tilewright.bench.local import LocalExecutor
from tilewright.bench.plan import Shard, SweepPlan
from tilewright.bench.quarantine import Quarantine
from tilewright.bench.sweep import SweepOptions, SweepSummary, run_plan, stop_on_signals
from tilewright.building.store.local import Store
from tilewright.building.store.tiers import Tiers
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel

HERE = Path(__file__).resolve()
PLUGIN = HERE.parents[1] / "plugin"
ARCH = "gfx942"
# Nothing is built for a replayed device, and the runner of these tests opens none.
NO_BUILD = "replay:tests"
BUILT = f"emulated:{ARCH}"
# A good task takes milliseconds, and more than a second on a machine that others use as well.
QUICK = Limits(seconds=4.0)
USUAL = 1  # a stride that no fault has


def scale_kernels(count: int, **fields: Any) -> list[Kernel]:
    op = find_op("scale")
    configs = ({"dtype": "fp32", "threads": 64, "factor": 1 + number, **fields} for number in range(count))
    return [op.make_kernel(op.make_config(**config), ARCH) for config in configs]


def scale_problems(count: int, faults: Iterable[int] = (), first: int = 1) -> list[Any]:
    """Good problems, and one for each fault."""
    problem = find_op("scale").problem_type
    good = [problem(n, stride_x=USUAL) for n in range(first, first + count)]
    return good + [problem(100_000 + place, stride_x=fault) for place, fault in enumerate(faults)]


def scale_plan(
    kernels: Sequence[Kernel], problems: Sequence[Any], device: str = NO_BUILD, **settings: Any
) -> SweepPlan:
    return SweepPlan(problems, kernels, {device: ARCH}, settings, "tests")


def crew_of(plan: SweepPlan, limits: Limits = QUICK) -> WorkerConfig:
    return WorkerConfig(plan.settings, limits, runner="faulty_runner:run")


def swept(plan: SweepPlan, folder: Path, *, workers: int = 1, limits: Limits = QUICK, **how: Any) -> SweepSummary:
    """A whole sweep in this process."""
    asked = SweepOptions(**{"fsync": "never", **how})
    kept_away = Quarantine(asked.quarantine)
    seats = [(name, arch) for name, arch in plan.devices.items() for _ in range(workers)]
    executor = LocalExecutor(seats, crew_of(plan, limits), refuse=kept_away.reject_task)
    return run_plan(plan, folder, executor, asked, quarantine=kept_away)


def eventually(true: Callable[[], Any], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process runs: one that ended and was not waited for does not."""
    try:
        state = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def start(request: Mapping[str, Any]) -> subprocess.Popen[str]:
    """A coordinator in a process of its own."""
    path = os.pathsep.join([str(PLUGIN), str(HERE.parent)])
    return subprocess.Popen(
        [sys.executable, str(HERE), json.dumps(request)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def answer(process: subprocess.Popen[str], code: int = 0, timeout_s: float = 300) -> dict[str, Any]:
    """What a coordinator said at its end."""
    said, complaints = process.communicate(timeout=timeout_s)
    assert process.returncode == code, (process.returncode, complaints[-2000:])
    return dict(json.loads(said))


class FullDisks:
    """A disk without room for the next record, so many times: each is over when it was noticed.

    A limit on the size of files stands for the disk: writing fails in the middle of a line as on a full one.
    """

    def __init__(self, folder: Path, times: int) -> None:
        self._folder, self._left = folder, times
        self.noticed = 0

    def __call__(self, event: events.Event) -> None:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        if isinstance(event, events.Notice) and "could be appended" in event.message:
            self.noticed += 1
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        elif isinstance(event, events.Advanced) and event.task == sweeps.TASK and self._left:
            self._left -= 1
            (own,) = self._folder.glob(f"*-{os.getpid()}.jsonl")
            resource.setrlimit(resource.RLIMIT_FSIZE, (own.stat().st_size + 100, hard))


def _main(request: dict[str, Any]) -> None:
    kernels = [
        find_op("scale").make_kernel(find_op("scale").make_config(**fields), ARCH) for fields in request["kernels"]
    ]
    problems = [find_op("scale").problem_type(**fields) for fields in request["problems"]]
    folder = Path(request["folder"])
    plan = scale_plan(kernels, problems, request["device"], **request.get("settings", {}))
    how = SweepOptions(shard=Shard.parse_text(request.get("shard", "1/1")), quarantine=request.get("quarantine", 0))
    sweeps.DISK_PAUSE_S = 0.05
    tiers = Tiers(Store(Path(request["store"]))) if "store" in request else None
    seats = [(request["device"], ARCH)] * request.get("workers", 1)
    executor = LocalExecutor(seats, crew_of(plan), jobs=2, tiers=tiers)
    disks = FullDisks(folder, request.get("full_disks", 0))
    with events.add_listener(disks), stop_on_signals(executor) as stopping:
        try:
            summary = run_plan(plan, folder, executor, how, stopping=stopping)
        except JournalError as error:
            print(error, file=sys.stderr)
            sys.exit(2)
    found = {"statuses": dict(summary.statuses), "known": summary.known, "left": summary.left}
    found |= {"damaged": summary.damaged, "full_disks": disks.noticed, "starts": executor.starts}
    print(json.dumps({**found, "threads": threading.active_count()}))
    sys.exit(130 if summary.stopped else 0)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
