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
from tilewright.bench.executor import REPLAY, Crew, Limits, Place, Work
from tilewright.bench.record import Record, Task, message_of

if TYPE_CHECKING:
    from tilewright.dispatch.remembered import Remembered
    from tilewright.ops.kernel import Kernel

HEARTBEAT_S = 1.0
# hipErrorOutOfMemory of hip_runtime_api.h.
HIP_OUT_OF_MEMORY = 2
# From linux/prctl.h.
PR_SET_PDEATHSIG = 1
# Exit code of a process that must be replaced.
SPENT = 75

Runner = Callable[[Work, Crew], Record]


def run_work(work: Work, crew: Crew) -> Record:
    """Measure a task. The kernel's library is loaded from the store, once in this process."""
    from tilewright.bench.measure import Settings, measure  # noqa: PLC0415  (a config may have another runner)

    task, settings = work.task, Settings(**crew.settings)
    device = _device(task.device, crew.replay)
    if device.kind == REPLAY:
        return measure(task, device, None, None, None, settings)
    artifact = None if work.place is None else _artifact(work.place)
    problem = _problem(task.op, task.problem)
    return measure(task, device, _kernel(task.kernel), artifact, problem, settings, _remembered())


def compute_reference(work: Work, crew: Crew) -> None:
    """Compute the problem's reference outputs on the host, outside the kernel's time limit."""
    from tilewright.bench.measure import Settings  # noqa: PLC0415  (see above)
    from tilewright.dispatch import verify  # noqa: PLC0415  (loads NumPy)

    task = work.task
    device = _device(task.device, crew.replay)
    if device.kind != REPLAY:
        problem, seed = _problem(task.op, task.problem), Settings(**crew.settings).seed
        verify.work_out(_kernel(task.kernel), problem, seed, device.arch, _remembered())


def prepare(device: str, crew: Crew) -> None:
    """Do the slow steps before the first measurement, outside a kernel's time limit."""
    from tilewright.bench.measure import Settings  # noqa: PLC0415  (see above)

    Settings(**crew.settings)
    opened = _device(device, crew.replay)
    if opened.kind != REPLAY:
        import tilewright.dispatch.verify  # noqa: F401, PLC0415  (loads NumPy)

        opened.hip()


@lru_cache(maxsize=4)
def _device(name: str, replay: str | None) -> Any:
    from tilewright.bench.replay import device_named  # noqa: PLC0415  (see above)

    return device_named(name, None if replay is None else Path(replay))


@cache
def _remembered() -> Remembered:
    """Shared by consecutive kernels on one problem, whose reference is computed once."""
    from tilewright.dispatch.remembered import Remembered  # noqa: PLC0415  (loads NumPy)

    return Remembered()


@lru_cache(maxsize=64)
def _artifact(place: Place) -> Any:
    return place.artifact()


@lru_cache(maxsize=64)
def _kernel(slug: str) -> Kernel:
    from tilewright.ops import parse_kernel  # noqa: PLC0415  (loads all ops: half a second)

    return parse_kernel(slug)


@lru_cache(maxsize=4096)
def _problem(op: str, text: str) -> Any:
    from tilewright.bench.plan import problem_of  # noqa: PLC0415  (see above)

    return problem_of(op, text)


class _Line:
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
                _end_group()


def _end_group() -> None:
    """Kill this process and all its children. It leads its own process group."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _watch_stdin(busy: threading.Event) -> None:
    """Wait for the end of stdin, which kills a busy process at once. An idle process reads the end itself."""
    poll = select.poll()
    poll.register(sys.stdin.fileno(), 0)  # only the hang-up, which poll always reports
    poll.poll()
    if busy.is_set():
        _end_group()


def _beat(line: _Line, busy: threading.Event) -> None:
    while True:
        busy.wait()
        time.sleep(HEARTBEAT_S)
        if busy.is_set():
            line.send(alive=time.time())


def _die_with_parent() -> None:
    """Let the kernel of the system kill this process when its parent dies, even while a GPU kernel hangs."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise DeviceError(f"prctl(PR_SET_PDEATHSIG) failed: {os.strerror(ctypes.get_errno())}")


