"""The code that runs on cluster nodes: a device with its worker process, and builds."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tilewright.base import knobs
from tilewright.base.errors import DeviceError, RemoteError, StoreError, TilewrightError
from tilewright.bench.cluster.slots import CPU, GPU
from tilewright.bench.executor import ArtifactRef, WorkerConfig, WorkItem
from tilewright.bench.quarantine import Quarantine
from tilewright.bench.record import Record, format_message
from tilewright.bench.worker_client import WorkerClient
from tilewright.building.store.artifact import Artifact

if TYPE_CHECKING:
    from tilewright.building.store.tiers import Tiers

# Ray shows each actor only the GPUs that it was given, so its GPU is the first.
OWN_GPU = "gpu:0"
# Time limit for loading HIP and identifying the GPU. The first time takes seconds on a busy node.
_ASK_GPU_S = 120.0
# The store's own timeout for a remote plus some margin, as nodes that build are busy.
_ASK_REMOTE_S = 10.0


@dataclass(frozen=True)
class DeviceInfo:
    """The handshake of a device that is ready: what it can measure, and its software versions."""

    lane: str
    host: str
    pid: int
    versions: Mapping[str, str]

    @property
    def arch(self) -> str:
        """The GPU's architecture."""
        return self.lane.partition(" ")[2]


@dataclass(frozen=True)
class ChunkResult:
    """The records of a chunk. Work without a record was not measured: this node's stores do not have its kernel.

    `seconds` is None if a worker process was started meanwhile, as the time then does not predict the next chunk.
    `notices` are messages that belong to no record.
    """

    records: tuple[Record, ...]
    seconds: float | None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodeBuildResult:
    """A kernel by name with its key in the store, or the reason why it did not compile."""

    kernel: str
    key: str
    failure: str | None = None


class DeviceActor:
    """One device of a node. It measures in a child process, which may die; the actor itself should not."""

    def __init__(self, kind: str, worker_config: WorkerConfig, quarantine: int, environment: Mapping[str, str]) -> None:
        knobs.set_variables(environment)  # the worker process and this node's stores read it
        self._kind = kind
        self._worker_config = worker_config
        self._quarantine = Quarantine(quarantine)
        self._workers: dict[str, WorkerClient] = {}

    def describe_device(self) -> DeviceInfo:
        """The queue that it serves, and its software. Raises `DeviceError` if its GPU cannot be used."""
        from tilewright import __version__  # noqa: PLC0415  (the package imports its parts, not the other way round)

        versions = {"tilewright": __version__}
        lane = CPU
        if self._kind == GPU:
            arch, own = _read_gpu_info()
            versions |= own
            lane = f"gpu {arch}"
        return DeviceInfo(lane, os.uname().nodename, os.getpid(), versions)

    def run(self, works: Sequence[WorkItem]) -> ChunkResult:
        """Measure a chunk. Every task that is tried gets a record, whatever happens.

        The only exception is `DeviceError`: the device or its node cannot be used.
        """
        begun, starts = time.monotonic(), self._count_starts()
        records = []
        for work in works:
            record = self._quarantine.reject_task(work.task)
            if record is None:
                record = self._measure_work(work)
                if record is None:
                    continue
                self._quarantine.count_record(record)
            records.append(record)
        seconds = time.monotonic() - begun
        notices = [text for worker in self._workers.values() for text in worker.take_notices()]
        return ChunkResult(tuple(records), seconds if self._count_starts() == starts else None, tuple(notices))

    def _measure_work(self, work: WorkItem) -> Record | None:
        """Measure one task; None if no store of this node has its kernel."""
        try:
            here = _resolve_artifact(work)
            return None if here is None else self._get_worker(work.task.device).measure(here)
        except DeviceError:
            raise
        except (OSError, StoreError) as error:  # this node's disk or store failed: the next task would fail, too
            raise DeviceError(f"{os.uname().nodename} cannot measure: {type(error).__name__}: {error}") from error
        except Exception as error:  # any other error fails this task only, and is recorded
            message = format_message(f"{type(error).__name__}: {error}")
            worker = f"{os.uname().nodename}:{os.getpid()}"
            return Record(task=work.task, status="crashed", message=message, worker=worker, started=time.time())

    def close(self) -> None:
        """Shut down the worker processes."""
        for worker in self._workers.values():
            worker.close()

    def _count_starts(self) -> int:
        return sum(worker.starts for worker in self._workers.values())

    def _get_worker(self, device: str) -> WorkerClient:
        name = OWN_GPU if self._kind == GPU else device
        if name not in self._workers:
            self._workers[name] = WorkerClient(name, self._worker_config)
        return self._workers[name]


