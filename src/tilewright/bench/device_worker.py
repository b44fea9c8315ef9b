"""A worker process seen from the coordinator: work in, a record out, whatever becomes of the process."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import Any

from tilewright.base.errors import DeviceError, InvalidValueError
from tilewright.bench.executor import Crew, Work
from tilewright.bench.record import Record, Task
from tilewright.bench.worker import LONGEST_MESSAGE, SPENT

# How much of what a worker printed is kept to tell why it died.
TAIL_BYTES = 4096
# A process that was told to end, or killed, is gone within this time. One that hangs in a driver may never be.
END_S, KILL_S = 5.0, 30.0
# A device may need a moment after a fault: so often, and so far apart, is a worker started before it is given up.
STARTS, PAUSE_S = 3, 2.0
_TASK_FIELDS = tuple(field.name for field in fields(Task))
# What libraries print when there is no memory: C++, Python, the C library.
_NO_MEMORY = ("std::bad_alloc", "MemoryError", "Cannot allocate memory", "out of memory")


@cache
def _starter(owner: int) -> ThreadPoolExecutor:  # noqa: ARG001  (a forked process has no threads, and gets its own)
    """The thread that starts all workers. Linux ends a worker with the thread that started it: this one never ends."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="tilewright-start")


@dataclass(frozen=True)
class _Ended:
    """How a process ended while something was expected from it."""

    status: str
    message: str
    begun: bool = True  # whether it had begun with the task


class DeviceWorker:
    """A device with a process that measures on it. The process is started when it is needed, and again when it died.

    One thread at a time measures. `kill` may be called from any other.
    """

    def __init__(self, device: str, crew: Crew) -> None:
        self.device = device
        self.crew = crew
        self.starts = 0
        self.kernel: str | None = None  # the last one
        self._kernels: set[str] = set()
        self._process: _Process | None = None
        self._closed = False
        self._lost = ""  # why there can be no process any more
        self._guard = threading.Lock()

    def measure(self, work: Work) -> Record:
        """What came of a task. What the kernel does to the process is a status of the record, never an exception.

        Raises `DeviceError` when no process can be started on the device, or this worker was closed: nothing was then
        measured.
        """
        # GPUs that are alike share work: it is measured on this one.
        if work.task.device != self.device:
            work = replace(work, task=replace(work.task, device=self.device))
        started, begun = time.time(), time.monotonic()
        process = self._ready(work.task.kernel)
        found = process.ask(work)
        if not isinstance(found, Record) and not found.begun and not self._closed:
            # It died before it began with the task, which can have no part in it.
            self._drop(process)
            process = self._ready(work.task.kernel)
            found = process.ask(work)
        if isinstance(found, Record):
            self.kernel = work.task.kernel
            if not process.sound:
                self._drop(process)
            return found
        self._drop(process)
        if self._closed:
            raise DeviceError(f"{self.device}: the worker was closed while it measured {work.task.kernel}")
        name = f"{os.uname().nodename}:{process.pid}"
        took = time.monotonic() - begun
        return Record(
            task=work.task, status=found.status, message=found.message, worker=name, started=started, took_s=took
        )

    def close(self) -> None:
        """End the process in order. Whoever measures at this moment gets a `DeviceError`."""
        self._closed = True
        with self._guard:
            process, self._process = self._process, None
        if process is not None:
            process.end()

    def kill(self) -> None:
        """End the process at once, from any thread; the thread that measures notices, and cleans up."""
        self._closed = True
        with self._guard:
            if self._process is not None:
                self._process.kill_group()

    def _ready(self, kernel: str) -> _Process:
        """A living process with room for a kernel."""
        process = self._process
        if process is not None and kernel not in self._kernels and len(self._kernels) >= self.crew.limits.kernels:
            self._drop(process, in_order=True)
            process = None
        if process is not None and not process.alive():  # it died while nobody asked: nothing was lost
            self._drop(process)
            process = None
        if process is None:
            process = self._start()
        self._kernels.add(kernel)
        return process

    def _start(self) -> _Process:
        last = ""
        for left in reversed(range(STARTS)):
            if self._closed or self._lost:
                raise DeviceError(f"{self.device}: {self._lost or 'the worker is closed'}")
            process = _starter(os.getpid()).submit(_Process, self.device, self.crew).result()
            with self._guard:
                self._process = process
                if self._closed:  # meanwhile, and there was nothing to kill
                    process.kill_group()
            self.starts += 1
            failed = process.wait_ready()
            if failed is None:
                return process
            last = failed.message
            self._drop(process)
            if left and not self._closed:
                time.sleep(PAUSE_S)
        raise DeviceError(f"{self.device}: no worker could be started, {STARTS} times. The last one: {last}")

    def _drop(self, process: _Process, *, in_order: bool = False) -> None:
        with self._guard:
            self._process = None
        self._kernels.clear()
        try:
            process.end() if in_order else process.kill()
        except DeviceError as error:  # what was measured counts; the next task is told
            self._lost = str(error)


