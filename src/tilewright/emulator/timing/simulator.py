"""The timeline of one compute unit: work-groups that share its units, clock by clock, wave by wave.

Each wave issues its instructions in order. An instruction is issued when its wave is ready (waits are over, late
results have arrived) and its SIMD's unit is free. Of several waves, the one that waits longest is first. LDS and memory
instructions then queue in a pipe of the compute unit, and their data come a latency later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from tilewright.emulator.timing.machine import TimingMachine
from tilewright.emulator.timing.operations import LDS, MEMORY, SCALAR_MEMORY, UNITS, TimedOperation

# Reasons why a wave does not issue.
WAITS_MEMORY, WAITS_SCALAR, WAITS_LDS, WAITS_BARRIER, WAITS_MATRIX, WAITS_RESULT, WAITS_ISSUE = REASONS = (
    "memory", "scalar memory", "LDS", "barrier", "matrix pipe", "result", "issue",
)  # fmt: skip
_REASON_OF_UNIT = {LDS: WAITS_LDS, MEMORY: WAITS_MEMORY, SCALAR_MEMORY: WAITS_SCALAR}

Path = Sequence[TimedOperation]


@dataclass(frozen=True, slots=True)
class Stall:
    """Clocks in which a wave did not issue, before the instruction at an address."""

    wave: int
    start: int
    end: int
    address: int
    reason: str


@dataclass(slots=True)
class Timeline:
    """The clocks of work-groups on one compute unit. Sums are over all waves."""

    clocks: int = 0  # from the start to the end of the last work-group
    blocks: list[tuple[int, int]] = field(default_factory=list)  # start and end of each work-group
    waves: int = 0
    issued: dict[int, int] = field(default_factory=dict)  # clocks in which waves issued, by address
    stalled: dict[tuple[int, str], int] = field(default_factory=dict)  # by address and reason
    visits: dict[int, list[int]] = field(default_factory=dict)  # clocks at which the first wave reached watched places
    events: list[Stall] = field(default_factory=list)

    @property
    def wave_clocks(self) -> int:
        """Clocks of all waves: those in which they issued, and those in which they did not."""
        return sum(self.issued.values()) + sum(self.stalled.values())


@dataclass(slots=True, eq=False)
class _Block:
    number: int
    start: int
    living: int
    waiting: list[_Wave] = field(default_factory=list)  # at the barrier


@dataclass(slots=True, eq=False)
class _Wave:
    number: int
    path: Path
    simd: int
    block: _Block
    at: int = 0
    since: int = 0  # when it became ready to issue its next instruction
    pending: dict[str, deque[tuple[int, str]]] = field(default_factory=dict)  # ends of accesses, by counter
    late: dict[int, tuple[int, int, str]] = field(default_factory=dict)  # result, result for C, and reason


class ComputeUnit:
    """Runs work-groups: `resident` at once, and as soon as one has ended, the next."""

    def __init__(
        self,
        machine: TimingMachine,
        blocks: Sequence[Sequence[Path]],
        *,
        watched: frozenset[int] = frozenset(),
        events: bool = False,
    ) -> None:
        self._machine = machine
        self._blocks = blocks
        self._watched = watched
        self._keeps_events = events
        simds = machine.arch.compute.simds_per_unit
        self._free = [[0] * UNITS for _ in range(simds)]
        self._matrix_free = [0] * simds
        self._pipes = {LDS: 0, MEMORY: 0}
        self._queue: list[tuple[int, int, int, _Wave]] = []
        self._timeline = Timeline()
        self._begun = 0
        self._next_start = 0

    def run(self, resident: int, total: int) -> Timeline:
        """Run `total` work-groups; the paths are used in turn."""
        for _ in range(min(resident, total)):
            self._start_block(0)
        while self._queue:
            now, _, _, wave = heappop(self._queue)
            if self._advance(wave, now) and self._begun < total:
                self._start_block(now)
        return self._timeline

    def _start_block(self, now: int) -> None:
        paths = self._blocks[self._begun % len(self._blocks)]
        now = max(now, self._next_start)
        self._next_start = now + self._machine.count_start_interval(len(paths))
        start = now + self._machine.block_start
        block = _Block(self._begun, now, len(paths))
        self._begun += 1
        for path in paths:
            number = self._timeline.waves
            wave = _Wave(number, path, number % len(self._free), block, since=start)
            self._timeline.waves += 1
            heappush(self._queue, (start, start, number, wave))

    def _advance(self, wave: _Wave, now: int) -> bool:
        """Issue a wave's next instruction, or put the wave back until that may be possible. True if its block ends."""
        operation = wave.path[wave.at]
        ready, reason = self._find_ready(wave, operation, now)
        if ready > now:
            self._add_stall(wave, now, ready, operation, reason)
            heappush(self._queue, (ready, wave.since, wave.number, wave))
            return False
        if operation.barrier and not self._pass_barrier(wave, now):
            return False
        if operation.address in self._watched and wave.number == 0:
            self._timeline.visits.setdefault(operation.address, []).append(now)
        self._issue(wave, operation, now)
        wave.at += 1
        if operation.end or wave.at == len(wave.path):
            return self._end_wave(wave, now)
        wave.since = now + operation.step
        heappush(self._queue, (wave.since, wave.since, wave.number, wave))
        return False

    def _find_ready(self, wave: _Wave, operation: TimedOperation, now: int) -> tuple[int, str]:
        """Return the earliest clock at which the instruction may be issued, and the reason if that is not now."""
        ready, reason = now, ""
        for counter, most in operation.waits:
            pending = wave.pending.get(counter)
            while pending and len(pending) > most:
                end, why = pending[0]
                if end > now:
                    end, why = pending[len(pending) - most - 1]
                    if end > ready:
                        ready, reason = end, why
                    break
                pending.popleft()
        if operation.counter:
            pending = wave.pending.get(operation.counter)
            if pending and len(pending) >= operation.capacity and pending[-operation.capacity][0] > ready:
                ready, reason = pending[-operation.capacity]
        if wave.late and operation.reads:
            ready, reason = _find_late(wave, operation, now, ready, reason)
        if operation.occupancy:
            free = self._free[wave.simd][operation.unit]
            if free > ready:
                ready, reason = free, WAITS_ISSUE
        if operation.matrix and self._matrix_free[wave.simd] > ready:
            ready, reason = self._matrix_free[wave.simd], WAITS_MATRIX
        return ready, reason

    def _issue(self, wave: _Wave, operation: TimedOperation, now: int) -> None:
        issued = self._timeline.issued
        issued[operation.address] = issued.get(operation.address, 0) + operation.step
        unit = operation.unit
        if operation.occupancy:
            self._free[wave.simd][unit] = now + operation.occupancy
        if operation.matrix:
            self._matrix_free[wave.simd] = now + operation.matrix
        if operation.counter:
            start = now
            if unit in self._pipes:
                start = max(now, self._pipes[unit])
                self._pipes[unit] = start + operation.pipe
            end = start + operation.pipe + operation.latency
            pending = wave.pending.setdefault(operation.counter, deque())
            if pending and pending[-1][0] > end:
                end = pending[-1][0]  # accesses of one counter complete in order
            pending.append((end, _REASON_OF_UNIT[unit]))
        if operation.result > operation.step:
            reason = WAITS_MATRIX if operation.matrix else WAITS_RESULT
            end = now + operation.result
            late = (end, now + operation.matrix if operation.matrix else end, reason)
            for register in operation.writes:
                wave.late[register] = late

    def _pass_barrier(self, wave: _Wave, now: int) -> bool:
        """Whether the wave passes now. The last wave lets the others continue."""
        block = wave.block
        if len(block.waiting) + 1 < block.living:
            wave.since = now
            block.waiting.append(wave)
            return False
        self._release_block(block, now)
        return True

    def _release_block(self, block: _Block, now: int) -> None:
        for other in block.waiting:
            operation = other.path[other.at]
            self._add_stall(other, other.since, now, operation, WAITS_BARRIER)
            issued = self._timeline.issued
            issued[operation.address] = issued.get(operation.address, 0) + operation.step
            other.at += 1
            other.since = now + self._machine.barrier
            heappush(self._queue, (other.since, other.since, other.number, other))
        block.waiting.clear()

    def _end_wave(self, wave: _Wave, now: int) -> bool:
        block = wave.block
        block.living -= 1
        if block.living and len(block.waiting) == block.living:
            self._release_block(block, now)
        if block.living:
            return False
        self._timeline.blocks.append((block.start, now))
        self._timeline.clocks = max(self._timeline.clocks, now)
        return True

    def _add_stall(self, wave: _Wave, start: int, end: int, operation: TimedOperation, reason: str) -> None:
        if end <= start:
            return
        stalled, key = self._timeline.stalled, (operation.address, reason)
        stalled[key] = stalled.get(key, 0) + end - start
        if self._keeps_events:
            self._timeline.events.append(Stall(wave.number, start, end, operation.address, reason))


def _find_late(wave: _Wave, operation: TimedOperation, now: int, ready: int, reason: str) -> tuple[int, str]:
    """Return the clock at which the operands of an instruction are there."""
    late, accumulates = wave.late, operation.accumulates
    for register in operation.reads:
        found = late.get(register)
        if found is not None:
            end = found[1] if register in accumulates else found[0]
            if found[0] <= now:
                del late[register]
            elif end > ready:
                ready, reason = end, found[2]
    return ready, reason


def sum_reasons(timeline: Timeline) -> Mapping[str, int]:
    """Return the stalled clocks of all waves by reason, the largest first."""
    total: dict[str, int] = {}
    for (_, reason), clocks in timeline.stalled.items():
        total[reason] = total.get(reason, 0) + clocks
    return dict(sorted(total.items(), key=lambda item: -item[1]))
