"""The client of the emulator process: starts it, sends requests, interrupts and stops it.

A separate thread talks to the process, so that signals and garbage collection never interrupt a message.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from queue import SimpleQueue

from tilewright.base.errors import DeviceError
from tilewright.emulator.hip_shim import deferred_errors
from tilewright.runtime.messages import Reply, Request, RequestKind

# The process uses the same module paths as this one.
# Interrupts are ignored until `main` handles them: an earlier one would end the process.
_PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.path[:] = {path!r}
from {module} import main
main({descriptor})
"""
_MODULE = "tilewright.runtime.emulator_process"
# Seconds for the process to end after it has closed its end of the socket.
_PATIENCE_S = 5.0


@dataclass(eq=False, slots=True)
class _Job:
    request: Request
    host: memoryview | None  # source or target of a copy
    thread: int | None  # the thread that gets faults, if it does not wait
    done: threading.Event = field(default_factory=threading.Event)
    reply: Reply = field(default_factory=Reply)
    cancelled: bool = False


class EmulatorClient:
    """A process and the thread that talks to it. `gone` is the reason why it has ended; empty while it runs."""

    def __init__(self) -> None:
        self.gone = ""
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._guard = threading.RLock()  # of `_current`, `cancelled`, and of `gone` together with `_jobs`
        self._current: _Job | None = None
        self._owner = os.getpid()
        started = threading.Event()
        # The system ends the process when the thread that started it ends, so a permanent thread starts it.
        self._thread = threading.Thread(
            target=self._run_jobs, args=(started.set,), name="tilewright emulator", daemon=True
        )
        self._thread.start()
        try:
            started.wait()
        except BaseException:
            started.wait()
            self.stop()
            raise
        self._check_running()
        os.register_at_fork(after_in_child=self._close_in_child)
        atexit.register(self.stop)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._popen.pid

    def ask(self, request: Request, host: memoryview | None = None) -> Reply:
        """Send a request and wait for the reply. An interrupt of the caller also interrupts the request, and is raised
        when that has ended.

        A second interrupt ends the process.
        """
        job = _Job(request, host, None)
        try:
            with self._guard:
                self._check_running()
                self._jobs.put(job)
            job.done.wait()
        except BaseException:
            if self._send_interrupt(job):
                self._wait_or_kill(job)
            raise
        if job.reply.error is not None:
            raise job.reply.error
        return job.reply

    def send(self, request: Request) -> None:
        """Send a request without waiting. A fault is stored for this thread. May be called at any moment."""
        self._jobs.put(_Job(request, None, threading.get_ident()))

    def stop(self) -> None:
        """End the process now, and wait for it."""
        if os.getpid() == self._owner and not self.gone:
            self._popen.kill()
            self._popen.wait()
            self.send(Request(RequestKind.FACT, "where"))  # so that the thread notices

    def _check_running(self) -> None:
        if self.gone:
            raise DeviceError(self.gone)

    def _send_interrupt(self, job: _Job) -> bool:
        """Interrupt a job. Returns whether to wait for it: its memory may be in use. Other jobs continue."""
        with self._guard:
            if self._current is job:
                self._popen.send_signal(signal.SIGINT)
                return True
            job.cancelled = True
            return False

    def _wait_or_kill(self, job: _Job) -> None:
        try:
            job.done.wait()
        except BaseException:
            self._popen.kill()
            job.done.wait()
            raise

    def _close_in_child(self) -> None:
        """Close the connection in a forked process."""
        if not self.gone:
            self._line.close()

    def _run_jobs(self, started: Callable[[], None]) -> None:
        try:
            self._start()
        except OSError as error:
            self.gone = f"the emulator process cannot be started: {error}"
        finally:
            started()
        while not self.gone:
            self._run_job(self._jobs.get())
        # No jobs that somebody waits for are added any more.
        while not self._jobs.empty():
            self._finish(self._jobs.get(), Reply(error=DeviceError(self.gone)))

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            program = _PROGRAM.format(path=sys.path, module=_MODULE, descriptor=theirs.fileno())
            self._popen = subprocess.Popen(
                [sys.executable, "-P", "-c", program],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # a terminal's Ctrl-C goes to the caller only, which decides what to stop
            )
            self._line = Connection(ours.detach())

    def _run_job(self, job: _Job) -> None:
        with self._guard:
            if job.cancelled:
                return
            self._current = job
        try:
            reply = self._send_and_receive(job)
        except (OSError, EOFError):
            reply = Reply(error=self._handle_loss())
        except BaseException as error:  # an unreadable message: what follows it cannot be trusted
            self._popen.kill()
            reply = Reply(error=self._handle_loss(f" after an unreadable message ({error!r})"))
        self._finish(job, reply)

    def _send_and_receive(self, job: _Job) -> Reply:
        self._line.send(job.request)
        if job.request.upload:
            assert job.host is not None
            self._line.send_bytes(job.host)
        reply: Reply = self._line.recv()
        if reply.downloaded:
            assert job.host is not None
            self._line.recv_bytes_into(job.host)
        return reply

    def _finish(self, job: _Job, reply: Reply) -> None:
        with self._guard:
            self._current = None
        job.reply = reply
        if job.thread is not None and not self.gone:
            errors = [] if reply.error is None else [(job.request.device, reply.error)]
            for device, error in (*reply.kept, *errors):
                deferred_errors.keep_error(device, error, job.thread)
        job.done.set()

    def _handle_loss(self, why: str = "") -> DeviceError:
        self._line.close()
        try:
            code = self._popen.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            code = self._popen.wait()
        how = f"by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"with code {code}"
        with self._guard:
            self.gone = (
                f"the emulator process (pid {self.pid}) ended {how}{why}. All memory of emulated devices is lost: "
                "allocate and fill buffers again. The next use starts another process."
            )
        return DeviceError(self.gone)