def _plain(work: Work) -> dict[str, Any]:
    """As `asdict` has it, which takes as long as all else that is done for a task."""
    task = {name: getattr(work.task, name) for name in _TASK_FIELDS}
    return {"task": task, "place": None if work.place is None else asdict(work.place)}


def _readable(descriptors: Sequence[int], seconds: float) -> set[int]:
    """Those that can be read, or are at their end, within a time."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(math.ceil(seconds * 1000))}


class _Process:
    """One worker process, the leader of its own group, and the pipes to it."""

    def __init__(self, device: str, crew: Crew) -> None:
        self.limits = crew.limits
        self.sound = True
        self._guard = threading.Lock()  # of its number, which is another process's once it was waited for
        results, theirs = os.pipe()
        command = [sys.executable, "-m", "tilewright.bench.worker", device, str(theirs)]
        try:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(theirs,),
                start_new_session=True,
            )
            self._gone = os.pidfd_open(self._popen.pid)
        except BaseException:
            os.close(results)
            raise
        finally:
            os.close(theirs)
        self.pid = self._popen.pid
        self._results = results
        assert self._popen.stdin is not None
        assert self._popen.stderr is not None
        self._stderr = self._popen.stderr.fileno()
        self._begun = b""  # the beginning of a line
        self._has_begun = False  # with the last task
        self._tail = b""
        self._heard = time.monotonic()
        self._open = True
        self._send({"path": sys.path, "crew": asdict(crew)})

    def alive(self) -> bool:
        return not _readable([self._gone], 0)

    def wait_ready(self) -> _Ended | None:
        """Wait until it can work. How it ended if it cannot."""
        found = self._answer(("ready",), self.limits.start_s, self.limits.start_s)
        return found if isinstance(found, _Ended) else None

    def ask(self, work: Work) -> Record | _Ended:
        """The record of a task, or how the process ended over it."""
        self._tail, self._has_begun = b"", False
        self._send(_plain(work))
        found = self._answer(
            ("begun", "done"), self.limits.reference_s, self.limits.silence_s, " for its problem's reference"
        )
        if isinstance(found, dict) and "begun" in found:
            found = self._answer(("done",), self.limits.seconds, self.limits.silence_s)
        if isinstance(found, _Ended):
            return found
        self.sound = bool(found.get("sound"))
        try:
            record = Record.of_json(found["done"])
        except (InvalidValueError, KeyError, TypeError) as error:
            return _Ended("crashed", f"the worker answered with what is no record: {error}")
        if record.key != work.task.key:
            return _Ended("crashed", f"the worker answered for another task, {record.task.kernel}")
        return record

    def _send(self, values: dict[str, Any]) -> None:
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died: reading from it tells how
            self._popen.stdin.write((json.dumps(values, separators=(",", ":")) + "\n").encode())
            self._popen.stdin.flush()

    def _answer(
        self, wanted: Sequence[str], limit_s: float, silence_s: float, what: str = ""
    ) -> dict[str, Any] | _Ended:
        """Read until a line has a word of what is wanted, the process is gone, or time is up. It is `what` for."""
        begun = self._heard = time.monotonic()
        open_pipes = {self._results: self._keep_results, self._stderr: self._keep_tail}
        found = self._line_with(wanted)  # it may have been read with the line before
        while found is None:
            left = min(begun + limit_s, self._heard + silence_s) - time.monotonic()
            ready = _readable([*open_pipes, self._gone], max(left, 0))
            for descriptor in ready & open_pipes.keys():
                if not open_pipes[descriptor]():
                    del open_pipes[descriptor]
            found = self._line_with(wanted)
            if found is not None:
                break
            if self._gone in ready and not ready & open_pipes.keys():  # all that it left in the pipes was read
                return self._how_it_ended()
            if left <= 0:  # also of one that prints without end
                return self._too_long(begun, limit_s, silence_s, what)
        return found

    def _line_with(self, wanted: Sequence[str]) -> dict[str, Any] | _Ended | None:
        """The next whole line with a word of these. Other lines are signs of life; half a line is of one that died."""
        while b"\n" in self._begun:
            line, _, self._begun = self._begun.partition(b"\n")
            try:
                values = json.loads(line)
            except ValueError as error:
                return _Ended("crashed", f"the worker sent what is no JSON: {error}")
            self._has_begun |= "begun" in values
            if any(word in values for word in wanted):
                return dict(values)
        return None

    def _keep_results(self) -> bool:
        """Read what it sent. False at the end of the pipe."""
        data = os.read(self._results, 1 << 16)
        self._heard = time.monotonic()
        self._begun += data
        return bool(data)

    def _keep_tail(self) -> bool:
        """Keep the end of what it printed. False at the end of the pipe."""
        data = os.read(self._stderr, 1 << 16)
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        return bool(data)

    def _too_long(self, begun: float, limit_s: float, silence_s: float, what: str) -> _Ended:
        self.kill_group()
        took = time.monotonic() - begun
        if took >= limit_s:
            return _Ended("timeout", f"killed after {took:.1f} s; {limit_s:g} s are allowed{what}")
        quiet = time.monotonic() - self._heard
        return _Ended("timeout", f"killed after {quiet:.1f} s without a sign of life; {silence_s:g} s are allowed")

    def _how_it_ended(self) -> _Ended:
        self.kill_group()  # before it is waited for: until then its number is not given to another process
        code = self._waited_for()
        said = self._tail.decode(errors="replace").strip()
        if code < 0:
            how = f"the process died of signal {-code} ({signal.Signals(-code).name})"
        else:
            how = f"the process ended with code {code}"
        if code == SPENT:
            how = "the process ended before it answered"
        status = "out_of_memory" if any(word in said for word in _NO_MEMORY) else "crashed"
        return _Ended(status, (f"{how}: {said}" if said else how)[:LONGEST_MESSAGE], self._has_begun)

    def kill_group(self) -> None:
        """Kill it and everything it started. Any thread may call it."""
        with self._guard:
            if self._popen.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)

    def _waited_for(self) -> int:
        """The exit code of a process that is gone."""
        with self._guard:
            return self._popen.wait()

    def end(self) -> None:
        """Let it end by itself, and kill it if it does not."""
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()
        # It is not waited for before its group is killed: its number must stay its own until then.
        _readable([self._gone], END_S)
        self.kill()

    def kill(self) -> None:
        """Kill it, wait until it is gone, and close the pipes."""
        if not self._open:
            return
        self._open = False
        self.kill_group()
        try:
            if not _readable([self._gone], KILL_S):
                raise DeviceError(
                    f"the process {self.pid} cannot be killed, {KILL_S:g} s after the signal: it hangs in the driver "
                    "of its device. The device is given up; look at the system's log"
                )
            self._waited_for()
        finally:
            for stream in (self._popen.stdin, self._popen.stderr):
                assert stream is not None
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
            os.close(self._results)
            os.close(self._gone)
