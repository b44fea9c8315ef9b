"""Track the work that a cluster has not finished: pure book-keeping, so that no task is lost or counted twice."""

from __future__ import annotations

import itertools
import time
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, fields

from tilewright.base.errors import InvalidValueError
from tilewright.bench.cluster.slots import CPU
from tilewright.bench.executor import WorkItem
from tilewright.bench.plan import TEAM
from tilewright.bench.record import Record, format_message

# Weight of a new measurement in the running mean: about ten chunks count, so that one slow kernel does not dominate.
_SHARE_OF_NEW = 0.2


def choose_queue(work: WorkItem) -> str:
    """The queue of a task: the GPUs of its architecture, or any CPU. Queues do not wait for each other."""
    return f"gpu {work.task.arch}" if work.task.device.startswith("gpu:") else CPU


@dataclass(frozen=True)
class ChunkSizes:
    """How much is sent at once. A chunk is the content of one message to a device.

    Chunks are sized to take `chunk_s`: long enough to make messages cheap, short enough that a lost node costs little
    and that results are journalled soon.
    """

    chunk_s: float = 0.5
    chunk_most: int = 256
    # The most tasks that may wait for a device or for a kernel build: a total, or a number per device, whichever is
    # larger. Each device should find a problem that no other device works on, with a full batch of kernels.
    held_most: int = 8192
    held_each: int = 2 * TEAM
    ahead: int = 2  # chunks at one device: one is measured while the next is sent
    losses_most: int = 3  # devices that a task may crash before it is recorded as crashed

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) <= 0:
                raise InvalidValueError(f"{each.name} is {getattr(self, each.name)}, must be above 0")

    def max_waiting(self, devices: int) -> int:
        """The most tasks that may wait when there are this many devices."""
        return max(self.held_most, self.held_each * devices)


@dataclass(frozen=True)
class Chunk:
    """Work that is sent together to one device."""

    number: int
    lane: str
    work: tuple[WorkItem, ...]
    alone: bool = False  # work that was lost before: its device gets nothing else meanwhile


# A problem and a device name. A chunk goes to one device, whose worker caches one reference.
Subject = tuple[str, str]


@dataclass
class _WorkQueue:
    fresh: dict[Subject, deque[WorkItem]] = field(default_factory=dict)
    again: deque[WorkItem] = field(default_factory=deque)  # lost before: each is sent alone
    count: int = 0  # of fresh
    mean_s: float | None = None  # of one task

    def __len__(self) -> int:
        return self.count + len(self.again)

    def add(self, work: WorkItem) -> None:
        subject = (work.task.device, work.task.problem)
        queue = self.fresh.get(subject)
        if queue is None:
            queue = self.fresh[subject] = deque()
        queue.append(work)
        self.count += 1

    def take(self, subject: Subject, most: int) -> list[WorkItem]:
        """Take up to `most` tasks of a subject, first in first out."""
        queue = self.fresh[subject]
        taken = [queue.popleft() for _ in range(min(most, len(queue)))]
        if not queue:
            del self.fresh[subject]
        self.count -= len(taken)
        return taken


