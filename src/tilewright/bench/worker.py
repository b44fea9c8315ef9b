"""The process that measures on one device: `python -m tilewright.bench.worker DEVICE DESCRIPTOR`.

Work arrives on stdin, one line of JSON each; the first line holds the worker config. Messages go to the descriptor,
one per line: `ready`, `begun`, `alive` once a second while it works, `done` with a record. Kernels may print: their
stdout becomes stderr. When stdin ends, the coordinator is gone or needs no more, and the process ends with all its
children.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.base.errors import CorruptError, DeviceError, InvalidValueError, TilewrightError, UnsupportedError
from tilewright.bench.executor import REPLAY, ArtifactRef, Limits, WorkerConfig, WorkItem
from tilewright.bench.record import Record, Task, format_message

if TYPE_CHECKING:
    from tilewright.dispatch.reference_cache import ReferenceCache
    from tilewright.ops.kernel import Kernel

HEARTBEAT_S = 1.0
# hipErrorOutOfMemory of hip_runtime_api.h.
HIP_OUT_OF_MEMORY = 2
# From linux/prctl.h.
PR_SET_PDEATHSIG = 1
# Exit code of a process that must be replaced.
SPENT = 75

Runner = Callable[[WorkItem, WorkerConfig], Record]


def run_work(work: WorkItem, worker_config: WorkerConfig) -> Record:
    """Measure a task. The kernel's library is loaded from the store, once in this process."""
    from tilewright.bench.measure import TimingSettings, measure_task  # noqa: PLC0415  (a config may have another runner)

    task, settings = work.task, TimingSettings(**worker_config.settings)
    device = _open_device(task.device, worker_config.replay)
    if device.kind == REPLAY:
        return measure_task(task, device, None, None, None, settings)
    artifact = None if work.place is None else _load_artifact(work.place)
    problem = _parse_problem(task.op, task.problem)
    return measure_task(task, device, _parse_kernel(task.kernel), artifact, problem, settings, _get_reference_cache())


def compute_reference(work: WorkItem, worker_config: WorkerConfig) -> None:
    """Compute the problem's reference outputs on the host, outside the kernel's time limit."""
    from tilewright.bench.measure import TimingSettings  # noqa: PLC0415  (see above)
    from tilewright.dispatch.verify import compute_reference as compute  # noqa: PLC0415  (loads NumPy)

    task = work.task
    device = _open_device(task.device, worker_config.replay)
    if device.kind != REPLAY:
        problem, seed = _parse_problem(task.op, task.problem), TimingSettings(**worker_config.settings).seed
        compute(_parse_kernel(task.kernel), problem, seed, device.arch, _get_reference_cache())


def prepare(device: str, worker_config: WorkerConfig) -> None:
    """Do the slow steps before the first measurement, outside a kernel's time limit."""
    from tilewright.bench.measure import TimingSettings  # noqa: PLC0415  (see above)

    TimingSettings(**worker_config.settings)
    opened = _open_device(device, worker_config.replay)
    if opened.kind != REPLAY:
        import tilewright.dispatch.verify  # noqa: F401, PLC0415  (loads NumPy)

        opened.load_hip()


@lru_cache(maxsize=4)
def _open_device(name: str, replay: str | None) -> Any:
    from tilewright.bench.replay import open_device  # noqa: PLC0415  (see above)

    return open_device(name, None if replay is None else Path(replay))


@cache
def _get_reference_cache() -> ReferenceCache:
    """Shared by consecutive kernels on one problem, whose reference is computed once."""
    from tilewright.dispatch.reference_cache import ReferenceCache  # noqa: PLC0415  (loads NumPy)

    return ReferenceCache()


@lru_cache(maxsize=64)
def _load_artifact(place: ArtifactRef) -> Any:
    return place.load_artifact()


@lru_cache(maxsize=64)
def _parse_kernel(slug: str) -> Kernel:
    from tilewright.ops import parse_kernel  # noqa: PLC0415  (loads all ops: half a second)

    return parse_kernel(slug)


@lru_cache(maxsize=4096)
def _parse_problem(op: str, text: str) -> Any:
    from tilewright.bench.plan import parse_problem  # noqa: PLC0415  (see above)

    return parse_problem(op, text)


class _ResultPipe:
    """The pipe to the coordinator, shared by threads. If it breaks, the process and its children end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._guard = threading.Lock()

    def send(self, **said: Any) -> None:
        data = (json.dumps(said, separators=(",", ":")) + "\n").encode()
        with self._guard:
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError:
                _stop_group()


def _stop_group() -> None:
    """Kill this process and all its children. It leads its own process group."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _wait_for_stdin_end(busy: threading.Event) -> None:
    """Wait for the end of stdin, which kills a busy process at once. An idle process reads the end itself."""
    poll = select.poll()
    poll.register(sys.stdin.fileno(), 0)  # only the hang-up, which poll always reports
    poll.poll()
    if busy.is_set():
        _stop_group()


