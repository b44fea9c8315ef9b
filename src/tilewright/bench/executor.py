"""The interface of executors, which turn work into records: a local process pool, or a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tilewright.base.errors import CorruptError, InvalidValueError
from tilewright.bench.record import Record, Task
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store

# The kind of device that needs no built kernel.
REPLAY = "replay"
# Two heartbeats of a worker.
LEAST_SILENCE_S = 2.0


@dataclass(frozen=True)
class ArtifactRef:
    """Refers to a built kernel: the folder of a store, and the key there. Executors pass it to workers."""

    store: str
    key: str

    def load_artifact(self) -> Artifact:
        """Load the artifact. Raises an error if it is no longer in the store."""
        found = Store(Path(self.store)).get(self.key)
        if not isinstance(found, Artifact):
            raise CorruptError(f"the store {self.store} has no artifact {self.key}: it was removed. Build it again.")
        return found


@dataclass(frozen=True)
class WorkItem:
    """A task and its built kernel. A sweep yields work without an artifact; the executor builds the kernel."""

    task: Task
    place: ArtifactRef | None = None

    @property
    def needs_build(self) -> bool:
        """Whether its kernel must be built before a worker can measure it."""
        return self.place is None and self.task.device.partition(":")[0] != REPLAY

    def bind_artifact(self, place: ArtifactRef) -> WorkItem:
        """The same work, with its kernel built."""
        return replace(self, place=place)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a task. A process that exceeds one is killed with all its children.

    A process is also replaced after `kernels` kernels: libraries stay loaded, and their memory would add up.
    """

    seconds: float = 120.0
    reference_s: float = 3600.0  # for the host to compute the problem's reference outputs, before that
    memory_bytes: int | None = None  # of address space, RLIMIT_AS; None: no limit
    silence_s: float = 60.0  # without a heartbeat
    start_s: float = 120.0  # until a new process is ready
    kernels: int = 200

    def __post_init__(self) -> None:
        for name in ("seconds", "reference_s", "silence_s", "start_s", "kernels"):
            if getattr(self, name) <= 0:
                raise InvalidValueError(f"{name} is {getattr(self, name)}, must be above 0")
        if self.silence_s < LEAST_SILENCE_S:
            raise InvalidValueError(f"silence_s is {self.silence_s:g}, but workers send a heartbeat once a second")
        if self.memory_bytes is not None and self.memory_bytes < 2**28:
            raise InvalidValueError(
                f"memory_bytes is {self.memory_bytes:,}: Python and its libraries need about 256 MiB of address space"
            )


@dataclass(frozen=True)
class WorkerConfig:
    """The settings of workers: those of `measure_task`, as plain values, and the limits.

    `replay` is the file behind replayed devices. `runner` names the function that measures, as `module:function`; it
    takes the work and this config. Its module may have two more functions: `prepare` is called with the device and the
    config before the first task, `compute_reference` with the work and the config before each task. Their time does not
    count against the kernel.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = Limits()
    replay: str | None = None
    runner: str = "tilewright.bench.worker:run_work"


class Executor(Protocol):
    """Runs work. Each piece gives exactly one record, whatever happens to the process that measures it."""

    def run(self, work: Iterable[WorkItem], kernels: Iterable[str] = ()) -> Iterator[Record]:
        """The records, in any order, as they arrive. Work is taken as there is room for it, so it may be endless.

        `kernels` are the names of the kernels that the work will need, in this order, so that they can be built ahead.
        It may be read from another thread than the work. Kernels that are not among them are built when their work
        comes.
        """
        ...

    def stop(self) -> None:
        """Start no more work: `run` yields the records of running work, and ends. Any thread may call it."""
        ...

    def close(self) -> None:
        """Kill all processes at once. Their work gets no records."""
        ...