def build_on_node(kernels: Sequence[str], environment: Mapping[str, str]) -> tuple[NodeBuildResult, ...]:
    """Build kernels, one compiler at a time, and upload them to the shared store."""
    from tilewright.bench.build_ahead import build_with_retry, describe_build_failure  # noqa: PLC0415  (only nodes that build need it)
    from tilewright.ops import parse_kernel  # noqa: PLC0415  (see above)

    knobs.set_variables(environment)
    answers = []
    for kernel, entry in build_with_retry([parse_kernel(name) for name in kernels], jobs=1).items():
        if isinstance(entry, Artifact):
            upload_artifact(entry)
        failure = None if isinstance(entry, Artifact) else describe_build_failure(entry)
        answers.append(NodeBuildResult(kernel.slug, entry.key, failure))
    return tuple(answers)


def upload_artifact(artifact: Artifact, tiers: Tiers | None = None) -> None:
    """Ensure that the shared store has it, even if this node built it earlier. Raises `RemoteError` on failure."""
    from tilewright.building.store.tiers import open_tiers  # noqa: PLC0415  (see above)

    tiers = tiers or open_tiers()
    remote = tiers.remote
    if remote is None:
        return
    wait_until_open(tiers)
    for publish in (True, False):
        sizes = tiers.link.call(
            remote.describe(), lambda: remote.get_sizes([artifact.key]), _ASK_REMOTE_S, remote.abandon
        )
        if artifact.key in sizes:
            return
        if publish:
            tiers.publish(artifact)
    raise RemoteError(f"{remote.describe()} did not accept {artifact.key}, so other nodes could not use it")


def wait_until_open(tiers: Tiers) -> None:
    """Wait out the remote's circuit breaker: without the remote, nothing can be done here."""
    deadline = time.monotonic() + tiers.link.pause_s + _ASK_REMOTE_S
    while not tiers.link.allows_calls and time.monotonic() < deadline:
        time.sleep(1.0)


def _resolve_artifact(work: WorkItem) -> WorkItem | None:
    """The work with its kernel in a store of this machine; None if no store has it."""
    if work.place is None or work.place.store:
        return work
    store = _find_store(work.place.key)
    return None if store is None else work.bind_artifact(ArtifactRef(store, work.place.key))


@lru_cache(maxsize=4096)
def _require_store(key: str) -> str:
    from tilewright.building.store.tiers import open_tiers  # noqa: PLC0415  (devices that replay need no store)

    tiers = open_tiers()
    if tiers.local.get(key) is None:
        wait_until_open(tiers)
    if not isinstance(tiers.find_entries([key]).get(key), Artifact):
        raise LookupError(key)  # an exception is not cached
    return str(tiers.local.root)


def _find_store(key: str) -> str | None:
    try:
        return _require_store(key)
    except LookupError:
        return None


def _probe_gpu() -> tuple[str, dict[str, str]] | str:
    """The GPU's architecture, model and HIP runtime version; or the reason why they cannot be read."""
    from tilewright.bench.versions import read_gpu_versions  # noqa: PLC0415  (GPUs only)
    from tilewright.runtime.device import Device  # noqa: PLC0415  (see above)

    try:
        device = Device(OWN_GPU)
        return device.arch.name, read_gpu_versions(device)
    except TilewrightError as error:
        return str(error)


def _read_gpu_info() -> tuple[str, dict[str, str]]:
    """Runs in its own process: HIP allocates GPU memory, and a hanging GPU must not block this process."""
    import multiprocessing  # noqa: PLC0415  (GPUs only)

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        try:
            found = pool.apply_async(_probe_gpu).get(_ASK_GPU_S)
        except multiprocessing.TimeoutError as error:
            raise DeviceError(f"{OWN_GPU} did not answer within {_ASK_GPU_S:g} s: it hangs") from error
    if isinstance(found, str):
        raise DeviceError(found)
    return found
