"""flat_…: each lane's address is in memory, in the LDS of the work-group, or in the lane's private memory.

The device counts them as memory and as LDS accesses. On gfx9 both counters may decrease early, so in strict mode their
values arrive only at waits for 0. From gfx10 on the counters decrease in order, as for other accesses (LLVM,
GCNSubtarget.h, `hasFlatLgkmVMemCountInOrder`; SIInsertWaitcnts.cpp forces waits for 0 only without it).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.access import traffic
from tilewright.emulator.access.atomics import (
    AtomicOperation,
    apply_atomic,
    check_alignment,
    choose_for_mode,
    find_memory_atomic,
    read_operand_values,
    to_registers,
)
from tilewright.emulator.access.buffer_descriptor import is_gfx9
from tilewright.emulator.access.effects import (
    Arrival,
    LdsWrite,
    active_lanes,
    copy_registers,
    read_lds,
    reserve_counter,
    write_lds,
    write_vectors,
)
from tilewright.emulator.access.elements import LOADS, STORES, Element
from tilewright.emulator.access.gather import load, store
from tilewright.emulator.access.global_memory import Addresses, make_addresses
from tilewright.emulator.access.lds_range import check_range
from tilewright.emulator.access.operands import CACHE_POLICY, check_modifiers, get_operands, get_vector, needs_old_value
from tilewright.emulator.access.private import check_private_range
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import U32, Step, WaveGroup
from tilewright.emulator.hardware import PRIVATE_BASE, SHARED_BASE
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.lds import MemoryViews
from tilewright.emulator.memory import Index, Mask


@dataclass(frozen=True, slots=True)
class LaneGroup:
    """Lanes of one address space, and the indices of their accesses in the views."""

    space: str  # "memory", "private" or "lds"
    index: Index
    mask: Mask | None


def group_lanes(group: WaveGroup, address: NDArray[np.uint64], size: int) -> list[LaneGroup]:
    """Group lanes by the address space of their addresses, with checked indices. Empty if no lane is active."""
    mask = active_lanes(group)
    if mask is not None and not mask.any():
        return []
    high = address >> np.uint64(32)
    shared, private = high == SHARED_BASE >> 32, high == PRIVATE_BASE >> 32
    special = shared | private
    memory = group.batch.memory
    if not (special.any() if mask is None else (special & mask).any()):
        return [LaneGroup("memory", memory.check_access(address, size, mask), mask)]
    found = []
    offset = (address & np.uint64(0xFFFFFFFF)).view(np.int64)
    for space, lanes in (("memory", ~special), ("private", private), ("lds", shared)):
        these = lanes if mask is None else lanes & mask
        if not these.any():
            continue
        if space == "memory":
            found.append(LaneGroup(space, memory.check_access(address, size, these), these))
        elif space == "private":
            found.append(LaneGroup(space, check_private_range(group, offset, size, these), these))
        else:
            found.append(LaneGroup(space, check_range(group, offset, size, these), these))
    return found


def translate_flat(name: str, instruction: Instruction, code: LoadedCode) -> Step:
    """Return the step of a flat_… instruction."""
    check_modifiers(instruction, code, CACHE_POLICY | {"offset"})
    kind, _, rest = name.removeprefix("flat_").partition("_")
    if kind == "load" and rest in LOADS:
        data, vaddr = get_operands(instruction, code, (2,))
        register = get_vector(instruction, code, data, LOADS[rest].registers)
        return _load(make_addresses(instruction, code, vaddr, None), LOADS[rest], register, code)
    if kind == "store" and rest in STORES:
        vaddr, data = get_operands(instruction, code, (2,))
        register = get_vector(instruction, code, data, STORES[rest].registers)
        return _store(make_addresses(instruction, code, vaddr, None), STORES[rest], register, code)
    if kind == "atomic":
        operation = find_memory_atomic(rest, instruction, code)
        old = needs_old_value(instruction, code)
        operands = get_operands(instruction, code, (3,) if old else (2,))
        destination = get_vector(instruction, code, operands[0], operation.size // 4) if old else None
        register = get_vector(instruction, code, operands[-1], operation.registers)
        address = make_addresses(instruction, code, operands[-2], None)
        return _translate_atomic(address, operation, register, destination, _is_in_order(code))
    raise code.unknown(f"instruction {name}", instruction)


def _is_in_order(code: LoadedCode) -> bool:
    """Whether the counters of flat accesses decrease in issue order."""
    return not is_gfx9(code)


def _fetch(group: WaveGroup, part: LaneGroup, size: int, code: LoadedCode) -> list[U32]:
    if part.space == "lds":
        traffic.count_lds_read(group, size, part.mask, code.arch.lds.banks, part.index)
        return read_lds(group, lambda views: load(views, part.index, size))
    if part.space == "memory":
        traffic.count_memory_read(group, part.index, size, part.mask, code.arch.memory.line_bytes)
    return load(group.batch.memory.views, part.index, size)


def _load(address: Addresses, element: Element, register: int, code: LoadedCode) -> Step:
    in_order = _is_in_order(code)

    def execute(group: WaveGroup) -> None:
        values: list[U32] = []
        for part in group_lanes(group, address(group), element.size):
            words = _fetch(group, part, element.size, code)
            if values and part.mask is not None:
                words = [np.where(part.mask, new, old) for new, old in zip(words, values, strict=True)]
            values = words
        if values:
            arrival = Arrival(register, tuple(element.extend_loaded(values)), active_lanes(group), element.keep)
            write_vectors(group, "load", arrival, in_order=in_order)
        else:
            reserve_counter(group, "load", in_order=in_order)
        reserve_counter(group, "lds", in_order=in_order)

    return execute


def _store(address: Addresses, element: Element, register: int, code: LoadedCode) -> Step:
    size, in_order = element.size, _is_in_order(code)

    def execute(group: WaveGroup) -> None:
        in_lds = False
        for part in group_lanes(group, address(group), size):
            values = element.extract_stored(copy_registers(group, register, element.registers))
            if part.space == "lds":
                in_lds = True
                traffic.count_lds_write(group, size, part.mask, code.arch.lds.banks, part.index)
                write_lds(group, LdsWrite(part.index, tuple(values), size, part.mask))
                continue
            if part.space == "memory":
                traffic.count_memory_write(group, part.index, size, part.mask, code.arch.memory.line_bytes)
            store(group.batch.memory.views, part.index, values, size, part.mask)
        reserve_counter(group, "store", in_order=in_order)
        if not in_lds:
            reserve_counter(group, "lds", in_order=in_order)

    return execute


def _translate_atomic(
    address: Addresses, operation: AtomicOperation, register: int, destination: int | None, in_order: bool
) -> Step:
    """Run all accesses at issue, also those to LDS: memory and LDS accesses of one instruction are unordered."""

    def execute(group: WaveGroup) -> None:
        own = choose_for_mode(operation, group)
        shape = (group.waves, group.lanes)
        values = list(np.zeros((operation.size // 4, *shape), np.uint32))
        for part in group_lanes(group, address(group), operation.size):
            check_alignment(part.index, operation.size, part.mask)
            views = _choose_views(group, part)
            places = part.index.reshape(-1) if part.mask is None else part.index[part.mask]
            operands = read_operand_values(own, group.v[register : register + own.registers], part.mask)
            old = apply_atomic(own, views, places, operands, destination is not None)
            _count_atomic(group, part, operation.size, destination is not None)
            if old is not None:
                words = to_registers(operation, old, shape, part.mask)
                values = [value | word for value, word in zip(values, words, strict=True)]
        kind = "store" if destination is None else "load"
        if destination is None:
            reserve_counter(group, kind, in_order=in_order)
        else:
            write_vectors(group, kind, Arrival(destination, tuple(values), active_lanes(group)), in_order=in_order)
        reserve_counter(group, "lds", in_order=in_order)

    return execute


def _choose_views(group: WaveGroup, part: LaneGroup) -> MemoryViews:
    return group.batch.lds.views if part.space == "lds" else group.batch.memory.views


def _count_atomic(group: WaveGroup, part: LaneGroup, size: int, old: bool) -> None:
    counters = group.batch.counters
    count = traffic.count_lanes(group, part.mask)
    counters.atomics += count
    if part.space == "memory":
        counters.global_write_bytes += size * count
        counters.global_read_bytes += size * count if old else 0
    elif part.space == "lds":
        counters.lds_write_bytes += size * count
