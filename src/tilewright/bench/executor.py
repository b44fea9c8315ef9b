"""What carries out a sweep: work in, a record for each piece of it out. A pool of processes, or a cluster."""

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
class Place:
    """Where a built kernel is: the folder of a store, and the key there. What an executor hands to a worker."""

    store: str
    key: str

    def artifact(self) -> Artifact:
        """The artifact; an error when the store does not have it any more."""
        found = Store(Path(self.store)).get(self.key)
        if not isinstance(found, Artifact):
            raise CorruptError(f"the store {self.store} has no artifact {self.key}: it was removed. Build it again.")
        return found


@dataclass(frozen=True)
class Work:
    """A task, and where its kernel was built. A sweep gives work without a place; the executor has the kernel built."""

    task: Task
    place: Place | None = None

    @property
    def needs_build(self) -> bool:
        """Whether its kernel has to be built before a worker can take it."""
        return self.place is None and self.task.device.partition(":")[0] != REPLAY

    def built(self, place: Place) -> Work:
        """The same work, with its kernel built."""
        return replace(self, place=place)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a task may take. A process that takes more is killed with everything it started.

    A process also starts anew after `kernels` kernels: libraries stay loaded, and their memory would add up.
    """

    seconds: float = 120.0
    reference_s: float = 3600.0  # before: for the host, until it is known what the problem's outputs should be
    memory_bytes: int | None = None  # of address space, RLIMIT_AS; None: as much as there is
    silence_s: float = 60.0  # without a heartbeat
    start_s: float = 120.0  # until a new process is ready
    kernels: int = 200

    def __post_init__(self) -> None:
        for name in ("seconds", "reference_s", "silence_s", "start_s", "kernels"):
            if getattr(self, name) <= 0:
                raise InvalidValueError(f"a limit of {getattr(self, name)} for {name} allows nothing: give more than 0")
        if self.silence_s < LEAST_SILENCE_S:
            raise InvalidValueError(f"silence_s is {self.silence_s:g}: a worker gives a sign of life once a second")
        if self.memory_bytes is not None and self.memory_bytes < 2**28:
            raise InvalidValueError(
                f"memory_bytes is {self.memory_bytes:,}: Python and its libraries alone take some 256 MiB of addresses"
            )


@dataclass(frozen=True)
class Crew:
    """How workers work: with which settings of `measure`, as plain values, within which limits.

    `replay` is the file behind replayed devices. `runner` is what measures, as `module:function` of work and crew. Its
    module may have two more functions: `prepare` is called with the device and the crew before the first task,
    `compute_reference` with work and crew before each. What they take is not counted as the kernel's.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = Limits()
    replay: str | None = None
    runner: str = "tilewright.bench.worker:run_work"


class Executor(Protocol):
    """Carries out work. Each piece gives exactly one record, whatever happens to the process that measures it."""

    def run(self, work: Iterable[Work], kernels: Iterable[str] = ()) -> Iterator[Record]:
        """The records, in any order, as they come. Work is taken as there is room for it, so it may be endless.

        `kernels` are the names of those that the work will need, in this order, so that they can be built ahead. It
        may be asked from another thread than the work. Kernels that are not among them are built when their work comes.
        """
        ...

    def stop(self) -> None:
        """Begin no more work: `run` gives the records of what is under way, and ends. Any thread may call it."""
        ...

    def close(self) -> None:
        """End all processes at once. Their work has no records."""
        ...
