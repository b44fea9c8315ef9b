"""Detect races: waves that access the same byte without a barrier between them, on the NumPy engine.

Scalar loads are not watched. Their cache does not see the writes of a launch, so waves cannot communicate through them.
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
READ, WRITE, ATOMIC = range(3)  # kinds of access; ATOMIC returns no value, so its order does not matter
_MAX_WAVES = 64  # more than a work-group of 1024 threads can have
_SEVERAL, _UNKNOWN = -1, -2  # a byte with different written values; a value that is not known, as of atomics


@dataclass
class _WorkGroup:
    """The LDS accesses of a work-group since its last barrier: for each byte, one bit for each wave.

    `read_own` has the waves that read a byte which they had written themselves. Other waves may have written it, too,
    as long as all wrote the same `value`: the order of such reads does not matter.
    """

    alive: int
    read: NDArray[np.uint64]
    read_own: NDArray[np.uint64]
    wrote: NDArray[np.uint64]
    value: NDArray[np.int16]  # the written byte, or _SEVERAL
    epoch: int = 0  # completed barriers
    met: int = 0  # completed barriers, the ignored one included
    arrived: Counter[bool] = field(default_factory=Counter)  # waves at the ignored barrier (True) and at others (False)
    between: set[int] = field(default_factory=set)  # waves between the signal and the wait of a barrier
    unordered: bool = False  # the wait of a barrier was ignored: later barriers do not order the waves
    # The latest LDS writes of each wave that may be pending, by kind of access.
    latest: dict[tuple[int, str], list[tuple[Bytes, Values]]] = field(default_factory=lambda: defaultdict(list))


class RaceDetector:
    """Watches the accesses of launches as if the barrier at address `ignored` did not exist.

    `conflict` describes the first race: two waves of a work-group access the same byte without a barrier in between,
    and one of them writes a different value. LDS writes that are pending at a barrier continue after it. `exchanged` is
    set if a wave read a byte of memory that another wave, of any work-group, wrote: then the order may depend on more
    than barriers.
    """

    def __init__(self, ignored: int | None = None) -> None:
        self._ignored = ignored
        self._groups: dict[int, _WorkGroup] = {}
        self._memory: list[tuple[Bytes, int, int, int, int, int]] = []  # bytes, work-group, epoch, met, wave, kind
        self._copying = False
        # An LDS write whose values are not known yet.
        self._pending_write: tuple[WaveGroup, int, Mask | None, tuple[Index, ...]] | None = None
        self.conflict = ""
        self.exchanged = False

    def watch_program(self, program: Program) -> None:
        """Finish the previous launch, and watch the barriers and LDS copies of this program's launch."""
        self.finish()
        for address, line in program.lines.items():
            name = line.text.partition(" ")[0]
            if name.startswith(("s_barrier", "s_endpgm")):
                program.watch(address, partial(self._watch_barrier, address, name))
            elif line.text.endswith(" lds") or "_lds_" in name:
                program.watch(address, self._watch_copy)
            elif name.startswith("flat_atomic"):
                program.watch(address, self._watch_flat_atomic)

    def finish(self) -> None:
        """Look for conflicts in the memory accesses so far, and forget them."""
        self._flush_write()
        if self._memory:
            self._find_memory_conflicts()
        self._memory.clear()
        self._groups.clear()

    @contextmanager
    def watch_accesses(self) -> Iterator[None]:
        """Watch all accesses of the engine in this context, by replacing the functions that count them."""
        hooks: tuple[tuple[Any, str, Callable[..., None]], ...] = (
            (traffic, "count_lds_read", self._on_lds_read),
            (traffic, "count_lds_write", self._on_lds_write),
            *((module, "write_lds", self._on_lds_values) for module in (lds, flat)),
            (lds_dma, "copy_to_lds", self._on_lds_values),
            (traffic, "count_memory_read", partial(self._on_memory_access, READ)),
            (traffic, "count_memory_write", partial(self._on_memory_access, WRITE)),
            (buffer, "run_memory_atomic", self._on_atomic),
            (global_memory, "run_memory_atomic", self._on_atomic),
        )
        before = [getattr(module, name) for module, name, _ in hooks]
        for (module, name, hook), original in zip(hooks, before, strict=True):
            setattr(module, name, _call_both(hook, original))
        try:
            yield
        finally:
            for (module, name, _), original in zip(hooks, before, strict=True):
                setattr(module, name, original)
            self.finish()

    def _iterate_waves(self, group: WaveGroup) -> Iterator[tuple[int, int, _WorkGroup]]:
        """Yield each wave's row, its number in the work-group, and the work-group."""
        waves = group.batch.waves_per_block
        for row, (number, wave) in enumerate(zip(*np.divmod(group.places.wave, waves), strict=True)):
            work_group = self._groups.get(int(number))
            if work_group is None:
                read, read_own, wrote = np.zeros((3, group.batch.lds.size), np.uint64)
                work_group = _WorkGroup(waves, read, read_own, wrote, np.zeros(group.batch.lds.size, np.int16))
                self._groups[int(number)] = work_group
            yield row, int(wave), work_group

    def _on_lds_read(self, group: WaveGroup, size: int, mask: Mask | None, _: int, *index: Index) -> None:
        self._flush_write()
        for row, wave, work_group in self._iterate_waves(group):
            offsets = _list_lds_offsets(group, index, row, size, mask)
            bit = np.uint64(1) << np.uint64(wave)
            own = ((work_group.wrote[offsets] & bit) != 0) & (work_group.value[offsets] >= 0)
            self._check_conflict(work_group, wave, offsets, np.where(own, np.uint64(0), work_group.wrote[offsets]))
            work_group.read_own[offsets[own]] |= bit
            work_group.read[offsets[~own]] |= bit

    def _on_lds_write(self, group: WaveGroup, size: int, mask: Mask | None, _: int, *index: Index) -> None:
        """Keep a write: its values come with the next call, or never."""
        self._flush_write()
        self._pending_write = group, size, mask, index

    def _on_lds_values(self, group: WaveGroup, write: LdsWrite) -> None:
        self._pending_write = None
        words = np.stack([np.asarray(value) for value in write.values], axis=-1).astype(np.uint32)
        octets = np.ascontiguousarray(words).view(np.uint8)[..., : write.size].astype(np.int16)
        for row, wave, work_group in self._iterate_waves(group):
            some = slice(None) if write.mask is None else write.mask[row]
            offsets = write.index[row][some][..., None] + np.arange(write.size) - group.places.lds_base[row]
            self._record_write(work_group, wave, offsets.reshape(-1), octets[row][some].reshape(-1))

    def _flush_write(self) -> None:
        """Record the pending write, if any, with unknown values."""
        if self._pending_write is not None:
            group, size, mask, index = self._pending_write
            self._pending_write = None
            for row, wave, work_group in self._iterate_waves(group):
                offsets = _list_lds_offsets(group, index, row, size, mask)
                self._record_write(work_group, wave, offsets, np.full(offsets.shape, _UNKNOWN, np.int16))

    def _record_write(self, work_group: _WorkGroup, wave: int, offsets: Bytes, values: Values) -> None:
        self._apply_write(work_group, wave, offsets, values)
        work_group.latest[wave, "load" if self._copying else "lds"].append((offsets, values))

    def _apply_write(self, work_group: _WorkGroup, wave: int, offsets: Bytes, values: Values) -> None:
        others = ~(np.uint64(1) << np.uint64(wave))
        fresh = work_group.wrote[offsets] == 0
        same = fresh | ((work_group.value[offsets] == values) & (values >= 0))
        against = work_group.read[offsets] | np.where(
            same, np.uint64(0), work_group.wrote[offsets] | work_group.read_own[offsets]
        )
        self._check_conflict(work_group, wave, offsets, against)
        # A wave may overwrite its own bytes.
        alone = (work_group.wrote[offsets] & others) == 0
        work_group.value[offsets] = np.where(same | alone, values, _SEVERAL)
        work_group.wrote[offsets] |= ~others

    def _check_conflict(self, work_group: _WorkGroup, wave: int, offsets: Bytes, against: NDArray[np.uint64]) -> None:
        others = against & ~(np.uint64(1) << np.uint64(wave))
        if work_group.between:
            self._report_conflict("an access between the signal and the wait of a barrier")
        if others.any():
            self._report_conflict(
                f"wave {wave} and another one at byte {int(offsets[int(others.argmax())])} of the LDS"
            )

    def _report_conflict(self, description: str) -> None:
        self.conflict = self.conflict or description

    def _on_memory_access(
        self, kind: int, group: WaveGroup, index: Index, size: int, mask: Mask | None, _: int
    ) -> None:
        waves = group.batch.waves_per_block
        for row, wave, work_group in self._iterate_waves(group):
            number = int(group.places.wave[row]) // waves
            self._memory.append(
                (_list_bytes(index, row, size, mask), number, work_group.epoch, work_group.met, wave, kind)
            )

    def _on_atomic(
        self, group: WaveGroup, operation: Any, index: Index, mask: Mask | None, _: int, destination: int | None
    ) -> None:
        self._on_memory_access(ATOMIC if destination is None else WRITE, group, index, operation.size, mask, 0)
        if destination is not None:
            self._on_memory_access(READ, group, index, operation.size, mask, 0)

    def _watch_barrier(self, address: int, name: str, _: Step) -> Step:
        def run(group: WaveGroup) -> None:
            self._flush_write()
            for row, wave, work_group in self._iterate_waves(group):
                if name.startswith("s_endpgm"):
                    work_group.alive -= 1
                elif name == "s_barrier_wait":
                    work_group.between.discard(wave)
                    work_group.unordered |= address == self._ignored
                else:
                    work_group.arrived[address == self._ignored] += 1
                    work_group.between |= {wave} if name.startswith("s_barrier_signal") else set()
                    self._keep_pending_writes(group, work_group, wave)
                self._complete_barrier(work_group)
                if not work_group.alive:
                    del self._groups[int(group.places.wave[row]) // group.batch.waves_per_block]

        return run

    def _keep_pending_writes(self, group: WaveGroup, work_group: _WorkGroup, wave: int) -> None:
        """Keep as many of the latest writes as accesses of their kind are pending."""
        for kind in ("lds", "load"):
            pending = len(group.pending.get(group.batch.counter_of[kind], ()))
            latest = work_group.latest[wave, kind]
            work_group.latest[wave, kind] = latest[len(latest) - min(pending, len(latest)) :]

    def _complete_barrier(self, work_group: _WorkGroup) -> None:
        """Start a new epoch if all waves are at a barrier. Pending writes belong to the new epoch, too."""
        if work_group.arrived[True] and work_group.arrived[False]:
            self._report_conflict("waves at different barriers")
        if work_group.alive and work_group.arrived[True] == work_group.alive:
            work_group.arrived[True] = 0
            work_group.met += 1
        if work_group.alive and work_group.arrived[False] == work_group.alive:
            work_group.arrived[False] = 0
            if not work_group.unordered:
                work_group.epoch, work_group.met = work_group.epoch + 1, work_group.met + 1
                work_group.read[:] = work_group.read_own[:] = work_group.wrote[:] = 0
                for (wave, _), latest in work_group.latest.items():
                    for offsets, values in latest:
                        self._apply_write(work_group, wave, offsets, values)

    def _watch_copy(self, step: Step) -> Step:
        def run(group: WaveGroup) -> None:
            self._copying = True
            try:
                step(group)
            finally:
                self._copying = False

        return run

    def _watch_flat_atomic(self, step: Step) -> Step:
        def run(group: WaveGroup) -> None:
            self._report_conflict("a flat atomic, which is not watched")
            step(group)

        return run

    def _find_memory_conflicts(self) -> None:
        """Sort all accesses by byte, and look for bytes that several waves accessed.

        Waves that access a byte without any barrier in between in the unchanged kernel do not need the ignored one.
        """
        sizes = [each[0].size for each in self._memory]
        address = np.concatenate([each[0] for each in self._memory])
        work_group, epoch, met, wave, kind = (np.repeat([each[k] for each in self._memory], sizes) for k in range(1, 6))
        shared = np.isin(address, np.unique(address[kind != READ]))
        order = np.flatnonzero(shared)[np.lexsort((epoch[shared], work_group[shared], address[shared]))]
        if not order.size:
            return
        address, work_group, epoch, met, wave, kind = (
            each[order] for each in (address, work_group, epoch, met, wave, kind)
        )
        runs = _Runs((address, work_group, epoch))
        writes, reads, atomics = (runs.any(kind == each) for each in (WRITE, READ, ATOMIC))
        if (runs.has_several(wave) & runs.has_several(met) & (writes | (atomics & reads))).any():
            self._report_conflict("two waves at the same byte of memory")
        runs = _Runs((address,))
        written = runs.any(kind != READ) & runs.any(kind == READ)
        self.exchanged |= bool((runs.has_several(work_group * _MAX_WAVES + wave) & written).any())


class _Runs:
    """Runs of entries that are equal in all the given sorted columns."""

    def __init__(self, columns: Sequence[NDArray[Any]]) -> None:
        new = np.any([each[1:] != each[:-1] for each in columns], axis=0)
        self._starts = np.flatnonzero(np.concatenate([[True], new]))

    def has_several(self, values: NDArray[Any]) -> Mask:
        """For each run, whether its values differ."""
        different: Mask = np.minimum.reduceat(values, self._starts) != np.maximum.reduceat(values, self._starts)
        return different

    def any(self, flags: Mask) -> Mask:
        """For each run, whether one of its flags is set."""
        return np.logical_or.reduceat(flags, self._starts)


def _call_both(first: Callable[..., None], second: Callable[..., None]) -> Callable[..., None]:
    def call(*arguments: Any) -> None:
        first(*arguments)
        second(*arguments)

    return call


def _list_bytes(index: Index, row: int, size: int, mask: Mask | None) -> Bytes:
    """List the bytes that the lanes of a wave access, each once."""
    starts = index[row] if mask is None else index[row][mask[row]]
    return np.unique(starts[:, None] + np.arange(size))


def _list_lds_offsets(group: WaveGroup, index: Sequence[Index], row: int, size: int, mask: Mask | None) -> Bytes:
    """List the bytes of its work-group's LDS that a wave accesses."""
    found = np.concatenate([_list_bytes(each, row, size, mask) for each in index])
    offsets: Bytes = found - group.places.lds_base[row]
    return offsets
