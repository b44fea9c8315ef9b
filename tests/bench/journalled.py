"""Records for tests of journals and tables."""

from __future__ import annotations

from typing import Any

import tilewright as tw
from tilewright.bench.record import Record, Task, TimeStats
from tilewright.ops.problem_values import dump_problem

PROBLEM = dump_problem(tw.gemm.Problem(m=256, n=512, k=1024, dtype="fp16", layout="rcr"))


def task(number: int = 0, **changes: Any) -> Task:
    values = {"op": "gemm", "arch": "gfx942", "kernel": f"kernel-{number}", "problem": PROBLEM, "device": "gpu:0"}
    return Task(**{**values, "versions": "tests 1", **changes})


def timed(number: int = 0, *, us: float = 10.0, started: float = 1.0, **changes: Any) -> Record:
    """A good record with times."""
    times = TimeStats(us=us, us_min=us / 2, us_max=us * 2, us_p10=us * 0.75, us_p90=us * 1.5, runs=20, warmups=3)
    return Record(
        task=task(number, **changes), status="ok", kind="time", times=times, share=0.25, worker="w", started=started
    )


def counted(number: int = 0, **counters: int) -> Record:
    """A good record of an emulated device."""
    own = task(number, device="emulated:gfx942")
    return Record(task=own, status="ok", kind="counters", counters=counters or {"waves": 4}, error_ulps=0.5)


def failed(number: int = 0, status: str = "crashed", *, message: str = "signal 11", started: float = 1.0) -> Record:
    return Record(task=task(number), status=status, message=message, started=started)
