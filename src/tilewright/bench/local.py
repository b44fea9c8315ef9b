"""Run a sweep on this machine: a thread builds kernels, and a process per device measures them."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from tilewright.base.errors import InvalidValueError
from tilewright.bench.build_ahead import BuildAhead, describe_build_failure
from tilewright.bench.executor import ArtifactRef, WorkerConfig, WorkItem
from tilewright.bench.pool import IN_FLIGHT, LocalPool
from tilewright.bench.record import Record, Task
from tilewright.building.store.tiers import Tiers

# How long a stop waits until compilers have ended. They end with this process in any case.
PATIENCE_S = 5.0


class LocalExecutor:
    """An `Executor` on the devices of this machine, which are given with their GPUs. It runs once."""

    def __init__(
        self,
        devices: Sequence[tuple[str, str]],
        worker_config: WorkerConfig,
        *,
        jobs: int | None = None,
        tiers: Tiers | None = None,
        refuse: Callable[[Task], Record | None] | None = None,
        in_flight: int = IN_FLIGHT,
    ) -> None:
        self._pool = LocalPool(
            devices, worker_config, in_flight=in_flight, **({} if refuse is None else {"refuse": refuse})
        )
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
