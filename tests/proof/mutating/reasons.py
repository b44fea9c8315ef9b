"""Why nobody needs a barrier or a wait whose lack changes no result: shown on launches that are watched."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from tests.proof.mutating.changes import Mutation
from tests.proof.mutating.races import Races
from tilewright.emulator import waitcnt
from tilewright.emulator.device import DeviceKernel
from tilewright.emulator.disassembly import parse_line
from tilewright.emulator.group import POISON, PendingEffect, Step, WaveGroup

IDLE = "nothing to wait for"
COVERED = "the next one waits for it, too"
# LLVM counts on it: SIMemoryLegalizer.cpp leaves out waits for the LDS, because it is in a total order for all waves.
LDS_READS = "LDS reads only: the LDS does what all waves ask in order"
UNUSED = "nothing uses what it waits for before another wait"
ORDERED = "no two waves touch the same bytes between the barriers next to it"
HARMLESS = (IDLE, COVERED, LDS_READS, UNUSED, ORDERED)
# How launches are watched: what registers are filled with that a load is under way to, a number that is none or bits of
# any kind; and whether strict mode is turned, which lets loads arrive before a write to their registers or after it.
WATCHES = ((POISON, True), (0x2B7A5C31, True), (0x2B7A5C31, False))
# Wave instructions that NumPy's engine runs for one barrier or wait: it takes some 10 s for them.
BUDGET = 1 << 17
Exchange = Callable[[DeviceKernel], DeviceKernel]


def covered(mutation: Mutation, kernel: DeviceKernel) -> bool:
    """Whether a wait right behind, with only waits between, asks for as much."""
    line, lines = mutation.line, kernel.program.lines
    wait, at = waitcnt.translate(parse_line(line), kernel.code), line.address + line.size
    while wait is not None and (behind := waitcnt.translate(parse_line(lines[at]), kernel.code)) is not None:
        if all(behind.counts.get(counter, count + 1) <= count for counter, count in wait.counts.items()):
            return True
        at += lines[at].size
    return False


class Watched:
    """A wait that is taken away: `due` is what it would have waited for. Registers of it are filled with garbage."""

    def __init__(self, mutation: Mutation, garbage: int) -> None:
        self._mutation = mutation
        self._garbage = np.uint32(garbage)
        self.due: list[PendingEffect] = []
        self.races = Races()

    def exchange(self, kernel: DeviceKernel) -> DeviceKernel:
        """The kernel without the wait, that tells what is missing."""
        wait = waitcnt.translate(parse_line(self._mutation.line), kernel.code)
        assert wait is not None, self._mutation
        address = self._mutation.line.address
        program = kernel.program.replace_instruction(address, self._mutation.text)
        self.races.watch(program)

        def watched(step: Step) -> Step:
            def run(group: WaveGroup) -> None:
                step(group)
                for effect in _due(group, wait):
                    self.due.append(effect)
                    _spoil(group, effect, self._garbage)

            return run

        program.watch(address, watched)
        return dataclasses.replace(kernel, program=program)

    @property
    def needed(self) -> bool:
        """Whether other waves may have read memory or LDS before what was to be waited for was there."""
        bare = any(not effect.registers and effect.lds_write is None for effect in self.due)
        return bool(self.races.found) or (bare and self.races.exchanged)


def watched_barrier(mutation: Mutation, races: Races) -> Exchange:
    """Gives kernels whose accesses are seen as if the barrier were not there."""

    def exchange(kernel: DeviceKernel) -> DeviceKernel:
        program = kernel.program.replace_instruction(mutation.line.address, mutation.line.text)
        races.watch(program)
        return dataclasses.replace(kernel, program=program)

    return exchange


def _due(group: WaveGroup, wait: waitcnt.Wait) -> list[PendingEffect]:
    """What the wait would make visible: see `Group.drain`."""
    found = []
    for counter, count in wait.counts.items():
        queue = group.pending.get(counter, [])
        ordered = [effect for effect in queue if effect.in_order]
        found += queue if count == 0 else ordered[: max(len(ordered) - count, 0)]
    return found


def _spoil(group: WaveGroup, effect: PendingEffect, garbage: np.uint32) -> None:
    """Fill registers with garbage where the effect is going to write: in its lanes, and its half of a register."""
    if not effect.registers:
        return
    registers = [(group.v if kind == "v" else group.s)[number] for kind, number in sorted(effect.registers)]
    now = [register.copy() for register in registers]
    seen = [_committed(group, effect, registers, filling) for filling in (0, 0xFFFFFFFF)]
    for register, old, zeros, ones in zip(registers, now, *seen, strict=True):
        written = ~(zeros ^ ones)
        register[...] = (old & ~written) | (garbage & written)


def _committed(
    group: WaveGroup, effect: PendingEffect, registers: Iterable[NDArray[np.uint32]], filling: int
) -> list[NDArray[np.uint32]]:
    for register in registers:
        register[...] = np.uint32(filling)
    effect.commit(group)
    return [register.copy() for register in registers]
