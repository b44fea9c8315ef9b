"""The process of the emulated devices as its caller sees it: started, asked, interrupted and ended here.

A thread of its own talks with it. So a signal, or Python collecting a buffer, never comes in the middle of a message.
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
from tilewright.emulator.stand_in import pending
from tilewright.runtime.forwarding import Kind, Reply, Request

# The modules are those of this process, wherever it found them.
# No interrupt may come before `main` handles them: it would end the process.
_PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.path[:] = {path!r}
from {module} import main
main({descriptor})
"""
_MODULE = "tilewright.runtime.emulator_process"
# How long a process may take to end after it has closed its end of the socket.
_PATIENCE_S = 5.0


@dataclass(eq=False, slots=True)
class _Job:
    request: Request
    host: memoryview | None  # what is copied from or to
    thread: int | None  # the one that is told of faults, if it does not wait
    done: threading.Event = field(default_factory=threading.Event)
    reply: Reply = field(default_factory=Reply)
    cancelled: bool = False


class ProcessLine:
    """A process and the thread that talks with it. `gone` says why there is none any more; empty while there is."""

    def __init__(self) -> None:
        self.gone = ""
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._guard = threading.RLock()  # of `_current`, `cancelled`, and of `gone` beside `_jobs`
        self._current: _Job | None = None
        self._owner = os.getpid()
        started = threading.Event()
        # The system ends the process when the thread that started it ends: so it is started by the one that stays.
        self._thread = threading.Thread(target=self._work, args=(started.set,), name="tilewright emulator", daemon=True)
        self._thread.start()
        try:
            started.wait()
        except BaseException:
            started.wait()
            self.end()
            raise
        self._check_there()
        os.register_at_fork(after_in_child=self._leave)
        atexit.register(self.end)

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._popen.pid

    def ask(self, request: Request, host: memoryview | None = None) -> Reply:
        """The answer to a request. What interrupts the caller interrupts the work, too, and is raised when that ended.

        A second interrupt ends the process.
        """
        job = _Job(request, host, None)
        try:
            with self._guard:
                self._check_there()
                self._jobs.put(job)
            job.done.wait()
        except BaseException:
            if self._interrupt(job):
                self._wait_or_end(job)
            raise
        if job.reply.error is not None:
            raise job.reply.error
        return job.reply

    def tell(self, request: Request) -> None:
        """Send a request without waiting for it. A fault is kept for this thread. May be called at any moment."""
        self._jobs.put(_Job(request, None, threading.get_ident()))

    def end(self) -> None:
        """End the process now, and wait until it is gone."""
        if os.getpid() == self._owner and not self.gone:
            self._popen.kill()
            self._popen.wait()
            self.tell(Request(Kind.FACT, "where"))  # so that the thread sees it

    def _check_there(self) -> None:
        if self.gone:
            raise DeviceError(self.gone)

    def _interrupt(self, job: _Job) -> bool:
        """Interrupt a job; whether it has to be waited for: its memory may be in use. Others go on."""
        with self._guard:
            if self._current is job:
                self._popen.send_signal(signal.SIGINT)
                return True
            job.cancelled = True
            return False

    def _wait_or_end(self, job: _Job) -> None:
        try:
            job.done.wait()
        except BaseException:
            self._popen.kill()
            job.done.wait()
            raise

    def _leave(self) -> None:
        """A process that was forked off has no part in this."""
        if not self.gone:
            self._line.close()

    def _work(self, started: Callable[[], None]) -> None:
        try:
            self._start()
        except OSError as error:
            self.gone = f"the process of the emulated devices cannot be started: {error}"
        finally:
            started()
        while not self.gone:
            self._do(self._jobs.get())
        # Nobody adds another one that is waited for.
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
                start_new_session=True,  # a terminal's Ctrl-C is the caller's, which may not want to stop
            )
            self._line = Connection(ours.detach())

    def _do(self, job: _Job) -> None:
        with self._guard:
            if job.cancelled:
                return
            self._current = job
        try:
            reply = self._exchange(job)
        except (OSError, EOFError):
            reply = Reply(error=self._lost())
        except BaseException as error:  # a message that cannot be read: what follows it cannot be trusted
            self._popen.kill()
            reply = Reply(error=self._lost(f" after a message that cannot be read ({error!r})"))
        self._finish(job, reply)

    def _exchange(self, job: _Job) -> Reply:
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
                pending.keep(device, error, job.thread)
        job.done.set()

    def _lost(self, why: str = "") -> DeviceError:
        self._line.close()
        try:
            code = self._popen.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            code = self._popen.wait()
        how = f"by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"with code {code}"
        with self._guard:
            self.gone = (
                f"the process of the emulated devices (pid {self.pid}) ended {how}{why}. All memory of emulated "
                "devices is lost: allocate buffers and fill them again. The next use starts another process."
            )
        return DeviceError(self.gone)
