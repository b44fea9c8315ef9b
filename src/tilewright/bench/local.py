"""Run a sweep on this machine: a thread builds kernels, and a process per device measures them, fed from one queue.

No process outlives its coordinator.
"""

from __future__ import annotations

import contextvars
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from tilewright.base.errors import DeviceError, InvalidValueError
from tilewright.base.events import Notice, emit
from tilewright.bench.build_ahead import BuildAhead, describe_build_failure
from tilewright.bench.executor import ArtifactRef, WorkerConfig, WorkItem
from tilewright.bench.record import Record, Task, get_device_group
from tilewright.bench.worker_client import WorkerClient
from tilewright.building.store.tiers import Tiers

# Work that waits for a device, or for its record to be read, per device: enough that no device waits for the
# coordinator, and few enough that a stop or a quarantine takes effect at once.
IN_FLIGHT = 64
# How long a stop waits until compilers have ended. They end with this process in any case.
PATIENCE_S = 5.0

Kind = tuple[str, str]  # the group of identical devices, and their GPU


def _reject_nothing(_: Task) -> Record | None:
    return None


class LocalExecutor:
    """An `Executor` on the devices of this machine, which are given with their GPUs. It runs once."""

    def __init__(
        self,
        devices: Sequence[tuple[str, str]],
        worker_config: WorkerConfig,
        *,
        jobs: int | None = None,
        tiers: Tiers | None = None,
        refuse: Callable[[Task], Record | None] = _reject_nothing,
        in_flight: int = IN_FLIGHT,
    ) -> None:
        self._pool = LocalPool(devices, worker_config, refuse=refuse, in_flight=in_flight)
        self._jobs, self._tiers = jobs, tiers
        self._guard = threading.Lock()  # of the next two
        self._stopped = False
        self._ahead: BuildAhead | None = None
        self._feeder: threading.Thread | None = None

    @property
    def starts(self) -> int:
        """The number of processes that were started."""
        return sum(worker.starts for worker in self._pool.workers)

    def run(self, work: Iterable[WorkItem], kernels: Iterable[str] = ()) -> Iterator[Record]:
        """See `Executor.run`."""
        if self._feeder is not None:
            raise InvalidValueError("an executor runs only once: create another one")
        context = contextvars.copy_context()
        self._feeder = threading.Thread(
            target=context.run, args=(self._submit_all, work, kernels), name="tilewright feeds", daemon=True
        )
        self._feeder.start()
        try:
            yield from self._pool.iterate_results()
        finally:
            self.close()

    def stop(self) -> None:
        """See `Executor.stop`."""
        self._pool.stop()
        with self._guard:
            self._stopped = True
            if self._ahead is not None:
                self._ahead.stop()

    def close(self) -> None:
        """See `Executor.close`."""
        self.stop()
        self._pool.close()
        if self._feeder is not None and self._feeder is not threading.current_thread():
            self._feeder.join()
        if self._ahead is not None:
            self._ahead.join(PATIENCE_S)

    def _submit_all(self, work: Iterable[WorkItem], kernels: Iterable[str]) -> None:
        try:
            for each in work:
                if not self._submit_next(each, kernels):
                    break
        except BaseException as error:  # of the work, the builder or the pool: `run` raises it
            self._pool.fail(error)
        else:
            self._pool.finish_input()

    def _submit_next(self, work: WorkItem, kernels: Iterable[str]) -> bool:
        if not work.needs_build:
            return self._pool.submit(work)
        ahead = self._start_builder(kernels)
        entry = None if ahead is None else ahead.wait(work.task.kernel)
        if entry is None:
            return False
        if isinstance(entry, ArtifactRef):
            return self._pool.submit(work.bind_artifact(entry))
        return self._pool.put_record(
            Record(task=work.task, status="build_failed", message=describe_build_failure(entry))
        )

    def _start_builder(self, kernels: Iterable[str]) -> BuildAhead | None:
        """The builder; None after a stop."""
        with self._guard:
            if self._ahead is None and not self._stopped:
                self._ahead = BuildAhead(kernels, jobs=self._jobs, tiers=self._tiers)
            return self._ahead


def _get_queue_key(task: Task) -> Kind:
    return get_device_group(task.device), task.arch


