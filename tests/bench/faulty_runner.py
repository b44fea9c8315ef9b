"""A runner whose tasks fail as their problems ask: workers of tests run it instead of measuring.

A problem of the op `scale` with `stride_x` of one of these numbers fails in this way; all others are good, at once.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from pathlib import Path

from tilewright.base.errors import DeviceError
from tilewright.bench.executor import WorkerConfig, WorkItem
from tilewright.bench.plan import parse_problem
from tilewright.bench.record import Record

KILLED, HANGS, WRONG, NO_MEMORY, FAULT, RAISES, ABORTS, SILENT, PRINTS, LEAVES_CHILD, ENDLESS = range(101, 112)


def prepare(device: str, worker_config: WorkerConfig) -> None:
    # The full disk of a test is that of the journal. A worker that starts meanwhile must be able to log.
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    if worker_config.settings.get("broken") == device:
        raise DeviceError(f"{device} is broken")


def compute_reference(work: WorkItem, worker_config: WorkerConfig) -> None:
    time.sleep(worker_config.settings.get("reference_s", 0))
    if worker_config.settings.get("no_reference"):
        raise MemoryError("no room for the reference")


def run(work: WorkItem, worker_config: WorkerConfig) -> Record:
    task = work.task
    problem = parse_problem(task.op, task.problem)
    if log := worker_config.settings.get("log"):  # which tasks were really begun, for tests of what is not done again
        with Path(log).open("a") as stream:
            stream.write(f"{task.key}\n")
    time.sleep(worker_config.settings.get("seconds", 0))
    kind = problem.stride_x
    if kind == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == HANGS:
        time.sleep(3600)
    elif kind == WRONG:
        return Record(task=task, status="wrong", message="y[0] is 1, should be 2")
    elif kind == NO_MEMORY:
        return Record(task=task, status="ok", kind="counters", counters={"bytes": len(bytearray(1 << 42))})
    elif kind == FAULT:
        raise DeviceError("the device stopped the kernel at 0x1234")
    elif kind == RAISES:
        raise TypeError("a mistake in a runner")
    elif kind == ABORTS:
        sys.stderr.write("terminate called after throwing an instance of 'std::bad_alloc'\n")
        sys.stderr.flush()
        os.abort()
    elif kind == SILENT:
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == PRINTS:
        print('{"done": "a kernel may print what it likes"}' * 10_000, flush=True)
    elif kind == ENDLESS:
        while True:
            print("a kernel that prints without end", flush=True)
    elif kind == LEAVES_CHILD and os.fork() == 0:
        time.sleep(3600)
    return Record(task=task, status="ok", kind="counters", counters={"n": problem.n})
