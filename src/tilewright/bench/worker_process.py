"""One worker process and the pipes to it: start it, send it work, and end it with all its children."""

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
from dataclasses import asdict, dataclass, fields
from typing import Any

from tilewright.base.errors import DeviceError, InvalidValueError
from tilewright.bench.executor import WorkerConfig, WorkItem
from tilewright.bench.field_checks import FLAG, NUMBER, TEXT, check_object, format_quoted
from tilewright.bench.record import Record, Task
from tilewright.bench.worker import SPENT

# A record has about a thousand bytes, including its message and all counters. This bounds the length of one line.
LONGEST_LINE = 1 << 20


@dataclass(frozen=True)
class Ready:
    """The process can work."""


@dataclass(frozen=True)
class Begun:
    """The reference is computed; the kernel's time limit starts now."""

    key: str


@dataclass(frozen=True)
class Alive:
    """A heartbeat."""


@dataclass(frozen=True)
class Done:
    """The record of a task, and whether the process can be trusted with the next."""

    record: Record
    sound: bool


@dataclass(frozen=True)
class InvalidLine:
    """A line that no worker writes."""

    why: str


Message = Ready | Begun | Alive | Done | InvalidLine


def read_message(line: bytes) -> Message:
    """The message of a line without its line end. Never raises, whatever the line holds."""
    if len(line) > LONGEST_LINE:
        return reject_long_line(len(line))
    try:
        value = json.loads(line.decode())
    except RecursionError:
        return InvalidLine(f"JSON that is nested too deeply: {format_quoted(line)}")
    except ValueError as error:  # not UTF-8, not JSON, or a number with more digits than Python reads
        return InvalidLine(f"invalid JSON ({error}): {format_quoted(line)}")
    try:
        return _parse_message(value)
    except InvalidValueError as error:
        return InvalidLine(f"an invalid message: {error}")


def reject_long_line(size: int) -> InvalidLine:
    """A line, or the beginning of one, that is longer than any message."""
    return InvalidLine(f"a line of {size:,} bytes; the limit is {LONGEST_LINE:,}")


def _parse_message(value: object) -> Message:
    if not isinstance(value, dict):
        raise InvalidValueError(f"it is {format_quoted(value)}")
    if "done" in value:
        fields = check_object("an answer", value, ("done", "sound"))
        if not FLAG.holds(fields["sound"]):
            raise InvalidValueError(f"sound is {format_quoted(fields['sound'])}, must be {FLAG.wanted}")
        return Done(Record.from_json(fields["done"]), fields["sound"])
    if value.keys() == {"ready"} and NUMBER.holds(value["ready"]):
        return Ready()
    if value.keys() == {"begun"} and TEXT.holds(value["begun"]):
        return Begun(value["begun"])
    if value.keys() == {"alive"} and NUMBER.holds(value["alive"]):
        return Alive()
    raise InvalidValueError(f"it is {format_quoted(value)}")


# How much of a worker's output is kept to explain its death.
TAIL_BYTES = 4096
# How much is read from a pipe at once: the capacity of a pipe in Linux.
PIECE_BYTES = 1 << 16
# Time in which a process that is ending or killed is gone. One that hangs in a driver may never be.
END_S, KILL_S = 5.0, 30.0
_TASK_FIELDS = tuple(field.name for field in fields(Task))
# Messages of libraries without memory: C++, Python, the C library.
_NO_MEMORY = ("std::bad_alloc", "MemoryError", "Cannot allocate memory", "out of memory")


@dataclass(frozen=True)
class WorkerExit:
    """How a process ended while an answer was expected."""

    status: str
    message: str
    blames_task: bool = True  # False if the task had not begun, or the cause is an earlier one


def _to_plain(work: WorkItem) -> dict[str, Any]:
    """As `asdict`, which would take as long as everything else that is done for a task."""
    task = {name: getattr(work.task, name) for name in _TASK_FIELDS}
    return {"task": task, "place": None if work.place is None else asdict(work.place)}


def _poll_readable(descriptors: Sequence[int], seconds: float) -> set[int]:
    """Those that can be read, or are at their end, within a time."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(math.ceil(seconds * 1000))}


def _describe_message(message: Message) -> str:
    """A worker's message, in words after "sent"."""
    if isinstance(message, InvalidLine):
        return message.why
    if isinstance(message, Done):
        return f"a record of another task, {message.record.task.kernel} on {message.record.task.problem}"
    return f"the message `{type(message).__name__.lower()}`"


def _get_signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return "a real-time signal"