class LocalPool:
    """Takes work and returns a record for each piece. A CPU device that is named twice has two processes.

    `refuse` is called just before a task would run: if it returns a record, the task does not run and gets that record.
    One thread submits, one reads results; `stop` and `close` may be called from any.
    """

    def __init__(
        self,
        devices: Sequence[tuple[str, str]],
        worker_config: WorkerConfig,
        *,
        refuse: Callable[[Task], Record | None] = _reject_nothing,
        in_flight: int = IN_FLIGHT,
    ) -> None:
        _check_devices(devices)
        self.workers = tuple(WorkerClient(name, worker_config) for name, _ in devices)
        self._kinds = tuple((get_device_group(name), arch) for name, arch in devices)
        self._refuse = refuse
        self._most = in_flight * len(devices)
        self._changed = threading.Condition()
        self._waiting: dict[Kind, deque[WorkItem]] = {kind: deque() for kind in self._kinds}
        self._running = 0
        self._problems: dict[WorkerClient, str] = {}  # the current or last problem of each
        self._results: deque[Record] = deque()
        self._notices: deque[str] = deque()
        self._ended = self._stopped = self._closed = False
        self._alive = Counter(self._kinds)
        self._lost: list[str] = []
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(
                target=self._run_worker, args=(worker, kind), name=f"tilewright {worker.device}", daemon=True
            )
            for worker, kind in zip(self.workers, self._kinds, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: WorkItem) -> bool:
        """Queue work, and wait while too much of it is pending. False if the pool takes no more."""
        kind = _get_queue_key(work.task)
        if kind not in self._waiting:
            there = ", ".join(f"{place} ({arch})" for place, arch in self._waiting)
            raise InvalidValueError(f"no device of this pool is a {kind[0]} ({kind[1]}): it has {there}")
        return self._put(lambda: self._waiting[kind].append(work))

    def put_record(self, record: Record) -> bool:
        """Add a record of work that needs no worker to the results. False if the pool takes no more."""
        return self._put(lambda: self._results.append(record))

    def finish_input(self) -> None:
        """End the input: `iterate_results` ends when all work is done."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """End the input because of an error: `iterate_results` raises it, after the records of running work."""
        with self._changed:
            self._failure = self._failure or error
            self._drop_waiting()

    def iterate_results(self) -> Iterator[Record]:
        """The records as they arrive. Raises the error that stopped the pool, after all records."""
        while True:
            with self._changed:
                self._changed.wait_for(self._has_news)
                notices = [self._notices.popleft() for _ in range(len(self._notices))]
                record = self._results.popleft() if self._results else None
                self._changed.notify_all()
            for notice in notices:
                emit(Notice(notice))
            if record is not None:
                yield record
            elif self._is_done():
                break
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Start no more work; running work is finished."""
        with self._changed:
            self._stopped = True
            self._drop_waiting()

    def close(self) -> None:
        """Kill all processes now, and wait until they are gone."""
        with self._changed:
            self._closed = True
            self._drop_waiting()
        for worker in self.workers:
            worker.kill()
        for thread in self._threads:
            thread.join()

    def _drop_waiting(self) -> None:
        for queue in self._waiting.values():
            queue.clear()
        self._ended = True
        self._changed.notify_all()

    def _put(self, put: Callable[[], None]) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._count_running() < self._most)
            if self._ended:
                return False
            put()
            self._changed.notify_all()
            return True

    def _count_running(self) -> int:
        return sum(map(len, self._waiting.values())) + self._running + len(self._results)

    def _is_done(self) -> bool:
        return self._ended and self._count_running() == 0

    def _has_news(self) -> bool:
        return bool(self._results) or bool(self._notices) or self._is_done()

    # The methods below run in the threads, one for each worker.

    def _run_worker(self, worker: WorkerClient, kind: Kind) -> None:
        try:
            while (work := self._take_work(worker, kind)) is not None:
                try:
                    self._finish(self._refuse(work.task) or worker.measure(work), worker.take_notices())
                except DeviceError as error:
                    self._handle_lost_device(worker, kind, work, error)
                    break
        except BaseException as error:  # a bug in this program: raised where results are read
            self._fail_worker(error)
        finally:
            worker.close()

    def _take_work(self, worker: WorkerClient, kind: Kind) -> WorkItem | None:
        """The next work for a worker: of its current problem, else of one that no other worker has, else the first."""
        waiting = self._waiting[kind]
        with self._changed:
            self._changed.wait_for(lambda: bool(waiting) or self._is_exhausted(kind))
            if not waiting:
                return None
            best = self._choose_index(worker, waiting)
            work = waiting[best]
            del waiting[best]
            self._running += 1
            self._problems[worker] = work.task.problem
            return work

    def _choose_index(self, worker: WorkerClient, waiting: Sequence[WorkItem]) -> int:
        """A worker that stays with a problem has its reference cached; two workers on one problem compute it twice."""
        own = self._problems.get(worker)
        others = {problem for each, problem in self._problems.items() if each is not worker}
        fresh = None
        for place, work in enumerate(waiting):
            problem = work.task.problem
            if problem == own:
                return place
            if fresh is None and problem not in others:
                fresh = place
        return fresh or 0

    def _is_exhausted(self, kind: Kind) -> bool:
        """Whether no more work can come: running work may come back from a lost device."""
        return self._stopped or self._closed or (self._ended and self._running == 0 and not self._waiting[kind])

    def _finish(self, record: Record, notices: Sequence[str]) -> None:
        with self._changed:
            self._running -= 1
            self._notices += notices
            self._results.append(record)
            self._changed.notify_all()

    def _handle_lost_device(self, worker: WorkerClient, kind: Kind, work: WorkItem, error: DeviceError) -> None:
        """Handle a lost device. Its work, which was not measured, goes back to the remaining ones."""
        with self._changed:
            self._running -= 1
            self._alive[kind] -= 1
            if not self._closed:
                self._lost.append(worker.device)
                if self._alive[kind]:
                    self._notices.append(f"{error} Other devices continue.")
                    if not self._stopped:
                        self._waiting[kind].appendleft(work)
                else:
                    self._failure = self._failure or error
                    self._drop_waiting()
            self._changed.notify_all()

    def _fail_worker(self, error: BaseException) -> None:
        with self._changed:
            self._running = max(self._running - 1, 0)
            self._failure = self._failure or error
            self._drop_waiting()


def _check_devices(devices: Sequence[tuple[str, str]]) -> None:
    if not devices:
        raise InvalidValueError("a pool without a device measures nothing: name at least one")
    twice = [
        name for name, n in Counter(name for name, _ in devices).items() if n > 1 and get_device_group(name) == "gpu"
    ]
    if twice:
        raise InvalidValueError(
            f"{', '.join(twice)} would have two workers, which disturb each other's times: name it once"
        )
