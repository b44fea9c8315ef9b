"""Do waves touch the same bytes with nothing between that keeps them in order? Watches launches on NumPy's engine.

Scalar loads are not watched: their cache does not see what a launch writes, so waves exchange nothing through them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.access import buffer, flat, global_memory, lds, lds_dma, traffic
from tilewright.emulator.access.effects import LdsWrite
from tilewright.emulator.group import Step, WaveGroup
from tilewright.emulator.memory import Index, Mask
from tilewright.emulator.program import Program

Bytes = NDArray[np.int64]
Values = NDArray[np.int16]
READ, WRITE, ATOMIC = range(3)  # what is done to memory; ATOMIC: without an answer, so these need no order
_MOST_WAVES = 64  # of a work-group: 1024 threads are at most 32
_SEVERAL, _UNKNOWN = -1, -2  # bytes that were written with different values; values of atomics


@dataclass
class _Block:
    """A work-group: who read and wrote which bytes of its LDS since its waves last met, one bit for each wave.

    `again` are waves that read what they had written themselves, and what others had written as well, as long as all
    wrote the same `value`: such reads need no order.
    """

    alive: int
    read: NDArray[np.uint64]
    again: NDArray[np.uint64]
    wrote: NDArray[np.uint64]
    value: NDArray[np.int16]  # the byte that was written; _SEVERAL
    epoch: int = 0  # how often they have met
    met: int = 0  # the same, at the barrier that is left out as well
    arrived: Counter[bool] = field(default_factory=Counter)  # at the barrier that is left out, and at others
    between: set[int] = field(default_factory=set)  # waves that signalled a barrier and do not wait for it yet
    endless: bool = False  # the wait of a barrier was left out: no later one keeps waves in order
    # The latest writes of each wave to the LDS, by kind of access: those that may not be over.
    latest: dict[tuple[int, str], list[tuple[Bytes, Values]]] = field(default_factory=lambda: defaultdict(list))


class Races:
    """Watches accesses of launches, as if the barrier at `left_out` were not there.

    `found` is the first conflict: two waves of a work-group touch the same byte, one of them writes, and no barrier is
    between; but not if both write the same. Writes to the LDS that are not waited for at a barrier go on behind it.
    `exchanged`: a wave read from memory what another one wrote, of any work-group, so that the order may depend on more
    than barriers.
    """

    def __init__(self, left_out: int | None = None) -> None:
        self._left_out = left_out
        self._blocks: dict[int, _Block] = {}
        self._memory: list[tuple[Bytes, int, int, int, int, int]] = []  # bytes, work-group, epoch, met, wave, what
        self._copying = False
        self._unclaimed: tuple[WaveGroup, int, Mask | None, tuple[Index, ...]] | None = (
            None  # a write without values yet
        )
        self.found = ""
        self.exchanged = False

    def watch(self, program: Program) -> None:
        """Begin with a launch of a program: its barriers and copies to the LDS tell. Ends the launch before."""
        self.finish()
        for address, line in program.lines.items():
            name = line.text.partition(" ")[0]
            if name.startswith(("s_barrier", "s_endpgm")):
                program.watch(address, partial(self._watched_barrier, address, name))
            elif line.text.endswith(" lds") or "_lds_" in name:
                program.watch(address, self._watched_copy)
            elif name.startswith("flat_atomic"):
                program.watch(address, self._watched_unknown)

    def finish(self) -> None:
        """Look at all that launches did to memory."""
        self._settle()
        if self._memory:
            self._look_at_memory()
        self._memory.clear()
        self._blocks.clear()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While this is entered all accesses of the engine are seen, by the functions that count them."""
        places: tuple[tuple[Any, str, Callable[..., None]], ...] = (
            (traffic, "count_lds_read", self._lds_read),
            (traffic, "count_lds_write", self._lds_write),
            *((module, "write_lds", self._lds_values) for module in (lds, flat)),
            (lds_dma, "copy_to_lds", self._lds_values),
            (traffic, "count_memory_read", partial(self._accessed, READ)),
            (traffic, "count_memory_write", partial(self._accessed, WRITE)),
            (buffer, "run_memory_atomic", self._atomic),
            (global_memory, "run_memory_atomic", self._atomic),
        )
        before = [getattr(module, name) for module, name, _ in places]
        for (module, name, seen), counted in zip(places, before, strict=True):
            setattr(module, name, _both(seen, counted))
        try:
            yield
        finally:
            for (module, name, _), counted in zip(places, before, strict=True):
                setattr(module, name, counted)
            self.finish()

    def _rows(self, group: WaveGroup) -> Iterator[tuple[int, int, _Block]]:
        """Row, number in the work-group, and work-group of each wave."""
        waves = group.batch.waves_per_block
        for row, (number, wave) in enumerate(zip(*np.divmod(group.places.wave, waves), strict=True)):
            block = self._blocks.get(int(number))
            if block is None:
                read, again, wrote = np.zeros((3, group.batch.lds.size), np.uint64)
                block = _Block(waves, read, again, wrote, np.zeros(group.batch.lds.size, np.int16))
                self._blocks[int(number)] = block
            yield row, int(wave), block

    def _lds_read(self, group: WaveGroup, size: int, mask: Mask | None, _: int, *index: Index) -> None:
        self._settle()
        for row, wave, block in self._rows(group):
            places = np.concatenate([_bytes(each, row, size, mask) for each in index]) - group.places.lds_base[row]
            bit = np.uint64(1) << np.uint64(wave)
            own = ((block.wrote[places] & bit) != 0) & (block.value[places] >= 0)
            self._check(block, wave, places, np.where(own, np.uint64(0), block.wrote[places]))
            block.again[places[own]] |= bit
            block.read[places[~own]] |= bit

    def _lds_write(self, group: WaveGroup, size: int, mask: Mask | None, _: int, *index: Index) -> None:
        """A write whose values come with the next call, or never."""
        self._settle()
        self._unclaimed = group, size, mask, index

    def _lds_values(self, group: WaveGroup, write: LdsWrite) -> None:
        self._unclaimed = None
        words = np.stack([np.asarray(value) for value in write.values], axis=-1).astype(np.uint32)
        octets = np.ascontiguousarray(words).view(np.uint8)[..., : write.size].astype(np.int16)
        for row, wave, block in self._rows(group):
            some = slice(None) if write.mask is None else write.mask[row]
            places = write.index[row][some][..., None] + np.arange(write.size) - group.places.lds_base[row]
            self._wrote(block, wave, places.reshape(-1), octets[row][some].reshape(-1))

    def _settle(self) -> None:
        """Take a write of which no values came as one of unknown values."""
        if self._unclaimed is not None:
            group, size, mask, index = self._unclaimed
            self._unclaimed = None
            for row, wave, block in self._rows(group):
                places = np.concatenate([_bytes(each, row, size, mask) for each in index]) - group.places.lds_base[row]
                self._wrote(block, wave, places, np.full(places.shape, _UNKNOWN, np.int16))

    def _wrote(self, block: _Block, wave: int, places: Bytes, values: Values) -> None:
        self._write(block, wave, places, values)
        block.latest[wave, "load" if self._copying else "lds"].append((places, values))

    def _write(self, block: _Block, wave: int, places: Bytes, values: Values) -> None:
        others = ~(np.uint64(1) << np.uint64(wave))
        fresh = block.wrote[places] == 0
        same = fresh | ((block.value[places] == values) & (values >= 0))
        against = block.read[places] | np.where(same, np.uint64(0), block.wrote[places] | block.again[places])
        self._check(block, wave, places, against)
        # A wave may write other values to a place of its own.
        alone = (block.wrote[places] & others) == 0
        block.value[places] = np.where(same | alone, values, _SEVERAL)
        block.wrote[places] |= ~others

    def _check(self, block: _Block, wave: int, places: Bytes, against: NDArray[np.uint64]) -> None:
        others = against & ~(np.uint64(1) << np.uint64(wave))
        if block.between:
            self._conflict("an access between the signal and the wait of a barrier")
        if others.any():
            self._conflict(f"wave {wave} and another one at byte {int(places[int(others.argmax())])} of the LDS")

    def _conflict(self, what: str) -> None:
        self.found = self.found or what

    def _accessed(self, kind: int, group: WaveGroup, index: Index, size: int, mask: Mask | None, _: int) -> None:
        waves = group.batch.waves_per_block
        for row, wave, block in self._rows(group):
            number = int(group.places.wave[row]) // waves
            self._memory.append((_bytes(index, row, size, mask), number, block.epoch, block.met, wave, kind))

    def _atomic(
        self, group: WaveGroup, operation: Any, index: Index, mask: Mask | None, _: int, destination: int | None
    ) -> None:
        self._accessed(ATOMIC if destination is None else WRITE, group, index, operation.size, mask, 0)
        if destination is not None:
            self._accessed(READ, group, index, operation.size, mask, 0)

    def _watched_barrier(self, address: int, name: str, _: Step) -> Step:
        def run(group: WaveGroup) -> None:
            self._settle()
            for row, wave, block in self._rows(group):
                if name.startswith("s_endpgm"):
                    block.alive -= 1
                elif name == "s_barrier_wait":
                    block.between.discard(wave)
                    block.endless |= address == self._left_out
                else:
                    block.arrived[address == self._left_out] += 1
                    block.between |= {wave} if name.startswith("s_barrier_signal") else set()
                    self._carry(group, block, wave)
                self._meet(block)
                if not block.alive:
                    del self._blocks[int(group.places.wave[row]) // group.batch.waves_per_block]

        return run

    def _carry(self, group: WaveGroup, block: _Block, wave: int) -> None:
        """Keep what may not be over: as many of the latest writes as accesses of their kind are under way."""
        for kind in ("lds", "load"):
            under_way = len(group.pending.get(group.batch.counter_of[kind], ()))
            latest = block.latest[wave, kind]
            block.latest[wave, kind] = latest[len(latest) - min(under_way, len(latest)) :]

    def _meet(self, block: _Block) -> None:
        """All waves are at a barrier: what came before is over, except what nobody waited for."""
        if block.arrived[True] and block.arrived[False]:
            self._conflict("waves at different barriers")
        if block.alive and block.arrived[True] == block.alive:
            block.arrived[True] = 0
            block.met += 1
        if block.alive and block.arrived[False] == block.alive:
            block.arrived[False] = 0
            if not block.endless:
                block.epoch, block.met = block.epoch + 1, block.met + 1
                block.read[:] = block.again[:] = block.wrote[:] = 0
                for (wave, _), latest in block.latest.items():
                    for places, values in latest:
                        self._write(block, wave, places, values)

    def _watched_copy(self, step: Step) -> Step:
        def run(group: WaveGroup) -> None:
            self._copying = True
            try:
                step(group)
            finally:
                self._copying = False

        return run

    def _watched_unknown(self, step: Step) -> Step:
        def run(group: WaveGroup) -> None:
            self._conflict("a flat atomic, which is not watched")
            step(group)

        return run

    def _look_at_memory(self) -> None:
        """Sort all accesses by byte, and look for those of several waves.

        Waves that touch a byte without any barrier between in the unchanged kernel do not need this one.
        """
        sizes = [each[0].size for each in self._memory]
        place = np.concatenate([each[0] for each in self._memory])
        block, epoch, met, wave, kind = (np.repeat([each[k] for each in self._memory], sizes) for k in range(1, 6))
        shared = np.isin(place, np.unique(place[kind != READ]))
        order = np.flatnonzero(shared)[np.lexsort((epoch[shared], block[shared], place[shared]))]
        if not order.size:
            return
        place, block, epoch, met, wave, kind = (each[order] for each in (place, block, epoch, met, wave, kind))
        among = _Groups((place, block, epoch))
        writes, reads, atomics = (among.any(kind == each) for each in (WRITE, READ, ATOMIC))
        if (among.several(wave) & among.several(met) & (writes | (atomics & reads))).any():
            self._conflict("two waves at the same byte of memory")
        among = _Groups((place,))
        written = among.any(kind != READ) & among.any(kind == READ)
        self.exchanged |= bool((among.several(block * _MOST_WAVES + wave) & written).any())


class _Groups:
    """Runs of entries that are equal in all of some sorted columns."""

    def __init__(self, columns: Sequence[NDArray[Any]]) -> None:
        new = np.any([each[1:] != each[:-1] for each in columns], axis=0)
        self._starts = np.flatnonzero(np.concatenate([[True], new]))

    def several(self, values: NDArray[Any]) -> Mask:
        """Which runs have different values."""
        different: Mask = np.minimum.reduceat(values, self._starts) != np.maximum.reduceat(values, self._starts)
        return different

    def any(self, flags: Mask) -> Mask:
        """Which runs have a flag that is set."""
        return np.logical_or.reduceat(flags, self._starts)


def _both(seen: Callable[..., None], counted: Callable[..., None]) -> Callable[..., None]:
    def access(*arguments: Any) -> None:
        seen(*arguments)
        counted(*arguments)

    return access


def _bytes(index: Index, row: int, size: int, mask: Mask | None) -> Bytes:
    """The bytes that the lanes of a wave touch, each once."""
    places = index[row] if mask is None else index[row][mask[row]]
    return np.unique(places[:, None] + np.arange(size))
