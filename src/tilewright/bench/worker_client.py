"""The coordinator's client of a worker process: takes work and returns a record, whatever happens to the process."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

from tilewright.base.errors import DeviceError
from tilewright.bench.executor import WorkerConfig, WorkItem
from tilewright.bench.record import Record, format_message
from tilewright.bench.worker_process import WorkerProcess

# A device may need a moment after a fault: attempts to start a worker, and the pause between them.
STARTS, PAUSE_S = 3, 2.0


@cache
def _get_starter_thread(owner: int) -> ThreadPoolExecutor:  # noqa: ARG001  (a forked process has no threads, and gets its own)
    """The thread that starts all workers. It never ends: Linux kills a worker with the thread that started it."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="tilewright-start")


class WorkerClient:
    """A device and the process that measures on it. The process is started when needed, and again after it has died.

    Only one thread may measure at a time. Any other thread may call `kill`.
    """

    def __init__(self, device: str, worker_config: WorkerConfig) -> None:
        self.device = device
        self.worker_config = worker_config
        self.starts = 0
        self.kernel: str | None = None  # the last one
        self._kernels: set[str] = set()
        self._process: WorkerProcess | None = None
        self._closed = False
        self._lost = ""  # why no process can be started any more
        self._notices: list[str] = []
        self._guard = threading.Lock()

    def measure(self, work: WorkItem) -> Record:
        """Measure a task. Whatever the kernel does to the process is a status of the record, never an exception.

        Raises `DeviceError` if no process can be started on the device, or if this client was closed: nothing was
        measured then.
        """
        # Identical GPUs share work: this one measures it.
        if work.task.device != self.device:
            work = replace(work, task=replace(work.task, device=self.device))
        started, begun = time.time(), time.monotonic()
        process = self._get_process(work.task.kernel)
        found = process.ask(work)
        if not isinstance(found, Record) and not found.blames_task and not self._closed:
            # The task cannot be the cause.
            self._notices.append(f"{self.device}: {found.message}. A new process measures {work.task.kernel}")
            self._drop(process)
            process = self._get_process(work.task.kernel)
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
        message = format_message(found.message)
        return Record(task=work.task, status=found.status, message=message, worker=name, started=started, took_s=took)

    def take_notices(self) -> list[str]:
        """The reasons for replaced processes that are in no record, since the last call."""
        taken, self._notices = self._notices, []
        return taken

    def close(self) -> None:
        """Shut the process down. A thread that is measuring gets a `DeviceError`."""
        self._closed = True
        with self._guard:
            process, self._process = self._process, None
        if process is not None:
            process.shut_down()

    def kill(self) -> None:
        """Kill the process at once, from any thread; the measuring thread notices and cleans up."""
        self._closed = True
        with self._guard:
            if self._process is not None:
                self._process.kill_group()

    def _get_process(self, kernel: str) -> WorkerProcess:
        """A living process with room for another kernel."""
        process = self._process
        if (
            process is not None
            and kernel not in self._kernels
            and len(self._kernels) >= self.worker_config.limits.kernels
        ):
            self._drop(process, in_order=True)
            process = None
        if process is not None and not process.is_alive():  # it died while idle: nothing was lost
            self._drop(process)
            process = None
        if process is not None and (unasked := process.read_unexpected()):
            # A record has been taken from it already, and it is unknown which of its answers is right: do not use it
            # again.
            after = f" after it had measured {self.kernel}" if self.kernel else ""
            self._notices.append(f"{self.device}: the worker sent {unasked}{after}, without a request")
            self._drop(process)
            process = None
        if process is None:
            process = self._start()
        self._kernels.add(kernel)
        return process

    def _start(self) -> WorkerProcess:
        last = ""
        for left in reversed(range(STARTS)):
            if self._closed or self._lost:
                raise DeviceError(f"{self.device}: {self._lost or 'the worker is closed'}")
            try:
                process = (
                    _get_starter_thread(os.getpid()).submit(WorkerProcess, self.device, self.worker_config).result()
                )
            except OSError as error:  # too many processes or open files
                raise DeviceError(f"{self.device}: no worker process can be started: {error}") from error
            with self._guard:
                self._process = process
                if self._closed:  # closed meanwhile, when there was nothing to kill
                    process.kill_group()
            self.starts += 1
            failed = process.wait_ready()
            if failed is None:
                return process
            last = failed.message
            self._drop(process)
            if left and not self._closed:
                time.sleep(PAUSE_S)
        raise DeviceError(f"{self.device}: no worker could be started in {STARTS} attempts. The last error: {last}")

    def _drop(self, process: WorkerProcess, *, in_order: bool = False) -> None:
        with self._guard:
            self._process = None
        self._kernels.clear()
        try:
            process.shut_down() if in_order else process.kill()
        except DeviceError as error:  # the measured record counts; the next task reports the error
            self._lost = str(error)
