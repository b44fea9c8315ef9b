"""Reasons why a kernel does not need a barrier or a wait, found by watching launches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from tests.proof.mutating.changes import Mutation
from tests.proof.mutating.races import RaceDetector
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
# Launches are watched with these settings: a value for registers that have a pending load (NaN or arbitrary bits), and
# whether strict mode is turned, so that loads arrive before or after another write to their registers.
WATCHES = ((POISON, True), (0x2B7A5C31, True), (0x2B7A5C31, False))
# Wave instructions that the NumPy engine runs for one barrier or wait, in about 10 s.
BUDGET = 1 << 17
Exchange = Callable[[DeviceKernel], DeviceKernel]


def is_covered(mutation: Mutation, kernel: DeviceKernel) -> bool:
    """Whether a wait that follows directly, or after other waits only, waits for at least as much."""
    line, lines = mutation.line, kernel.program.lines
    wait, at = waitcnt.translate(parse_line(line), kernel.code), line.address + line.size
    while wait is not None and (following := waitcnt.translate(parse_line(lines[at]), kernel.code)) is not None:
        if all(following.counts.get(counter, count + 1) <= count for counter, count in wait.counts.items()):
            return True
        at += lines[at].size
    return False


class WatchedWait:
    """A removed wait. `due` lists the effects it would have waited for; their registers are filled with garbage."""

    def __init__(self, mutation: Mutation, garbage: int) -> None:
        self._mutation = mutation
        self._garbage = np.uint32(garbage)
        self.due: list[PendingEffect] = []
        self.races = RaceDetector()

    def exchange(self, kernel: DeviceKernel) -> DeviceKernel:
        """Return the kernel without the wait, which records the effects that are due."""
        wait = waitcnt.translate(parse_line(self._mutation.line), kernel.code)
        assert wait is not None, self._mutation
        address = self._mutation.line.address
        program = kernel.program.replace_instruction(address, self._mutation.text)
        self.races.watch_program(program)

        def watched(step: Step) -> Step:
            def run(group: WaveGroup) -> None:
                step(group)
                for effect in _list_due_effects(group, wait):
                    self.due.append(effect)
                    _fill_with_garbage(group, effect, self._garbage)

            return run

        program.watch(address, watched)
        return dataclasses.replace(kernel, program=program)

    @property
    def is_needed(self) -> bool:
        """Whether other waves may have read memory or LDS before the due effects were visible."""
        bare = any(not effect.registers and effect.lds_write is None for effect in self.due)
        return bool(self.races.conflict) or (bare and self.races.exchanged)


def watch_barrier(mutation: Mutation, races: RaceDetector) -> Exchange:
    """Return a function that replaces kernels by watched ones, as if the barrier did not exist."""

    def exchange(kernel: DeviceKernel) -> DeviceKernel:
        program = kernel.program.replace_instruction(mutation.line.address, mutation.line.text)
        races.watch_program(program)
        return dataclasses.replace(kernel, program=program)

    return exchange


def _list_due_effects(group: WaveGroup, wait: waitcnt.Wait) -> list[PendingEffect]:
    """List the effects that the wait would make visible, as `WaveGroup.drain` does."""
    found = []
    for counter, count in wait.counts.items():
        queue = group.pending.get(counter, [])
        ordered = [effect for effect in queue if effect.in_order]
        found += queue if count == 0 else ordered[: max(len(ordered) - count, 0)]
    return found


def _fill_with_garbage(group: WaveGroup, effect: PendingEffect, garbage: np.uint32) -> None:
    """Fill the bits of registers that the effect will write, in its lanes and its half of a register, with garbage."""
    if not effect.registers:
        return
    registers = [(group.v if kind == "v" else group.s)[number] for kind, number in sorted(effect.registers)]
    now = [register.copy() for register in registers]
    results = [_commit(group, effect, registers, filling) for filling in (0, 0xFFFFFFFF)]
    for register, old, zeros, ones in zip(registers, now, *results, strict=True):
        written = ~(zeros ^ ones)
        register[...] = (old & ~written) | (garbage & written)


def _commit(
    group: WaveGroup, effect: PendingEffect, registers: Iterable[NDArray[np.uint32]], filling: int
) -> list[NDArray[np.uint32]]:
    for register in registers:
        register[...] = np.uint32(filling)
    effect.commit(group)
    return [register.copy() for register in registers]