@dataclass
class Ledger:
    """Waiting work, by queue, and the chunks at devices. Every piece of work gives exactly one record."""

    sizes: ChunkSizes = ChunkSizes()
    _lanes: dict[str, _WorkQueue] = field(default_factory=dict)
    _out: dict[int, Chunk] = field(default_factory=dict)
    _at: dict[Hashable, Subject] = field(default_factory=dict)  # what each device was last sent
    _losses: Counter[str] = field(default_factory=Counter)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def waiting_count(self) -> int:
        """The number of tasks that wait for a device."""
        return sum(len(lane) for lane in self._lanes.values())

    @property
    def out(self) -> int:
        """The number of tasks at devices."""
        return sum(len(chunk.work) for chunk in self._out.values())

    def count_waiting(self) -> dict[str, int]:
        """The number of waiting tasks by queue, without empty queues."""
        return {name: len(lane) for name, lane in self._lanes.items() if lane}

    def add(self, work: WorkItem) -> None:
        """Add work to its queue."""
        self._get_queue(choose_queue(work)).add(work)

    def take(
        self, lane: str, devices: int = 1, taker: Hashable = None, in_flight: Iterable[Chunk] = ()
    ) -> Chunk | None:
        """The next chunk of a queue that `devices` share for a device, the `taker`, that has chunks `in_flight`.

        Work that was lost before goes first, and only to a device with nothing in flight: a device that dies may lose
        the answer of the chunk before, and the wrong chunk would be blamed. The result is None if the queue is empty,
        or if the device must finish its chunks first.

        A device stays with its problem while there is work for it, and then gets a problem that no other device works
        on, if there is one.
        """
        queues = self._lanes.get(lane)
        in_flight = tuple(in_flight)
        if not queues or any(each.alone for each in in_flight) or (queues.again and in_flight):
            return None
        alone = bool(queues.again)
        taken = (
            [queues.again.popleft()]
            if alone
            else self._take_work(queues, self._compute_chunk_size(queues, devices), taker)
        )
        chunk = Chunk(next(self._numbers), lane, tuple(taken), alone)
        self._out[chunk.number] = chunk
        return chunk

    def release_device(self, taker: Hashable) -> None:
        """Release the problem of a device that is gone."""
        self._at.pop(taker, None)

    def _take_work(self, queues: _WorkQueue, most: int, taker: Hashable) -> list[WorkItem]:
        others = {subject for each, subject in self._at.items() if each != taker}
        own = self._at.get(taker)
        free = [own] if own in queues.fresh else []
        free += itertools.islice((each for each in queues.fresh if each not in others and each != own), most)
        first = free[0] if free else next(iter(queues.fresh))
        taken = queues.take(first, most)
        for subject in free[1:]:
            if len(taken) >= most:
                break
            if subject[0] == first[0]:
                taken += queues.take(subject, most - len(taken))
        self._at[taker] = (taken[-1].task.device, taken[-1].task.problem)
        return taken

    def finish_chunk(
        self, chunk: Chunk, records: Iterable[Record], seconds: float | None
    ) -> tuple[list[Record], list[WorkItem]]:
        """The valid records of a chunk, one for each piece of its work; and the work that has none.

        `seconds` is the time it took; None if that does not predict the next chunk.
        """
        if self._out.pop(chunk.number, None) is None:
            return [], []
        wanted = Counter(work.task.key for work in chunk.work)
        kept = []
        for record in records:
            if wanted[record.key] > 0:
                wanted[record.key] -= 1
                self._losses.pop(record.key, None)
                kept.append(record)
        lane = self._get_queue(chunk.lane)
        if kept and seconds is not None:
            mean = seconds / len(kept)
            lane.mean_s = mean if lane.mean_s is None else lane.mean_s + _SHARE_OF_NEW * (mean - lane.mean_s)
        unanswered = []
        for work in chunk.work:
            if wanted[work.task.key] > 0:
                wanted[work.task.key] -= 1
                unanswered.append(work)
        return kept, unanswered

    def take_back_lost(self, chunk: Chunk, why: str, *, blamed: bool) -> list[Record]:
        """Take back a chunk whose device is gone. `blamed`: the device was running it, so it may be the cause.

        Each piece is sent again, alone. A piece that was blamed `losses_most` times alone gets a record that says so.
        """
        if self._out.pop(chunk.number, None) is None:
            return []
        queues = self._get_queue(chunk.lane)
        given_up = []
        for work in chunk.work:
            key = work.task.key
            # In a chunk of several tasks the cause is unknown: only a task that was alone is blamed.
            if blamed and len(chunk.work) == 1:
                self._losses[key] += 1
            if self._losses[key] >= self.sizes.losses_most:
                losses = self._losses.pop(key)
                told = f"{losses} devices of the cluster were lost while they measured it; the last: {why}"
                given_up.append(_make_crash_record(work, told))
            else:
                queues.again.append(work)
        return given_up

    def take_back_rejected(self, chunk: Chunk, why: str) -> list[Record]:
        """Take back a chunk that its living device could not process.

        A piece that was alone gets a record with the reason. In a chunk of several the cause is unknown: each is sent
        again, alone.
        """
        if self._out.pop(chunk.number, None) is None:
            return []
        if len(chunk.work) == 1:
            self._losses.pop(chunk.work[0].task.key, None)
            return [_make_crash_record(chunk.work[0], f"no device of the cluster could process it: {why}")]
        self._get_queue(chunk.lane).again.extend(chunk.work)
        return []

    def _get_queue(self, name: str) -> _WorkQueue:
        found = self._lanes.get(name)
        if found is None:
            found = self._lanes[name] = _WorkQueue()
        return found

    def _compute_chunk_size(self, lane: _WorkQueue, devices: int) -> int:
        """As many tasks as take `chunk_s`; near the end fewer, so that all devices have work."""
        if lane.mean_s is None:
            return 1
        by_time = int(self.sizes.chunk_s / max(lane.mean_s, 1e-6))
        shared = -(-lane.count // (2 * max(devices, 1)))
        return max(1, min(by_time, shared, self.sizes.chunk_most))


def _make_crash_record(work: WorkItem, why: str) -> Record:
    return Record(task=work.task, status="crashed", message=format_message(why), worker="cluster", started=time.time())