def _send_heartbeats(line: _ResultPipe, busy: threading.Event) -> None:
    while True:
        busy.wait()
        time.sleep(HEARTBEAT_S)
        if busy.is_set():
            line.send(alive=time.time())


def set_parent_death_signal() -> None:
    """Let the kernel of the system kill this process when its parent dies, even while a GPU kernel hangs."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise DeviceError(f"prctl(PR_SET_PDEATHSIG) failed: {os.strerror(ctypes.get_errno())}")


class _RunnerFunctions(NamedTuple):
    """The functions of a runner's module."""

    run: Runner
    prepare: Callable[[str, WorkerConfig], None] | None
    compute_reference: Callable[[WorkItem, WorkerConfig], None] | None


def _load_runner(name: str) -> _RunnerFunctions:
    module_name, _, function = name.partition(":")
    if module_name == "tilewright.bench.worker":  # this module runs as __main__
        return _RunnerFunctions(run_work, prepare, compute_reference)
    module = importlib.import_module(module_name)
    runner = getattr(module, function, None)
    if runner is None:
        raise InvalidValueError(f"{module_name} has no function {function!r} to measure with")
    return _RunnerFunctions(runner, getattr(module, "prepare", None), getattr(module, "compute_reference", None))


def _try_task(run: Runner, work: WorkItem, worker_config: WorkerConfig) -> tuple[Record, bool]:
    """The record of a task, and whether this process can still be trusted."""
    task = work.task
    try:
        record = run(work, worker_config)
        return record, record.status not in ("fault", "out_of_memory")
    except MemoryError as error:
        return _make_failure(task, "out_of_memory", str(error) or "the process ran out of memory"), False
    except UnsupportedError as error:
        return _make_failure(task, "unsupported", str(error)), True
    except CorruptError as error:
        return _make_failure(task, "build_failed", str(error)), True
    except DeviceError as error:
        short = getattr(error, "status", None) == HIP_OUT_OF_MEMORY
        return _make_failure(task, "out_of_memory" if short else "fault", str(error)), False
    except Exception as error:  # any other error fails this task only, and is recorded
        place = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
        return _make_failure(task, "crashed", told), False


def _make_failure(task: Task, status: str, message: str) -> Record:
    return Record(task=task, status=status, message=format_message(message))


def _fill_origin(record: Record, started: float, took_s: float) -> Record:
    """Add worker and time to a record, unless it has them: a replayed record keeps the time of its measurement."""
    return replace(
        record,
        worker=record.worker or f"{socket.gethostname()}:{os.getpid()}",
        started=record.started or started,
        took_s=record.took_s or took_s,
    )


def parse_work(values: Mapping[str, Any]) -> WorkItem:
    """Work from plain values: the inverse of `dataclasses.asdict`."""
    place = values["place"]
    return WorkItem(Task(**values["task"]), None if place is None else ArtifactRef(**place))


def parse_worker_config(values: Mapping[str, Any]) -> WorkerConfig:
    """A worker config from plain values: the inverse of `dataclasses.asdict`."""
    return WorkerConfig(**{**values, "limits": Limits(**values["limits"])})


def main(device: str, descriptor: int) -> int:
    """Work until stdin ends."""
    set_parent_death_signal()
    os.dup2(2, 1)
    line = _ResultPipe(descriptor)
    busy = threading.Event()
    asked = json.loads(sys.stdin.readline())
    sys.path[:] = asked["path"]
    worker_config = parse_worker_config(asked["worker_config"])
    if worker_config.limits.memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (worker_config.limits.memory_bytes, worker_config.limits.memory_bytes))
    threading.Thread(target=_wait_for_stdin_end, args=(busy,), daemon=True).start()
    threading.Thread(target=_send_heartbeats, args=(line, busy), daemon=True).start()
    steps = _load_runner(worker_config.runner)
    if steps.prepare is not None:
        steps.prepare(device, worker_config)
    line.send(ready=os.getpid())

    def run(work: WorkItem, worker_config: WorkerConfig) -> Record:
        if steps.compute_reference is not None:
            steps.compute_reference(work, worker_config)
        line.send(begun=work.task.key)
        return steps.run(work, worker_config)

    while text := sys.stdin.readline():
        work = parse_work(json.loads(text))
        busy.set()
        started, begun = time.time(), time.monotonic()
        record, sound = _try_task(run, work, worker_config)
        record = _fill_origin(record, started, time.monotonic() - begun)
        busy.clear()
        line.send(done=record.to_json(), sound=sound)
        if not sound:
            return SPENT
    return 0


if __name__ == "__main__":
    try:
        code = main(sys.argv[1], int(sys.argv[2]))
    except TilewrightError as error:  # it cannot work here; the coordinator quotes the output
        sys.stderr.write(f"{error}\n")
        code = 1
    sys.stderr.flush()
    # Threads that hang in a kernel must not keep the process alive.
    os._exit(code)