class _Steps(NamedTuple):
    """The functions of a runner's module."""

    run: Runner
    prepare: Callable[[str, Crew], None] | None
    compute_reference: Callable[[Work, Crew], None] | None


def _found(name: str) -> _Steps:
    module_name, _, function = name.partition(":")
    if module_name == "tilewright.bench.worker":  # this module runs as __main__
        return _Steps(run_work, prepare, compute_reference)
    module = importlib.import_module(module_name)
    runner = getattr(module, function, None)
    if runner is None:
        raise InvalidValueError(f"{module_name} has no function {function!r} to measure with")
    return _Steps(runner, getattr(module, "prepare", None), getattr(module, "compute_reference", None))


def _attempt(run: Runner, work: Work, crew: Crew) -> tuple[Record, bool]:
    """The record of a task, and whether this process can still be trusted."""
    task = work.task
    try:
        record = run(work, crew)
        return record, record.status not in ("fault", "out_of_memory")
    except MemoryError as error:
        return _failed(task, "out_of_memory", str(error) or "the process ran out of memory"), False
    except UnsupportedError as error:
        return _failed(task, "unsupported", str(error)), True
    except CorruptError as error:
        return _failed(task, "build_failed", str(error)), True
    except DeviceError as error:
        short = getattr(error, "status", None) == HIP_OUT_OF_MEMORY
        return _failed(task, "out_of_memory" if short else "fault", str(error)), False
    except Exception as error:  # any other error fails this task only, and is recorded
        place = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
        return _failed(task, "crashed", told), False


def _failed(task: Task, status: str, message: str) -> Record:
    return Record(task=task, status=status, message=message_of(message))


def _signed(record: Record, started: float, took_s: float) -> Record:
    """Add worker and time to a record, unless it has them: a replayed record keeps the time of its measurement."""
    return replace(
        record,
        worker=record.worker or f"{socket.gethostname()}:{os.getpid()}",
        started=record.started or started,
        took_s=record.took_s or took_s,
    )


def work_of(values: Mapping[str, Any]) -> Work:
    """Work from plain values: the inverse of `dataclasses.asdict`."""
    place = values["place"]
    return Work(Task(**values["task"]), None if place is None else Place(**place))


def crew_of(values: Mapping[str, Any]) -> Crew:
    """A worker config from plain values: the inverse of `dataclasses.asdict`."""
    return Crew(**{**values, "limits": Limits(**values["limits"])})


def main(device: str, descriptor: int) -> int:
    """Work until stdin ends."""
    _die_with_parent()
    os.dup2(2, 1)
    line = _Line(descriptor)
    busy = threading.Event()
    asked = json.loads(sys.stdin.readline())
    sys.path[:] = asked["path"]
    crew = crew_of(asked["crew"])
    if crew.limits.memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (crew.limits.memory_bytes, crew.limits.memory_bytes))
    threading.Thread(target=_watch_stdin, args=(busy,), daemon=True).start()
    threading.Thread(target=_beat, args=(line, busy), daemon=True).start()
    steps = _found(crew.runner)
    if steps.prepare is not None:
        steps.prepare(device, crew)
    line.send(ready=os.getpid())

    def run(work: Work, crew: Crew) -> Record:
        if steps.compute_reference is not None:
            steps.compute_reference(work, crew)
        line.send(begun=work.task.key)
        return steps.run(work, crew)

    while text := sys.stdin.readline():
        work = work_of(json.loads(text))
        busy.set()
        started, begun = time.time(), time.monotonic()
        record, sound = _attempt(run, work, crew)
        record = _signed(record, started, time.monotonic() - begun)
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
