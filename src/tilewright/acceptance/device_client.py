"""The client of the process that uses the device: starts it, sends it one request at a time, and replaces it when it
fails."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

MODULE = "tilewright.acceptance.device_process"
# Seconds of one step, which is one kernel with one problem, or one measurement. An emulated run takes up to a minute.
STEP_S = 900.0
# Seconds until a process that was killed is gone. One that hangs in a driver may never be.
KILL_S = 30.0


@dataclass(frozen=True)
class StepAnswer:
    """The result of a step, or the reason why there is none."""

    found: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    kind: str = ""  # the class of the error, or how the process ended: "crashed" or "timeout"

    @property
    def ok(self) -> bool:
        return not self.error


class DeviceClient:
    """Makes steps in another process, which is started when it is needed, and again after it has failed."""

    def __init__(self, limit_s: float = STEP_S) -> None:
        self.limit_s = limit_s
        self.starts = 0
        self._process: _Process | None = None

    def ask(self, step: str, log: Path, **arguments: Any) -> StepAnswer:
        """Make a step. Whatever happens to the process is an answer, never an exception."""
        if self._process is None:
            self._process = _Process()
            self.starts += 1
        answer, sound = self._process.ask({"step": step, "log": str(log), "arguments": arguments}, self.limit_s)
        if not sound:
            self.stop()
        return answer

    def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def __enter__(self) -> DeviceClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Process:
    def __init__(self) -> None:
        answers, theirs = os.pipe()
        self._popen = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(theirs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs,),
            start_new_session=True,
        )
        os.close(theirs)
        self._answers = answers
        self._send({"path": sys.path})

    def _send(self, values: dict[str, Any]) -> None:
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died: the end of its answers shows how
            self._popen.stdin.write((json.dumps(values) + "\n").encode())
            self._popen.stdin.flush()

    def ask(self, request: dict[str, Any], limit_s: float) -> tuple[StepAnswer, bool]:
        """Send a request and wait for the answer; also whether the process can be used again."""
        self._send(request)
        begun, data = time.monotonic(), b""
        while not data.endswith(b"\n"):
            left = begun + limit_s - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                return StepAnswer(error=f"killed after {limit_s:g} s without an answer", kind="timeout"), False
            piece = os.read(self._answers, 1 << 16)
            if not piece:
                return StepAnswer(error=self._describe_exit(), kind="crashed"), False
            data += piece
        answer = json.loads(data)
        return StepAnswer(answer.get("found", {}), answer.get("error", ""), answer.get("kind", "")), answer["sound"]

    def _describe_exit(self) -> str:
        code = self._popen.wait()
        if code >= 0:
            return f"the process that uses the device ended with code {code}"
        return f"the process that uses the device died of signal {-code} ({signal.strsignal(-code)})"

    def kill(self) -> None:
        """Kill it and wait until it is gone. A process that hangs in a driver is left behind."""
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(KILL_S)
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()
        os.close(self._answers)