class WorkerProcess:
    """One worker process, the leader of its own group, and the pipes to it."""

    def __init__(self, device: str, worker_config: WorkerConfig) -> None:
        self.limits = worker_config.limits
        self.sound = True
        self._guard = threading.Lock()  # of its pid, which may be reused after it was waited for
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
        self._key = ""  # of the last task
        self._has_begun = False  # with it
        self._tail = b""
        self._heard = time.monotonic()
        self._open = True
        self._send({"path": sys.path, "worker_config": asdict(worker_config)})

    def is_alive(self) -> bool:
        return not _poll_readable([self._gone], 0)

    def wait_ready(self) -> WorkerExit | None:
        """Wait until it can work. Returns how it ended if it cannot."""
        found = self._wait_for_answer((Ready,), self.limits.start_s, self.limits.start_s)
        return found if isinstance(found, WorkerExit) else None

    def read_unexpected(self) -> str:
        """The unexpected output since its last answer, in words; empty if there were only heartbeats."""
        for _ in range(LONGEST_LINE // PIECE_BYTES):
            more = bool(_poll_readable([self._results], 0)) and self._read_results()
            message = self._read_next_message()
            if message is not None:
                return _describe_message(message)
            if not more:
                return f"{len(self._begun):,} bytes without the end of a line" if self._begun else ""
        return f"more than {LONGEST_LINE:,} bytes of heartbeats"

    def ask(self, work: WorkItem) -> Record | WorkerExit:
        """The record of a task, or how the process ended while measuring it."""
        before, self._key = self._key, work.task.key
        self._tail, self._has_begun = b"", False
        self._send(_to_plain(work))
        found = self._wait_for_answer(
            (Begun, Done), self.limits.reference_s, self.limits.silence_s, " for its problem's reference"
        )
        if isinstance(found, Begun) and found.key == self._key:
            self._has_begun = True
            found = self._wait_for_answer((Done,), self.limits.seconds, self.limits.silence_s)
        if isinstance(found, WorkerExit):
            return found
        if isinstance(found, Done) and found.record.task == work.task:
            self.sound = found.sound
            return found.record
        # A second answer to the previous task is not about this one.
        again = isinstance(found, Done) and found.record.key == before
        return WorkerExit("crashed", f"the worker sent {_describe_message(found)}", self._has_begun and not again)

    def _send(self, values: dict[str, Any]) -> None:
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died: the pipe's end shows how
            self._popen.stdin.write((json.dumps(values, separators=(",", ":")) + "\n").encode())
            self._popen.stdin.flush()

    def _wait_for_answer(
        self, wanted: tuple[type[Message], ...], limit_s: float, silence_s: float, what: str = ""
    ) -> Message | WorkerExit:
        """Read until a message other than a heartbeat arrives, the process ends, or the time is up.

        A message that is not one of those wanted kills the process. `what` describes the wait in error messages.
        """
        begun = self._heard = time.monotonic()
        open_pipes = {self._results: self._read_results, self._stderr: self._read_tail}
        found = self._read_next_message()  # it may have arrived with the line before
        while found is None:
            left = min(begun + limit_s, self._heard + silence_s) - time.monotonic()
            ready = _poll_readable([*open_pipes, self._gone], max(left, 0))
            for descriptor in ready & open_pipes.keys():
                if not open_pipes[descriptor]():
                    del open_pipes[descriptor]
            found = self._read_next_message()
            if found is not None:
                break
            if self._gone in ready and not ready & open_pipes.keys():  # everything left in the pipes was read
                return self._describe_exit()
            if left <= 0:  # also for a worker that prints without end
                return self._stop_overdue(begun, limit_s, silence_s, what)
        if not isinstance(found, wanted):
            return WorkerExit("crashed", f"the worker sent {_describe_message(found)}", self._has_begun)
        return found

    def _read_next_message(self) -> Message | None:
        """The next message except heartbeats. An incomplete line counts only if it is longer than any message."""
        while b"\n" in self._begun:
            line, _, self._begun = self._begun.partition(b"\n")
            message = read_message(line)
            if not isinstance(message, Alive):
                return message
        return reject_long_line(len(self._begun)) if len(self._begun) > LONGEST_LINE else None

    def _read_results(self) -> bool:
        """Read its messages. False at the end of the pipe."""
        data = os.read(self._results, PIECE_BYTES)
        self._heard = time.monotonic()
        self._begun += data
        return bool(data)

    def _read_tail(self) -> bool:
        """Keep the end of its output. False at the end of the pipe."""
        data = os.read(self._stderr, PIECE_BYTES)
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        return bool(data)

    def _stop_overdue(self, begun: float, limit_s: float, silence_s: float, what: str) -> WorkerExit:
        self.kill_group()
        took = time.monotonic() - begun
        if took >= limit_s:
            return WorkerExit("timeout", f"killed after {took:.1f} s; the limit is {limit_s:g} s{what}")
        quiet = time.monotonic() - self._heard
        return WorkerExit("timeout", f"killed after {quiet:.1f} s without a heartbeat; the limit is {silence_s:g} s")

    def _describe_exit(self) -> WorkerExit:
        self.kill_group()  # before waiting for it: until then its pid is not reused
        code = self._wait_for_exit()
        said = self._tail.decode(errors="replace").strip()
        if code < 0:
            how = f"the process died of signal {-code} ({_get_signal_name(-code)})"
        else:
            how = f"the process ended with code {code}"
        if code == SPENT:
            how = "the process ended before it answered"
        status = "out_of_memory" if any(word in said for word in _NO_MEMORY) else "crashed"
        return WorkerExit(status, f"{how}: {said}" if said else how, self._has_begun)

    def kill_group(self) -> None:
        """Kill it and all its children. Any thread may call it."""
        with self._guard:
            if self._popen.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)

    def _wait_for_exit(self) -> int:
        """The exit code of a process that has ended."""
        with self._guard:
            return self._popen.wait()

    def shut_down(self) -> None:
        """Let it end by itself, and kill it if it does not."""
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()
        # Wait for it only after its group was killed: its pid must not be reused before.
        _poll_readable([self._gone], END_S)
        self.kill()

    def kill(self) -> None:
        """Kill it, wait until it is gone, and close the pipes."""
        if not self._open:
            return
        self._open = False
        self.kill_group()
        try:
            if not _poll_readable([self._gone], KILL_S):
                raise DeviceError(
                    f"the process {self.pid} is still alive {KILL_S:g} s after it was killed: it hangs in the device's "
                    "driver. The device is not used any more; see the system's log"
                )
            self._wait_for_exit()
        finally:
            for stream in (self._popen.stdin, self._popen.stderr):
                assert stream is not None
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
            os.close(self._results)
            os.close(self._gone)
