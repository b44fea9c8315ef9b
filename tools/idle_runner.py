"""Runners for workers in tests and measurements of the engine: they do nothing, or only sleep."""

from __future__ import annotations

import time
from dataclasses import replace

from tilewright.bench.executor import WorkerConfig, WorkItem
from tilewright.bench.record import Record
from tilewright.building.compile_job import LIBRARY


def idle(work: WorkItem, worker_config: WorkerConfig) -> Record:
    """Return at once, or after `nap_s` seconds. The counter depends on the task, so that runs can be compared."""
    if nap_s := worker_config.settings.get("nap_s", 0.0):
        time.sleep(nap_s)
    return Record(task=work.task, status="ok", kind="counters", counters={"number": 1 + int(work.task.key[:4], 16)})


def opened(work: WorkItem, worker_config: WorkerConfig) -> Record:
    """Return the size of the kernel's library, which is hashed as before loading it."""
    assert work.place is not None
    library = work.place.load_artifact().verify_file(LIBRARY)
    return replace(idle(work, worker_config), counters={"bytes": library.stat().st_size})


def wrong(work: WorkItem, worker_config: WorkerConfig) -> Record:  # noqa: ARG001  (all runners take the same)
    """Return a wrong result; the worker process stays usable."""
    return Record(task=work.task, status="wrong", message="y[0] is 1, should be 2")


def broken(work: WorkItem, worker_config: WorkerConfig) -> Record:  # noqa: ARG001  (see above)
    """Raise an exception, as a mistake in a kernel's wrapper would."""
    raise ValueError(f"{work.task.kernel} is broken on purpose")
