"""Running a program with a time limit: its output, exit code and CPU time."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.errors import ToolchainError

# Variables that add include folders or flags without showing in the command line. They would make
# one build key stand for different code, so the compiler does not see them.
# (clang's manual, "ENVIRONMENT"; clang/tools/driver/driver.cpp; the last two: hipcc's manual.)
HIDDEN_INPUTS = (
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "OBJC_INCLUDE_PATH",
    "CCC_OVERRIDE_OPTIONS",
    "HIPCC_COMPILE_FLAGS_APPEND",
    "HIPCC_LINK_FLAGS_APPEND",
)
LOG = "output.log"
_LONGEST_NAP_S = 0.02


@dataclass(frozen=True, slots=True)
class Ran:
    """A program that ended: `code` is its exit code, or -N when signal N ended it."""

    code: int
    output: str  # standard output and error, in the order they were written
    cpu_s: float  # user and system time of the program and of the programs it started
    wall_s: float
    timed_out: bool


def run(command: Sequence[str], *, folder: Path, timeout_s: float) -> Ran:
    """Run `command` in `folder`, a private one that also takes the program's temporary files.

    A program that is still running after `timeout_s` is ended with everything it started.
    """
    log = folder / LOG
    started = time.monotonic()
    with log.open("wb") as sink:
        # env(1) sets and removes variables, so that the environment itself is never read here.
        process = subprocess.Popen(
            ["/usr/bin/env", *without_hidden_inputs(), f"TMPDIR={folder}", *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status, cpu_s, timed_out = _wait(process, started + timeout_s)
        except BaseException:  # such as Ctrl-C, which does not reach a group of its own
            _end(process)
            raise
    process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.monotonic() - started
    output = log.read_text(encoding="utf-8", errors="replace")
    log.unlink()
    return Ran(process.returncode, output, cpu_s, wall_s, timed_out)


def tool_output(command: Sequence[str], *, timeout_s: float = 60) -> str:
    """What a small tool prints. A tool that fails or does not end is a `ToolchainError`."""
    try:
        done = subprocess.run(
            list(command),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
        )
    except OSError as error:
        raise ToolchainError(f"{command[0]} cannot be started: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise ToolchainError(f"{command[0]} did not end within {timeout_s:g} s") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip() or "it printed nothing"
        raise ToolchainError(f"{' '.join(command)} ended with code {done.returncode}: {said}")
    return done.stdout.decode(errors="replace")


def without_hidden_inputs() -> list[str]:
    """Words for env(1) that keep the hidden inputs from a program."""
    return [word for name in HIDDEN_INPUTS for word in ("-u", name)]


def _wait(process: subprocess.Popen[bytes], deadline: float) -> tuple[int, float, bool]:
    """Wait with wait4, the only call that tells the CPU time of one child among several."""
    nap = 0.001
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            return status, usage.ru_utime + usage.ru_stime, False
        if time.monotonic() >= deadline:
            break
        time.sleep(nap)
        nap = min(nap * 2, _LONGEST_NAP_S)
    status, cpu_s = _end(process)
    return status, cpu_s, True


def _end(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """End the program and all it started: it leads a group of its own, see start_new_session."""
    os.killpg(process.pid, signal.SIGKILL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return status, usage.ru_utime + usage.ru_stime
