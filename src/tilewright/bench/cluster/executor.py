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
from tilewright.base.events import Noticed, emit
from tilewright.bench.cluster.actor import Answer, DeviceActor, Hello, build_on_node
from tilewright.bench.cluster.builds import Builds
from tilewright.bench.cluster.ledger import Chunk, Ledger, Sizes
from tilewright.bench.cluster.seats import CPU, GPU, Node, Seat, builders_of, check_nodes, seats_of
from tilewright.bench.cluster.session import AUTO, Session, ray_module, shared_environment
from tilewright.bench.cluster.versions import unlike
from tilewright.bench.executor import REPLAY, Crew, Work
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
class _Sent:
    """A chunk at a device, and the records of its tasks that were not sent because their kernel is quarantined."""

    chunk: Chunk
    refused: tuple[Record, ...]


@dataclass
class _Device:
    """An actor as the coordinator sees it. It processes its chunks in order."""

    seat: Seat
    actor: Any
    info: Hello | None = None
    sent: dict[Any, _Sent] = field(default_factory=dict)  # by Ray's reference to the answer
    busy_since: float = 0.0  # when the first of them began


@dataclass
class _State:
    """The state of one run."""

    work: Iterator[Work]
    builds: Builds
    ledger: Ledger
    devices: dict[Seat, _Device] = field(default_factory=dict)
    owners: dict[Any, _Device] = field(default_factory=dict)  # of references to device infos and answers
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
        crew: Crew,
        *,
        address: str = AUTO,
        quarantine: Quarantine | None = None,
        sizes: Sizes | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._crew = crew
        self._sizes = sizes or Sizes()
        self._quarantine = quarantine or Quarantine(FAILURES)
        self._patience_s = patience_s
        self._kinds = frozenset(GPU if name.startswith("gpu:") else CPU for name in devices)
        self._builds = any(name.partition(":")[0] != REPLAY for name in devices)
        self._environment = shared_environment()
        # The causes of each slot's consecutive failures. A task that kills its device repeatedly counts once.
        self._failures: defaultdict[Seat, set[str]] = defaultdict(set)
        self._useless: set[Seat] = set()  # other software: a retry cannot help
        self._last_failure = ""
        self._stopping = False
        self._state: _State | None = None
        self._ray = ray_module()
        self._session = Session(address)
        try:
            self._nodes = self._session.nodes()
            self._actor_class = self._ray.remote(DeviceActor)
            self._build = self._ray.remote(build_on_node)
            check_nodes(self._nodes.values(), self._kinds, builds=self._builds, shared=bool(self._environment))
        except BaseException:
            self._session.close()
            raise

    @property
    def devices(self) -> int:
        """The number of devices that the cluster now has for this sweep."""
        return len(seats_of(self._nodes.values(), self._kinds, builds=self._builds))

    def run(self, work: Iterable[Work], kernels: Iterable[str] = ()) -> Iterator[Record]:
        """The records, in any order, as they arrive. See `Executor.run`."""
        state = self._state = _State(iter(work), Builds(iter(kernels)), Ledger(self._sizes))
        try:
            while True:
                self._look(state)
                self._fill(state)
                self._start_builds(state)
                self._hand_out(state)
                while state.records:
                    yield state.records.popleft()
                if self._done(state):
                    return
                self._check_patience(state)
                self._collect(state)
        finally:
            self._end(state)

    def stop(self) -> None:
        """Start no more work: `run` yields the records of work at devices, and ends. Any thread may call it."""
        self._stopping = True

    def close(self) -> None:
        """Stop all devices at once, and leave the cluster."""
        if self._state is not None:
            self._end(self._state)
        self._session.close()

    def _done(self, state: _State) -> bool:
        if state.records or state.ledger.out:
            return False
        return self._stopping or not (state.more or state.ledger.held or state.builds.held)

    # Nodes and devices

    def _look(self, state: _State) -> None:
        """Query the nodes. Devices of dead nodes are lost, and new slots get a device."""
        now = time.monotonic()
        if now - state.looked < LOOK_S:
            return
        state.looked = now
        before, self._nodes = self._nodes, self._session.nodes()
        _tell_changes(before, self._nodes)
        seats = seats_of(self._nodes.values(), self._kinds, builds=self._builds)
        for seat, device in list(state.devices.items()):
            if seat.node not in self._nodes:
                self._lose(state, device, "its node died")
            elif device.sent and now - device.busy_since > self._longest(device):
                self._lose(state, device, f"it has not answered for {now - device.busy_since:.0f} s")
        for seat in sorted(seats - state.devices.keys()):
            if not self._is_left_alone(seat) and not self._stopping:
                self._seat(state, seat)

    def _seat(self, state: _State, seat: Seat) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415  (part of an extra)

        actor = self._actor_class.options(
            num_gpus=1 if seat.kind == GPU else 0,
            num_cpus=1 if seat.kind == CPU else 0,
            max_restarts=0,  # a lost device is replaced here, as its chunks are known here
            scheduling_strategy=NodeAffinitySchedulingStrategy(seat.node, soft=False),
        ).remote(seat.kind, self._crew, self._quarantine.limit, dict(self._environment))
        device = state.devices[seat] = _Device(seat, actor)
        state.owners[actor.describe_device.remote()] = device

    def _lose(self, state: _State, device: _Device, why: str, *, blamed: bool = True) -> None:
        """Handle a lost device: its work is sent again. Only the chunk that it was running can be the cause."""
        state.devices.pop(device.seat, None)
        for reference in [each for each, owner in state.owners.items() if owner is device]:
            del state.owners[reference]
        self._ray.kill(device.actor)  # it may be alive, but its answers are not read any more
        if device.seat.node in self._nodes:
            self._failures[device.seat].add(_subject_of(device, blamed))
            then = "and not used any more" if self._is_left_alone(device.seat) else "and started again"
            self._last_failure = f"{device.seat}: {why}"
            emit(Noticed(f"{device.seat} is lost {then}: {why}"))
        for index, sent in enumerate(device.sent.values()):
            state.records += state.ledger.lose(sent.chunk, f"{device.seat}: {why}", blamed=blamed and index == 0)
        device.sent.clear()
        state.ledger.forget(device.seat)

    def _is_left_alone(self, seat: Seat) -> bool:
        return seat in self._useless or len(self._failures[seat]) >= SEAT_FAILURES

    def _longest(self, device: _Device) -> float:
        """The time limit for a device's current chunk: twice the time it takes if every task is killed at its limit."""
        limits = self._crew.limits
        first = next(iter(device.sent.values()))
        each = limits.seconds + limits.start_s
        return 2 * (limits.start_s + limits.silence_s + limits.reference_s + len(first.chunk.work) * each)

    # Work

    def _fill(self, state: _State) -> None:
        """Request work while there is room."""
        most = self._sizes.held(len(state.devices))
        room = most - state.ledger.held - state.builds.held
        if not state.more or self._stopping or room <= most // 2:
            return
        taken = 0
        for work in itertools.islice(state.work, room):
            taken += 1
            self._place(state, state.builds.ready(work))
        state.more = taken == room

    def _place(self, state: _State, ready: Work | Record | None) -> None:
        if isinstance(ready, Work):
            state.ledger.add(ready)
        elif ready is not None:
            state.records.append(ready)

    def _start_builds(self, state: _State) -> None:
        # Two for each CPU: the second is queued at Ray, so that no CPU is idle between two builds.
        most = 2 * builders_of(self._nodes.values(), self._kinds)
        while not self._stopping and len(state.building) < most:
            kernel = state.builds.next()
            if kernel is None:
                return
            reference = self._build.options(num_cpus=1, max_retries=0).remote((kernel,), dict(self._environment))
            state.building[reference] = (kernel,)
            state.moved = time.monotonic()

    def _hand_out(self, state: _State) -> None:
        """Send chunks to devices, the least busy first."""
        if self._stopping:
            return
        lanes = Counter(device.info.lane for device in state.devices.values() if device.info)
        for full in range(1, self._sizes.ahead + 1):
            for device in list(state.devices.values()):
                if device.info is not None and len(device.sent) < full:
                    chunk = state.ledger.take(device.info.lane, lanes[device.info.lane], device.seat)
                    if chunk is not None:
                        self._send(state, device, chunk)

    def _send(self, state: _State, device: _Device, chunk: Chunk) -> None:
        assert device.info is not None
        state.moved = time.monotonic()
        differs = unlike(chunk.work[0].task.versions, device.info.versions)
        if differs:
            state.ledger.lose(chunk, differs, blamed=False)
            self._useless.add(device.seat)
            self._lose(state, device, f"{device.info.host} has {differs}")
            return
        judged = [(work, self._quarantine.refused(work.task)) for work in chunk.work]
        refused = tuple(record for _, record in judged if record is not None)
        allowed = [work for work, record in judged if record is None]
        if not allowed:
            state.records += state.ledger.settle(chunk, refused, None)[0]
            return
        if not device.sent:
            device.busy_since = state.moved
        reference = device.actor.run.remote(allowed)
        device.sent[reference] = _Sent(chunk, refused)
        state.owners[reference] = device

    # Answers

    def _collect(self, state: _State) -> None:
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
                self._take_build(state, reference)
            elif reference in state.owners:  # else its device has just been lost
                self._take_answer(state, reference)

    def _take_answer(self, state: _State, reference: Any) -> None:
        device = state.owners.pop(reference)
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if reference in device.sent and not isinstance(getattr(error, "cause", None), DeviceError):
                self._refuse(state, device, reference, _cause(error))
            else:
                # The actor is alive and reports that its device cannot be used: no task is to blame.
                self._lose(state, device, _cause(error), blamed=False)
            return
        except self._ray.exceptions.RayError as error:
            self._lose(state, device, _cause(error))
            return
        if isinstance(answer, Hello):
            device.info = answer
        else:
            self._settle(state, device, reference, answer)

    def _refuse(self, state: _State, device: _Device, reference: Any, why: str) -> None:
        """Handle a failure of a living actor: the chunk is the cause, and the device stays in use."""
        sent = device.sent.pop(reference)
        state.moved = device.busy_since = time.monotonic()
        emit(Noticed(f"{device.seat} could not process {len(sent.chunk.work)} tasks: {why}"))
        state.records += state.ledger.refuse(sent.chunk, f"{device.seat}: {why}")

    def _settle(self, state: _State, device: _Device, reference: Any, answer: Answer) -> None:
        sent = device.sent.pop(reference)
        state.moved = device.busy_since = time.monotonic()
        self._failures.pop(device.seat, None)
        for notice in answer.notices:
            emit(Noticed(notice))
        kept, unanswered = state.ledger.settle(sent.chunk, (*answer.records, *sent.refused), answer.seconds)
        state.records += kept
        if unanswered:
            assert device.info is not None
            for ready in state.builds.gone(unanswered, f"{device.info.host} does not find it in its stores"):
                self._place(state, ready)

    def _take_build(self, state: _State, reference: Any) -> None:
        kernels = state.building.pop(reference)
        state.moved = time.monotonic()
        try:
            freed = state.builds.settle(self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            emit(Noticed(f"a build failed: {_cause(error)}"))
            freed = state.builds.lose(kernels, _cause(error))
        for ready in freed:
            self._place(state, ready)

    # Shutdown

    def _end(self, state: _State) -> None:
        """Release all resources of the cluster."""
        for reference in state.building:
            self._ray.cancel(reference, force=True)
        for device in state.devices.values():
            self._ray.kill(device.actor)
        state.building.clear()
        state.devices.clear()
        state.owners.clear()
        self._state = None

    def _check_patience(self, state: _State) -> None:
        idle = time.monotonic() - state.moved
        seats = seats_of(self._nodes.values(), self._kinds, builds=self._builds)
        hopeless = bool(seats) and all(map(self._is_left_alone, seats))
        if state.ledger.out or state.building or (idle <= self._patience_s and not hopeless):
            return
        there = Counter(device.info.lane if device.info else "not ready" for device in state.devices.values())
        told = ", ".join(f"{count} × {lane}" for lane, count in sorted(there.items())) or "none"
        waiting = ", ".join(f"{count} for {lane}" for lane, count in sorted(state.ledger.waiting().items()))
        raise ClusterError(
            f"no device of the cluster could take the waiting tasks ({waiting or 'for builds'}) for {idle:.0f} s; "
            f"the limit is {self._patience_s:.0f} s. Devices: {told}; nodes: {len(self._nodes)}. "
            f"Last failure: {self._last_failure or 'none'}. Add nodes that have what is missing, or end other jobs, "
            "and run the command again: all results so far are kept"
        )


def _subject_of(device: _Device, blamed: bool) -> str:
    """The cause that a loss is counted under: the task that was alone at the device, or this loss."""
    first = next(iter(device.sent.values()), None)
    if blamed and first is not None and len(first.chunk.work) == 1:
        return first.chunk.work[0].task.key
    return secrets.token_hex(8)


def _tell_changes(before: Mapping[str, Node], now: Mapping[str, Node]) -> None:
    for name, node in before.items():
        if name not in now:
            emit(Noticed(f"node {name[:8]} ({node.host}) is gone, {len(now)} remain: its tasks go to others"))
    for name, node in now.items():
        if name not in before:
            emit(Noticed(f"node {name[:8]} ({node.host}) joined with {node.cpus} CPUs and {node.gpus} GPUs"))


def _cause(error: BaseException) -> str:
    """Ray's error in one line; for an error on a node, the error itself without Ray's traceback."""
    cause = getattr(error, "cause", None)
    said = cause if isinstance(cause, BaseException) else error
    return f"{type(said).__name__}: {' '.join(str(said).split())}"[:500]
