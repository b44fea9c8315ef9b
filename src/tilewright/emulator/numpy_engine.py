"""The NumPy engine: runs the waves of a launch, group by group and basic block by basic block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tilewright.emulator import waitcnt
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.control import SKIPPING, Barrier, Call, End, GridBarrier, Jump, SkipVector
from tilewright.emulator.faults import BarrierFault, CodeFault, EndlessLoopFault, Fault
from tilewright.emulator.group import Mask, Step, WaveGroup
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.launch import LIMIT, Counters
from tilewright.emulator.profile import TRAFFIC, InstructionCounts, ProfileRecorder
from tilewright.emulator.program import BasicBlock, Program
from tilewright.emulator.scheduler import Barriers, GroupScheduler, RunnableGroup, split_slots
from tilewright.emulator.wave_paths import PathRecorder
from tilewright.emulator.write_hazards import apply_pending_loads

# An instruction takes as long for one wave as for hundreds together, so steps are limited, too.
_INSTRUCTIONS_PER_STEP = 32


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits after which a launch counts as endless."""

    instructions: int = LIMIT

    @property
    def steps(self) -> int:
        return max(self.instructions // _INSTRUCTIONS_PER_STEP, 1)


class NumpyEngine:
    """One launch of one kernel. Batches of work-groups run one after another."""

    def __init__(
        self,
        program: Program,
        code: LoadedCode,
        counters: Counters,
        budget: Budget,
        profile: ProfileRecorder | None = None,
    ) -> None:
        self._program = program
        self._profile = profile
        self._code = code
        self._counters = counters
        self._budget = budget
        self._instructions = 0
        self._waves_through: Counter[int] = Counter()  # by basic block
        self._per_block = 1

    def run(self, group: WaveGroup, entry: int) -> None:
        """Run the waves of a batch from `entry` to their end."""
        self._per_block = group.batch.waves_per_block
        first = int(group.places.wave[0])
        barriers = Barriers(first, group.waves // self._per_block, self._per_block)
        batch = _Batch(self, barriers, GroupScheduler())
        parts = split_slots(group, self._per_block) if group.batch.strict else iter([(0, group)])
        batch.run(parts, entry)

    def count_mix(self) -> None:
        """Add the executed instructions to the counters."""
        total: Counter[str] = Counter(self._counters.instructions)
        for address, waves in self._waves_through.items():
            block = self._program.get_block(address)
            self._program.record_reached(self._program.list_addresses(block))
            if self._profile is not None:
                for each in self._program.list_addresses(block):
                    self._profile.at(each).executed += waves
            for name, count in block.mix.items():
                total[name] += count * waves
        self._counters.instructions = dict(total)
        self._waves_through.clear()

    def run_block(self, address: int, group: WaveGroup) -> BasicBlock:
        """Run the basic block at an address."""
        try:
            block = self._program.get_block(address)
        except Fault as fault:
            raise self._add_fault_location(fault, group, None) from fault.__cause__
        at = 0
        steps = block.steps if self._profile is None else self._profile_steps(block, self._profile)
        try:
            if group.batch.strict:
                for at, (step, written) in enumerate(zip(steps, block.written, strict=True)):  # noqa: B007
                    step(group)
                    if written and group.pending:
                        apply_pending_loads(group, written)
            else:
                for at, step in enumerate(steps):  # noqa: B007 - for the location of a fault
                    step(group)
        except Fault as fault:
            raise self._add_fault_location(fault, group, block.sources[at]) from fault.__cause__
        except Exception as error:
            what = f"this use of the instruction ({type(error).__name__}: {error})"
            raise self._add_fault_location(
                self._code.unknown(what, block.sources[at]), group, block.sources[at]
            ) from error
        self._count_block(block, group)
        return block

    def _profile_steps(self, block: BasicBlock, profile: ProfileRecorder) -> list[Step]:
        """Return steps that add their changes of the counters to the profile."""
        return [
            _make_profiled_step(step, self._counters, profile.at(source.address))
            for step, source in zip(block.steps, block.sources, strict=True)
        ]

    def _record_paths(self, block: BasicBlock, group: WaveGroup, paths: PathRecorder) -> None:
        first, end = block.address & ~SKIPPING, block.last.next_address
        for wave in group.places.wave[group.places.wave < paths.blocks * self._per_block].tolist():
            paths.add_run(wave, first, block.count, end)

    def _count_block(self, block: BasicBlock, group: WaveGroup) -> None:
        self._waves_through[block.address] += group.waves
        if self._profile is not None:
            self._record_paths(block, group, self._profile.paths)
        self._instructions += block.count * group.waves
        self._counters.steps += block.count
        if self._instructions > self._budget.instructions or self._counters.steps > self._budget.steps:
            done = f"{self._instructions} instructions of waves in {self._counters.steps} steps"
            limit = f"the limit is {self._budget.instructions} in {self._budget.steps}"
            advice = "Waves that wait for a work-group of a later batch need a larger batch."
            raise self._add_fault_location(EndlessLoopFault(f"{done}, {limit}. {advice}"), group, block.last)

    def _add_fault_location(self, fault: Fault, group: WaveGroup, instruction: Instruction | None) -> Fault:
        """Add all known details to a fault. Steps identify the wave by its row in the group."""
        place = fault.place
        row = place.wave if place.wave is not None else 0 if group.waves == 1 else None
        if row is not None:
            block, wave = divmod(int(group.places.wave[row]), self._per_block)
            place = replace(place, block=block, wave=wave)
        known: dict[str, object] = {"kernel": self._code.kernel}
        if instruction is not None:
            known |= {"address": instruction.address, "instruction": instruction.text}
        return type(fault)(fault.what, place).add_location(**known)

    def make_fault(
        self, kind: type[Fault], what: str, group: WaveGroup, instruction: Instruction, row: int | None
    ) -> Fault:
        """Return a fault that the engine itself detected."""
        return self._add_fault_location(kind(what, CodePlace(wave=row)), group, instruction)

    @property
    def base(self) -> int:
        return self._code.base

    @property
    def counters(self) -> Counters:
        return self._counters


def _make_profiled_step(step: Step, counters: Counters, own: InstructionCounts) -> Step:
    def run(group: WaveGroup) -> None:
        own.lanes += int(np.count_nonzero(group.exec_mask))
        before = [getattr(counters, name) for name in TRAFFIC]
        step(group)
        for name, old in zip(TRAFFIC, before, strict=True):
            setattr(own, name, getattr(own, name) + getattr(counters, name) - old)

    return run


class _Batch:
    """Runs the groups of a batch from their first instruction to their end."""

    def __init__(self, engine: NumpyEngine, barriers: Barriers, schedule: GroupScheduler) -> None:
        self._engine = engine
        self._barriers = barriers
        self._schedule = schedule
        self._waiting: list[tuple[RunnableGroup, Instruction]] = []
        self._at_grid: list[tuple[RunnableGroup, Instruction]] = []  # at the barrier of the whole grid

    def run(self, parts: Iterator[tuple[int, WaveGroup]], entry: int) -> None:
        for slot, group in parts:
            self._schedule.add(RunnableGroup(group, entry, slot))
        while (entry_ := self._schedule.take_next()) is not None:
            self._run_group(entry_)
        if self._waiting or self._at_grid:
            self._raise_deadlock()

    def _run_group(self, entry: RunnableGroup) -> None:
        """Run a group until it splits, waits, ends or another group must run."""
        group, address, slot = entry.group, entry.address, entry.slot
        while True:
            block = self._engine.run_block(address, group)
            following = self._find_next(block, group, slot)
            if following is None:
                return
            address = following
            if self._schedule.needs_switch(address, slot):
                self._schedule.add(RunnableGroup(group, address, slot))
                return

    def _find_next(self, block: BasicBlock, group: WaveGroup, slot: int) -> int | None:
        """Return the address where the whole group continues; None if it splits, waits or ends."""
        ending, after = block.ending, block.after
        if ending is None:
            return after
        if isinstance(ending, SkipVector):  # the same place with vector instructions skipped is another address
            after = block.last.next_address
            ending = Jump(after | SKIPPING, ending.condition)
        if isinstance(ending, Jump):
            return self._take_jump(ending, after, group, slot)
        if isinstance(ending, Call):
            return self._take_call(ending, block, group, slot)
        if isinstance(ending, Barrier):
            return self._handle_barrier(ending, block, group, slot)
        if isinstance(ending, GridBarrier):
            self._arrive_at_grid(ending, block, group, slot)
            return None
        self._finish_waves(ending, group)
        return None

    def _take_jump(self, jump: Jump, after: int, group: WaveGroup, slot: int) -> int | None:
        if jump.condition is None:
            return jump.target
        taken = jump.condition(group)
        if taken.all():
            return jump.target
        if not taken.any():
            return after
        self._split_group(group, taken, jump.target, after, slot)
        return None

    def _split_group(self, group: WaveGroup, taken: Mask, target: int, after: int, slot: int) -> None:
        self._schedule.add(RunnableGroup(group.take(np.flatnonzero(taken)), target, slot))
        self._schedule.add(RunnableGroup(group.take(np.flatnonzero(~taken)), after, slot))

    def _take_call(self, call: Call, block: BasicBlock, group: WaveGroup, slot: int) -> int | None:
        base = self._engine.base
        targets = None if call.register is None else group.s64[call.register].copy()
        if call.link is not None:
            group.s64[call.link][...] = np.uint64(base + block.last.next_address)
        if targets is None:
            return call.target
        places = [int(target) for target in np.unique(targets)]
        if len(places) == 1:
            return self._check_address(places[0] - base, group, block, None)
        for place in places:
            rows = np.flatnonzero(targets == np.uint64(place))
            address = self._check_address(place - base, group, block, int(rows[0]))
            self._schedule.add(RunnableGroup(group.take(rows), address, slot))
        return None

    def _check_address(self, address: int, group: WaveGroup, block: BasicBlock, row: int | None) -> int:
        """Return the address after checking that it is inside this code object."""
        if address < 0 or address >= 1 << 32:
            what = f"a jump to {(address + self._engine.base) % 2**64:#x}, which is outside the code object"
            raise self._engine.make_fault(CodeFault, what, group, block.last, row)
        return address

    def _handle_barrier(self, barrier: Barrier, block: BasicBlock, group: WaveGroup, slot: int) -> int | None:
        after = block.after
        if barrier.kind != "wait":
            self._engine.counters.barriers += group.waves
        if barrier.kind == "both" and self._barriers.has_all_waves(group):
            return after
        if barrier.kind != "wait":
            first = self._barriers.signal(group)
            if barrier.first:
                group.scc[...] = first
        if barrier.kind == "signal":
            self._release_waves()
            return after
        # Waves that arrived earlier continue first.
        self._waiting.append((RunnableGroup(group, after, slot), block.last))
        self._release_waves()
        return None

    def _arrive_at_grid(self, barrier: GridBarrier, block: BasicBlock, group: WaveGroup, slot: int) -> None:
        """Let waves wait for others of the grid; the last ones let all of them continue."""
        self._at_grid.append((RunnableGroup(group, block.after, slot), block.last))
        wanted = int(group.v[barrier.register][0, int(group.exec_mask[0].argmax())]) + 1
        if sum(entry.group.waves for entry, _ in self._at_grid) >= wanted:
            for entry, _ in self._at_grid:
                self._schedule.add(entry)
            self._at_grid = []

    def _release_waves(self) -> None:
        """Schedule the waves whose barrier is complete."""
        still: list[tuple[RunnableGroup, Instruction]] = []
        for entry, where in self._waiting:
            free = self._barriers.release_waves(entry.group)
            if free.all():
                self._schedule.add(entry)
            elif free.any():
                self._schedule.add(RunnableGroup(entry.group.take(np.flatnonzero(free)), entry.address, entry.slot))
                rest = entry.group.take(np.flatnonzero(~free))
                still.append((RunnableGroup(rest, entry.address, entry.slot), where))
            else:
                still.append((entry, where))
        self._waiting = still

    def _finish_waves(self, _: End, group: WaveGroup) -> None:
        waitcnt.drain_all(group)
        self._barriers.remove_waves(group)
        self._release_waves()

    def _raise_deadlock(self) -> None:
        waiting = self._waiting or self._at_grid
        entry, where = waiting[0]
        count = sum(entry.group.waves for entry, _ in waiting)
        what = f"{count} waves wait at a barrier that never completes: not all waves of their work-groups signal it"
        raise self._engine.make_fault(BarrierFault, what, entry.group, where, 0)
