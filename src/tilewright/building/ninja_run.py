"""Run ninja on a graph and report its steps as they start and end."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from tilewright.base.errors import ToolchainError
from tilewright.base.events import Notice, emit
from tilewright.building.graph import EVENTS, GRAPH
from tilewright.building.process import format_env_removals
from tilewright.building.store.files import translate_os_errors

_POLL_S = 0.02
# Interval of idle events while no step starts or ends, so that a clock on the screen moves.
_TICK_S = 1.0
# How long ninja may take to stop its compilers after SIGTERM.
_GRACE_S = 5.0
# How long a killed process may take to exit. A process that takes longer is waiting for a disk.
_GONE_S = 1.0
OUTPUT = "ninja.log"
# The two lines that the shell's `times` prints: itself, then its children; user and system time each.
_TIMES = re.compile(r"([0-9]{1,7})m([0-9]{1,3}(?:\.[0-9]+)?)s ([0-9]{1,7})m([0-9]{1,3}(?:\.[0-9]+)?)s")
# A line cut off by a full disk does not match. Its step then counts as not ended.
_EVENT = re.compile(r"(start|end) ([0-9a-f]{32})/([a-z]+) (\d+)")
# Exit codes of timeout(1) and the shell: from here on a step was stopped or could not start.
_ENDED = 124


@dataclass(frozen=True)
class StepStarted:
    """A step of the unit with this key started; `at` is in seconds since the start of the run."""

    key: str
    step: str
    at: float


@dataclass(frozen=True)
class StepEnded:
    """A step ended, with its exit code."""

    key: str
    step: str
    at: float
    code: int


@dataclass(frozen=True)
class IdleTick:
    """No step started or ended for a second."""

    at: float


StepEvent = StepStarted | StepEnded | IdleTick


def run_graph(folder: Path, jobs: int) -> Iterator[StepEvent]:
    """Run the ninja file in `folder` with `jobs` compilers at once; yield steps as they start and end.

    Leaving the iteration early, by an exception or Ctrl-C, stops ninja and every compiler it started. So does the death
    of this process.
    """
    with translate_os_errors("write", folder):
        (folder / EVENTS).touch()
        sink = (folder / OUTPUT).open("wb")
    with sink, (folder / EVENTS).open("r", encoding="utf-8") as stream:
        run = _NinjaRun(stream)
        process = subprocess.Popen(
            [
                *_make_command_prefix(),
                str(find_ninja()),
                "-C",
                str(folder),
                "-f",
                GRAPH,
                "-k",
                "0",
                "-j",
                str(jobs + 1),
            ],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
        try:
            yield from run.stream_events(process)
        finally:
            _stop_ninja(process)
            run.stop_steps()


def read_cpu_seconds(folder: Path, step: str) -> float:
    """Read the CPU time of a step and all processes it started. 0 if the step did not finish."""
    try:
        text = (folder / f"{step}.times").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return 0.0
    found = _TIMES.findall(text)
    minutes_and_seconds = found[-1] if found else ("0", "0", "0", "0")
    user_m, user_s, system_m, system_s = (float(number) for number in minutes_and_seconds)
    return 60 * (user_m + system_m) + user_s + system_s


def find_ninja() -> Path:
    """Find the program of the Python package ninja."""
    import ninja  # noqa: PLC0415  (costs start-up time, needed by few commands)

    path = Path(ninja.BIN_DIR) / "ninja"
    if not path.is_file():
        raise ToolchainError(f"the package ninja has no program at {path}. Install it again: pip install ninja")
    return path


class _NinjaRun:
    """Reads the events of one run and tracks the process groups that may still be running."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._pending = ""
        self._began = time.monotonic()
        self._groups: dict[tuple[str, str], int] = {}

    def stream_events(self, process: subprocess.Popen[bytes]) -> Iterator[StepEvent]:
        running = True
        reported = self._began
        while running:
            running = process.poll() is None
            any_told = False
            for event in self._read_events():
                any_told = True
                yield event
            if any_told:
                reported = time.monotonic()
            elif running:
                time.sleep(_POLL_S)
                if time.monotonic() - reported >= _TICK_S:
                    reported = time.monotonic()
                    yield IdleTick(reported - self._began)

    def stop_steps(self) -> None:
        """Stop remaining processes of stopped steps, and steps that are still running because ninja was killed."""
        for _ in self._read_events():
            pass
        for group in self._groups.values():
            _stop_group(group)

    def _read_events(self) -> Iterator[StepEvent]:
        self._pending += self._stream.read()
        lines = self._pending.split("\n")
        self._pending = lines.pop()
        for line in lines:
            found = _EVENT.fullmatch(line)
            if found is None:
                continue
            word, key, step, number = found.groups()
            at = time.monotonic() - self._began
            if word == "start":
                self._record_group(key, step, int(number))
                yield StepStarted(key, step, at)
            else:
                self._finish_step(key, step, int(number))
                yield StepEnded(key, step, at, int(number))

    def _record_group(self, key: str, step: str, pid: int) -> None:
        """Record the process group of a step: ninja creates one per step, which contains all of its compilers."""
        with suppress(ProcessLookupError):  # it has ended already
            group = os.getpgid(pid)
            if group != os.getpgrp():
                self._groups[key, step] = group

    def _finish_step(self, key: str, step: str, code: int) -> None:
        group = self._groups.pop((key, step), None)
        # A compiler driver that is stopped leaves its device compiler running.
        if group is not None and code >= _ENDED:
            _stop_group(group)


def _make_command_prefix() -> Sequence[str]:
    """Make the words in front of ninja's command: it ends with this process, and hidden inputs are removed."""
    # LC_ALL=C: messages and numbers are parsed. Temporary files go to the step's folder, by a relative name: in an
    # absolute one clang replaces each "%" with a random character (llvm::sys::fs::createUniqueFile).
    cleaned = ["/usr/bin/env", *format_env_removals(), "LC_ALL=C", "TMPDIR=."]
    guard = shutil.which("setpriv")
    if guard is None:
        emit(Notice("setpriv (util-linux) is missing: compilers run on for a while if this process is killed"))
        return cleaned
    return [guard, "--pdeathsig", "TERM", *cleaned]


def _stop_ninja(process: subprocess.Popen[bytes]) -> None:
    """Stop ninja if it still runs. It stops its compilers on SIGTERM, but not when it is killed."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S)
        return
    process.kill()
    process.wait()


def _stop_group(group: int) -> None:
    """Kill a process group and wait until it is gone: no process may write into a folder that is being removed."""
    deadline = time.monotonic() + _GONE_S
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
        while _is_running(group) and time.monotonic() < deadline:
            time.sleep(0.005)


def _is_running(group: int) -> bool:
    """Return whether a process of the group is running; zombies do not count."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, found, *_ = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended in the meantime
        if int(found) == group and state != "Z":
            return True
    return False
