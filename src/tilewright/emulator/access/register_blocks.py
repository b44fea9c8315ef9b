"""global_load_block, scratch_store_block and so on (gfx12): up to 32 registers, those whose bits are set in M0.

Register k of a lane belongs to the dword k behind the lane's address; registers and dwords without a bit are left alone
(AMD's pseudo-code of RDNA4, GLOBAL_LOAD_BLOCK). A load is one access for the counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tilewright.emulator.access import traffic
from tilewright.emulator.access.effects import Arrival, Rows, make_lane_step, reserve_counter
from tilewright.emulator.access.gather import load, store
from tilewright.emulator.access.private import Offsets, check_private_range
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import U32, PendingEffect, Registers, Step, WaveGroup
from tilewright.emulator.instruction import M0
from tilewright.emulator.memory import Index, Mask

BLOCK_REGISTERS = 32
_DWORD = 4
# The checked indices of dword k of each lane, for the lanes of a mask. `writes`: it is counted as a store.
Places = Callable[[WaveGroup], Callable[[int, Mask, bool], Index]]


def make_memory_places(addresses: Callable[[WaveGroup], np.ndarray], code: LoadedCode) -> Places:
    """Make a getter of the places in memory of dwords behind an address of each lane."""
    line_bytes = code.arch.memory.line_bytes

    def find_places(group: WaveGroup) -> Callable[[int, Mask, bool], Index]:
        first = addresses(group)

        def check(k: int, mask: Mask, writes: bool) -> Index:
            index = group.batch.memory.check_access(first + np.uint64(_DWORD * k), _DWORD, mask)
            count = traffic.count_memory_write if writes else traffic.count_memory_read
            count(group, index, _DWORD, mask, line_bytes)
            return index

        return check

    return find_places


def make_private_places(offsets: Offsets) -> Places:
    """Make a getter of the places in private memory of dwords behind an offset of each lane."""

    def find_places(group: WaveGroup) -> Callable[[int, Mask, bool], Index]:
        first = offsets(group)
        return lambda k, mask, _: check_private_range(group, first + _DWORD * k, _DWORD, mask)

    return find_places


def _list_selected(group: WaveGroup, mask: Mask | None) -> Iterator[tuple[int, Mask]]:
    """List the registers that M0 selects in some wave with active lanes, and their lanes."""
    active = np.ones((group.waves, group.lanes), np.bool_) if mask is None else mask
    for k in range(BLOCK_REGISTERS):
        lanes = active & ((group.sc[M0] >> np.uint32(k) & np.uint32(1)) != 0)
        if lanes.any():
            yield k, lanes


@dataclass(frozen=True, slots=True)
class _BlockArrival:
    """Values for some of the registers of a block, each with its own lanes."""

    parts: tuple[Arrival, ...]

    def commit(self, group: WaveGroup) -> None:
        for part in self.parts:
            part.commit(group)

    def take(self, rows: Rows) -> _BlockArrival:
        return _BlockArrival(tuple(part.take(rows) for part in self.parts))

    def merge_current(self, group: WaveGroup, changed: Registers) -> _BlockArrival:
        return _BlockArrival(tuple(part.merge_current(group, changed) for part in self.parts))


def _make_pending(block: _BlockArrival) -> PendingEffect:
    return PendingEffect(
        block.commit,
        lambda rows: _make_pending(block.take(rows)),
        registers=frozenset(("v", part.register) for part in block.parts),
        overtaken=lambda group, changed: _make_pending(block.merge_current(group, changed)),
    )


def translate_block_load(places: Places, register: int) -> Step:
    """Return the step of …_load_block into registers from `register` on."""

    def execute(group: WaveGroup, mask: Mask | None) -> None:
        check, parts = places(group), []
        for k, lanes in _list_selected(group, mask):
            values: list[U32] = load(group.batch.memory.views, check(k, lanes, False), _DWORD)
            parts.append(Arrival(register + k, tuple(values), lanes))
        group.schedule_effect("load", _make_pending(_BlockArrival(tuple(parts))))

    return make_lane_step("load", execute)


def translate_block_store(places: Places, register: int) -> Step:
    """Return the step of …_store_block of registers from `register` on."""

    def execute(group: WaveGroup, mask: Mask | None) -> None:
        check = places(group)
        for k, lanes in _list_selected(group, mask):
            store(group.batch.memory.views, check(k, lanes, True), [group.v[register + k]], _DWORD, lanes)
        reserve_counter(group, "store")

    return make_lane_step("store", execute)
