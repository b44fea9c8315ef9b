"""Run a sweep on many machines with Ray. Each device is an actor with the same worker process as on one machine.

Work is requested as there is room for it, and sent in chunks. The work of a lost device or node is sent again, new
nodes are used, and each piece of work gives exactly one record.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.base.errors import ClusterError, DeviceError
from tilewright.base.events import Notice, emit
from tilewright.bench.cluster.actor import ChunkResult, DeviceActor, DeviceInfo, build_on_node
from tilewright.bench.cluster.builds import BuildQueue
from tilewright.bench.cluster.ledger import Chunk, ChunkSizes, Ledger
from tilewright.bench.cluster.session import AUTO, RaySession, describe_differences, import_ray, read_shared_environment
from tilewright.bench.cluster.slots import CPU, GPU, DeviceSlot, Node, check_nodes, count_builders, list_slots
from tilewright.bench.executor import REPLAY, WorkerConfig, WorkItem
from tilewright.bench.quarantine import FAILURES, Quarantine
from tilewright.bench.record import Record

# Interval between two queries for the cluster's nodes. A query is one short message to the head node.
LOOK_S = 2.0
# Time to wait for an answer before nodes, builds and the stop flag are checked again.
_PAUSE_S = 0.1
# Consecutive failures (its process died, its GPU cannot be used) after which a slot is not used any more.
SEAT_FAILURES = 3
# Time that work may wait while no device can take it: cloud nodes take minutes to start.
PATIENCE_S = 300.0


@dataclass
class _SentChunk:
    """A chunk at a device, and the records of its tasks that were not sent because their kernel is quarantined."""

    chunk: Chunk
    refused: tuple[Record, ...]


@dataclass
class _ActorState:
    """An actor as the coordinator sees it. It processes its chunks in order."""

    seat: DeviceSlot
    actor: Any
    info: DeviceInfo | None = None
    sent: dict[Any, _SentChunk] = field(default_factory=dict)  # by Ray's reference to the answer
    busy_since: float = 0.0  # when the first of them began


@dataclass
class _RunState:
    """The state of one run."""

    work: Iterator[WorkItem]
    builds: BuildQueue
    ledger: Ledger
    devices: dict[DeviceSlot, _ActorState] = field(default_factory=dict)
    owners: dict[Any, _ActorState] = field(default_factory=dict)  # of references to device infos and answers
    building: dict[Any, tuple[str, ...]] = field(default_factory=dict)
    more: bool = True  # whether `work` may yield more
    records: deque[Record] = field(default_factory=deque)
    moved: float = field(default_factory=time.monotonic)  # when something was last sent or answered
    looked: float = float("-inf")


class ClusterExecutor:
    """Runs work on a Ray cluster. `devices` maps names to their GPUs, as in a plan.

    An emulated or replayed device takes a CPU, a GPU device takes a GPU; each node reports which GPUs it has. Kernels
    are built on the remaining CPUs, and shared through the remote store (`TILEWRIGHT_REMOTE`). The `quarantine` is
    checked before a task is sent; the consumer of the records adds failures to it.
    """

    def __init__(
        self,
        devices: Mapping[str, str],
        worker_config: WorkerConfig,
        *,
        address: str = AUTO,
        quarantine: Quarantine | None = None,
        sizes: ChunkSizes | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._worker_config = worker_config
        self._sizes = sizes or ChunkSizes()
        self._quarantine = quarantine or Quarantine(FAILURES)
        self._patience_s = patience_s
        self._kinds = frozenset(GPU if name.startswith("gpu:") else CPU for name in devices)
        self._builds = any(name.partition(":")[0] != REPLAY for name in devices)
        self._environment = read_shared_environment()
        # The causes of each slot's consecutive failures. A task that kills its device repeatedly counts once.
        self._failures: defaultdict[DeviceSlot, set[str]] = defaultdict(set)
        self._useless: set[DeviceSlot] = set()  # other software: a retry cannot help
        self._last_failure = ""
        self._stopping = False
        self._state: _RunState | None = None
        self._ray = import_ray()
        self._session = RaySession(address)
        try:
            self._nodes = self._session.list_nodes()
            self._actor_class = self._ray.remote(DeviceActor)
            self._build = self._ray.remote(build_on_node)
            check_nodes(self._nodes.values(), self._kinds, builds=self._builds, shared=bool(self._environment))
        except BaseException:
            self._session.close()
            raise

    @property
    def devices(self) -> int:
        """The number of devices that the cluster now has for this sweep."""
        return len(list_slots(self._nodes.values(), self._kinds, builds=self._builds))

    def run(self, work: Iterable[WorkItem], kernels: Iterable[str] = ()) -> Iterator[Record]:
        """The records, in any order, as they arrive. See `Executor.run`."""
        state = self._state = _RunState(iter(work), BuildQueue(iter(kernels)), Ledger(self._sizes))
        try:
            while True:
                self._update_nodes(state)
                self._fill_queues(state)
                self._start_builds(state)
                self._send_chunks(state)
                while state.records:
                    yield state.records.popleft()
                if self._is_done(state):
                    return
                self._check_stalled(state)
                self._collect_results(state)
        finally:
            self._release_cluster(state)

    def stop(self) -> None:
        """Start no more work: `run` yields the records of work at devices, and ends. Any thread may call it."""
        self._stopping = True

    def close(self) -> None:
        """Stop all devices at once, and leave the cluster."""
        if self._state is not None:
            self._release_cluster(self._state)
        self._session.close()

    def _is_done(self, state: _RunState) -> bool:
        if state.records or state.ledger.out:
            return False
        return self._stopping or not (state.more or state.ledger.waiting_count or state.builds.waiting_count)

    # Nodes and devices

    def _update_nodes(self, state: _RunState) -> None:
        """Query the nodes. Devices of dead nodes are lost, and new slots get a device."""
        now = time.monotonic()
        if now - state.looked < LOOK_S:
            return
        state.looked = now
        before, self._nodes = self._nodes, self._session.list_nodes()
        report_changes(before, self._nodes, "tasks")
        seats = list_slots(self._nodes.values(), self._kinds, builds=self._builds)
        for seat, device in list(state.devices.items()):
            if seat.node not in self._nodes:
                self._handle_loss(state, device, "its node died")
            elif device.sent and now - device.busy_since > self._compute_chunk_limit(device):
                self._handle_loss(state, device, f"it has not answered for {now - device.busy_since:.0f} s")
        for seat in sorted(seats - state.devices.keys()):
            if not self._is_excluded(seat) and not self._stopping:
                self._start_device(state, seat)

    def _start_device(self, state: _RunState, seat: DeviceSlot) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415  (part of an extra)

        actor = self._actor_class.options(
            num_gpus=1 if seat.kind == GPU else 0,
            num_cpus=1 if seat.kind == CPU else 0,
            max_restarts=0,  # a lost device is replaced here, as its chunks are known here
            scheduling_strategy=NodeAffinitySchedulingStrategy(seat.node, soft=False),
        ).remote(seat.kind, self._worker_config, self._quarantine.limit, dict(self._environment))
        device = state.devices[seat] = _ActorState(seat, actor)
        state.owners[actor.describe_device.remote()] = device

    def _handle_loss(self, state: _RunState, device: _ActorState, why: str, *, blamed: bool = True) -> None:
        """Handle a lost device: its work is sent again. Only the chunk that it was running can be the cause."""
        state.devices.pop(device.seat, None)
        for reference in [each for each, owner in state.owners.items() if owner is device]:
            del state.owners[reference]
        self._ray.kill(device.actor)  # it may be alive, but its answers are not read any more
        if device.seat.node in self._nodes:
            self._failures[device.seat].add(_make_loss_key(device, blamed))
            then = "and not used any more" if self._is_excluded(device.seat) else "and started again"
            self._last_failure = f"{device.seat}: {why}"
            emit(Notice(f"{device.seat} is lost {then}: {why}"))
        for index, sent in enumerate(device.sent.values()):
            state.records += state.ledger.take_back_lost(
                sent.chunk, f"{device.seat}: {why}", blamed=blamed and index == 0
            )
        device.sent.clear()
        state.ledger.release_device(device.seat)

    def _is_excluded(self, seat: DeviceSlot) -> bool:
        return seat in self._useless or len(self._failures[seat]) >= SEAT_FAILURES

    def _compute_chunk_limit(self, device: _ActorState) -> float:
        """The time limit for a device's current chunk: twice the time it takes if every task is killed at its limit."""
        limits = self._worker_config.limits
        first = next(iter(device.sent.values()))
        each = limits.seconds + limits.start_s
        return 2 * (limits.start_s + limits.silence_s + limits.reference_s + len(first.chunk.work) * each)

    # Work

    def _fill_queues(self, state: _RunState) -> None:
        """Request work while there is room."""
        most = self._sizes.max_waiting(len(state.devices))
        room = most - state.ledger.waiting_count - state.builds.waiting_count
        if not state.more or self._stopping or room <= most // 2:
            return
        taken = 0
        for work in itertools.islice(state.work, room):
            taken += 1
            self._add_outcome(state, state.builds.submit_work(work))
        state.more = taken == room

    def _add_outcome(self, state: _RunState, ready: WorkItem | Record | None) -> None:
        if isinstance(ready, WorkItem):
            state.ledger.add(ready)
        elif ready is not None:
            state.records.append(ready)

    def _start_builds(self, state: _RunState) -> None:
        # Two for each CPU: the second is queued at Ray, so that no CPU is idle between two builds.
        most = 2 * count_builders(self._nodes.values(), self._kinds)
        while not self._stopping and len(state.building) < most:
            kernel = state.builds.take_next()
            if kernel is None:
                return
            reference = self._build.options(num_cpus=1, max_retries=0).remote((kernel,), dict(self._environment))
            state.building[reference] = (kernel,)
            state.moved = time.monotonic()

    def _send_chunks(self, state: _RunState) -> None:
        """Send chunks to devices, the least busy first."""
        if self._stopping:
            return
        lanes = Counter(device.info.lane for device in state.devices.values() if device.info)
        for full in range(1, self._sizes.ahead + 1):
            for device in list(state.devices.values()):
                if device.info is not None and len(device.sent) < full:
                    in_flight = [sent.chunk for sent in device.sent.values()]
                    chunk = state.ledger.take(device.info.lane, lanes[device.info.lane], device.seat, in_flight)
                    if chunk is not None:
                        self._send_chunk(state, device, chunk)

    def _send_chunk(self, state: _RunState, device: _ActorState, chunk: Chunk) -> None:
        assert device.info is not None
        state.moved = time.monotonic()
        differs = describe_differences(chunk.work[0].task.versions, device.info.versions)
        if differs:
            state.ledger.take_back_lost(chunk, differs, blamed=False)
            self._useless.add(device.seat)
            self._handle_loss(state, device, f"{device.info.host} has {differs}")
            return
        judged = [(work, self._quarantine.reject_task(work.task)) for work in chunk.work]
        refused = tuple(record for _, record in judged if record is not None)
        allowed = [work for work, record in judged if record is None]
        if not allowed:
            state.records += state.ledger.finish_chunk(chunk, refused, None)[0]
            return
        if not device.sent:
            device.busy_since = state.moved
        reference = device.actor.run.remote(allowed)
        device.sent[reference] = _SentChunk(chunk, refused)
        state.owners[reference] = device

    # Answers

    def _collect_results(self, state: _RunState) -> None:
        """Wait for an answer, then handle all that have arrived."""
        waited = [*state.owners, *state.building]
        if not waited:
            time.sleep(_PAUSE_S)
            return
        ready, rest = self._ray.wait(waited, num_returns=1, timeout=_PAUSE_S)
        if ready and rest:
            ready += self._ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        for reference in ready:
            if reference in state.building:
                self._handle_build(state, reference)
            elif reference in state.owners:  # else its device has just been lost
                self._handle_answer(state, reference)

    def _handle_answer(self, state: _RunState, reference: Any) -> None:
        device = state.owners.pop(reference)
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if reference in device.sent and not isinstance(getattr(error, "cause", None), DeviceError):
                self._reject_chunk(state, device, reference, format_cause(error))
            else:
                # The actor is alive and reports that its device cannot be used: no task is to blame.
                self._handle_loss(state, device, format_cause(error), blamed=False)
            return
        except self._ray.exceptions.RayError as error:
            self._handle_loss(state, device, format_cause(error))
            return
        if isinstance(answer, DeviceInfo):
            device.info = answer
        else:
            self._handle_result(state, device, reference, answer)

    def _reject_chunk(self, state: _RunState, device: _ActorState, reference: Any, why: str) -> None:
        """Handle a failure of a living actor: the chunk is the cause, and the device stays in use."""
        sent = device.sent.pop(reference)
        state.moved = device.busy_since = time.monotonic()
        emit(Notice(f"{device.seat} could not process {len(sent.chunk.work)} tasks: {why}"))
        state.records += state.ledger.take_back_rejected(sent.chunk, f"{device.seat}: {why}")

    def _handle_result(self, state: _RunState, device: _ActorState, reference: Any, answer: ChunkResult) -> None:
        sent = device.sent.pop(reference)
        state.moved = device.busy_since = time.monotonic()
        self._failures.pop(device.seat, None)
        for notice in answer.notices:
            emit(Notice(notice))
        kept, unanswered = state.ledger.finish_chunk(sent.chunk, (*answer.records, *sent.refused), answer.seconds)
        state.records += kept
        if unanswered:
            assert device.info is not None
            for ready in state.builds.handle_missing(unanswered, f"{device.info.host} does not find it in its stores"):
                self._add_outcome(state, ready)

    def _handle_build(self, state: _RunState, reference: Any) -> None:
        kernels = state.building.pop(reference)
        state.moved = time.monotonic()
        try:
            freed = state.builds.handle_results(self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            emit(Notice(f"a build failed: {format_cause(error)}"))
            freed = state.builds.retry_builds(kernels, format_cause(error))
        for ready in freed:
            self._add_outcome(state, ready)

    # Shutdown

    def _release_cluster(self, state: _RunState) -> None:
        """Release all resources of the cluster."""
        for reference in state.building:
            self._ray.cancel(reference, force=True)
        for device in state.devices.values():
            self._ray.kill(device.actor)
        state.building.clear()
        state.devices.clear()
        state.owners.clear()
        self._state = None

    def _check_stalled(self, state: _RunState) -> None:
        idle = time.monotonic() - state.moved
        seats = list_slots(self._nodes.values(), self._kinds, builds=self._builds)
        hopeless = bool(seats) and all(map(self._is_excluded, seats))
        if state.ledger.out or state.building or (idle <= self._patience_s and not hopeless):
            return
        there = Counter(device.info.lane if device.info else "not ready" for device in state.devices.values())
        told = ", ".join(f"{count} × {lane}" for lane, count in sorted(there.items())) or "none"
        waiting = ", ".join(f"{count} for {lane}" for lane, count in sorted(state.ledger.count_waiting().items()))
        raise ClusterError(
            f"no device of the cluster could take the waiting tasks ({waiting or 'for builds'}) for {idle:.0f} s; "
            f"the limit is {self._patience_s:.0f} s. Devices: {told}; nodes: {len(self._nodes)}. "
            f"Last failure: {self._last_failure or 'none'}. Add nodes that have what is missing, or end other jobs, "
            "and run the command again: all results so far are kept"
        )


def _make_loss_key(device: _ActorState, blamed: bool) -> str:
    """The cause that a loss is counted under: the task that was alone at the device, or this loss."""
    first = next(iter(device.sent.values()), None)
    if blamed and first is not None and len(first.chunk.work) == 1:
        return first.chunk.work[0].task.key
    return secrets.token_hex(8)


def report_changes(before: Mapping[str, Node], now: Mapping[str, Node], work: str) -> None:
    """Emit a notice for each node that is gone or joined; `work` names the things that are sent to nodes."""
    for name, node in before.items():
        if name not in now:
            emit(Notice(f"node {name[:8]} ({node.host}) is gone, {len(now)} remain: its {work} go to others"))
    for name, node in now.items():
        if name not in before:
            emit(Notice(f"node {name[:8]} ({node.host}) joined with {node.cpus} CPUs and {node.gpus} GPUs"))


def format_cause(error: BaseException) -> str:
    """Ray's error in one line; for an error on a node, the error itself without Ray's traceback."""
    cause = getattr(error, "cause", None)
    said = cause if isinstance(cause, BaseException) else error
    return f"{type(said).__name__}: {' '.join(str(said).split())}"[:500]
