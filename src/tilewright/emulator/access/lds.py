"""ds_…: reads, writes and atomic operations of the LDS.

Addresses of reads and writes need not be multiples of the element size: the runtime enables unaligned access. In strict
mode, atomic operations run at the wait, in order with the wave's other accesses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.emulator.access import traffic
from tilewright.emulator.access.atomics import (
    AtomicOperation,
    Values,
    apply_atomic,
    check_alignment,
    find_atomic,
    read_operand_values,
    to_registers,
)
from tilewright.emulator.access.effects import (
    Arrival,
    LdsWrite,
    Rows,
    copy_registers,
    make_element_rollback,
    make_lane_step,
    read_lds,
    write_lds,
    write_vectors,
)
from tilewright.emulator.access.elements import LDS_READS, LDS_WRITES, Element
from tilewright.emulator.access.gather import load
from tilewright.emulator.access.lds_range import check_range, compute_lds_address
from tilewright.emulator.access.operands import check_modifiers, get_number, get_operands, get_vector
from tilewright.emulator.access.permute import translate_permute
from tilewright.emulator.access.transpose import TRANSPOSES, transpose_lanes
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import U32, PendingEffect, Step, WaveGroup
from tilewright.emulator.instruction import M0, Instruction
from tilewright.emulator.lds import Lds, MemoryViews
from tilewright.emulator.memory import Index, Mask

PAIR = re.compile(r"(read|write)2(st64)?_(b32|b64)")


def translate_lds(name: str, instruction: Instruction, code: LoadedCode) -> Step:
    """Return the step of a ds_… instruction."""
    rest = name.removeprefix("ds_")
    permuted = translate_permute(rest, instruction, code)
    if permuted is not None:
        return permuted
    pair = PAIR.fullmatch(rest)
    if pair is not None:
        element = LDS_READS[pair[3]]
        unit = element.size * (64 if pair[2] else 1)
        return (_read_two if pair[1] == "read" else _write_two)(instruction, code, element, unit)
    check_modifiers(instruction, code, ("offset",))
    verb, _, kind = rest.partition("_")
    single = {"read": _translate_read, "write": _translate_write}.get(verb, _translate_atomic)
    return single(kind if verb in ("read", "write") else rest, instruction, code)


def _translate_read(kind: str, instruction: Instruction, code: LoadedCode) -> Step:
    if kind in TRANSPOSES:
        return _read_transposed(instruction, code, kind)
    if kind == "addtid_b32":
        return _read_by_lane(instruction, code)
    if kind not in LDS_READS:
        raise code.unknown(f"LDS read {kind}", instruction)
    return _read(instruction, code, LDS_READS[kind])


def _translate_write(kind: str, instruction: Instruction, code: LoadedCode) -> Step:
    if kind == "addtid_b32":
        return _write_by_lane(instruction, code)
    if kind not in LDS_WRITES:
        raise code.unknown(f"LDS write {kind}", instruction)
    return _write(instruction, code, LDS_WRITES[kind])


Offsets = Callable[[WaveGroup], Index]


def _read_address(instruction: Instruction, code: LoadedCode, register: int) -> Offsets:
    return _make_offsets(register, get_number(instruction, code, "offset"))


def _make_offsets(register: int, offset: int) -> Offsets:
    return lambda group: compute_lds_address(group, register, offset)


def _make_lane_offsets(instruction: Instruction, code: LoadedCode) -> Offsets:
    """M0 + offset + lane · 4"""
    offset = get_number(instruction, code, "offset")

    def compute_offsets(group: WaveGroup) -> Index:
        return (group.sc[M0].astype(np.int64) & 0xFFFF) + (offset + 4 * np.arange(group.lanes))

    return compute_offsets


def _read(instruction: Instruction, code: LoadedCode, element: Element) -> Step:
    data, address = get_operands(instruction, code, (2,))
    register = get_vector(instruction, code, data, element.registers)
    return _read_at(
        _read_address(instruction, code, get_vector(instruction, code, address, 1)), element, register, code
    )


def _read_by_lane(instruction: Instruction, code: LoadedCode) -> Step:
    (data,) = get_operands(instruction, code, (1,))
    return _read_at(_make_lane_offsets(instruction, code), Element(4), get_vector(instruction, code, data, 1), code)


def _read_at(offsets: Offsets, element: Element, register: int, code: LoadedCode) -> Step:
    banks = code.arch.lds.banks

    def execute(group: WaveGroup, mask: Mask | None) -> None:
        index = check_range(group, offsets(group), element.size, mask)
        traffic.count_lds_read(group, element.size, mask, banks, index)
        values = element.extend_loaded(read_lds(group, lambda views: load(views, index, element.size)))
        write_vectors(group, "lds", Arrival(register, tuple(values), mask, element.keep))

    return make_lane_step("lds", execute)


def _write(instruction: Instruction, code: LoadedCode, element: Element) -> Step:
    address, data = get_operands(instruction, code, (2,))
    register = get_vector(instruction, code, data, element.registers)
    return _write_at(
        _read_address(instruction, code, get_vector(instruction, code, address, 1)), element, register, code
    )


def _write_by_lane(instruction: Instruction, code: LoadedCode) -> Step:
    (data,) = get_operands(instruction, code, (1,))
    return _write_at(_make_lane_offsets(instruction, code), Element(4), get_vector(instruction, code, data, 1), code)


def _write_at(offsets: Offsets, element: Element, register: int, code: LoadedCode) -> Step:
    banks = code.arch.lds.banks

    def execute(group: WaveGroup, mask: Mask | None) -> None:
        index = check_range(group, offsets(group), element.size, mask)
        traffic.count_lds_write(group, element.size, mask, banks, index)
        values = element.extract_stored(copy_registers(group, register, element.registers))
        write_lds(group, LdsWrite(index, tuple(values), element.size, mask))

    return make_lane_step("lds", execute)


def _make_offset_pair(instruction: Instruction, code: LoadedCode, unit: int, address: int) -> tuple[Offsets, Offsets]:
    """Return getters of the two addresses of a lane, in units of the element or of 64 elements."""
    check_modifiers(instruction, code, ("offset0", "offset1"))
    first, second = (get_number(instruction, code, name) * unit for name in ("offset0", "offset1"))
    return _make_offsets(address, first), _make_offsets(address, second)


def _read_two(instruction: Instruction, code: LoadedCode, element: Element, unit: int) -> Step:
    data, address = get_operands(instruction, code, (2,))
    register = get_vector(instruction, code, data, 2 * element.registers)
    places = _make_offset_pair(instruction, code, unit, get_vector(instruction, code, address, 1))
    banks = code.arch.lds.banks

    def execute(group: WaveGroup, mask: Mask | None) -> None:
        first, second = (check_range(group, place(group), element.size, mask) for place in places)
        traffic.count_lds_read(group, element.size, mask, banks, first, second)

        def load_both(views: MemoryViews) -> list[U32]:
            return load(views, first, element.size) + load(views, second, element.size)

        write_vectors(group, "lds", Arrival(register, tuple(read_lds(group, load_both)), mask))

    return make_lane_step("lds", execute)


def _write_two(instruction: Instruction, code: LoadedCode, element: Element, unit: int) -> Step:
    address, *data = get_operands(instruction, code, (3,))
    registers = [get_vector(instruction, code, operand, element.registers) for operand in data]
    places = _make_offset_pair(instruction, code, unit, get_vector(instruction, code, address, 1))
    banks = code.arch.lds.banks

    def execute(group: WaveGroup, mask: Mask | None) -> None:
        index = [check_range(group, place(group), element.size, mask) for place in places]
        traffic.count_lds_write(group, element.size, mask, banks, *index)
        first, second = (group.v[register : register + element.registers] for register in registers)
        if not group.batch.strict:
            LdsWrite(index[0], tuple(first), element.size, mask).commit(group)
            LdsWrite(index[1], tuple(second), element.size, mask).commit(group)
            return
        # One instruction is one effect: stack both indices of a lane.
        values = tuple(np.stack(pair, axis=-1) for pair in zip(first, second, strict=True))
        write_lds(group, LdsWrite(np.stack(index, axis=-1), values, element.size, mask))

    return make_lane_step("lds", execute)


def _read_transposed(instruction: Instruction, code: LoadedCode, kind: str) -> Step:
    size, bits = TRANSPOSES[kind]
    if not code.arch.lds.transpose_read_bytes:
        raise code.unknown("a transposing LDS read", instruction)
    data, address = get_operands(instruction, code, (2,))
    register = get_vector(instruction, code, data, size // 4)
    offsets = _read_address(instruction, code, get_vector(instruction, code, address, 1))
    banks = code.arch.lds.banks

    def execute(group: WaveGroup, mask: Mask | None) -> None:
        if mask is not None and (mask.any(axis=1) != mask.all(axis=1)).any():
            raise code.unknown(f"{instruction.mnemonic} with lanes that exec disables", instruction)
        index = check_range(group, offsets(group), size, mask)
        traffic.count_lds_read(group, size, mask, banks, index)
        values = transpose_lanes(read_lds(group, lambda views: load(views, index, size)), bits)
        write_vectors(group, "lds", Arrival(register, tuple(values), mask))

    return make_lane_step("lds", execute)


@dataclass(frozen=True, slots=True)
class _LdsAtomic:
    """An operation on LDS elements, with its operands. Call to change the LDS; nothing is returned."""

    operation: AtomicOperation
    index: Index
    values: tuple[U32, ...]
    mask: Mask | None
    destination: int | None

    def __call__(self, lds: Lds) -> None:
        self._run(lds, want_old=False)

    def _run(self, lds: Lds, want_old: bool) -> Values | None:
        places = self.index.reshape(-1) if self.mask is None else self.index[self.mask]
        if not places.size:
            return None
        operands = read_operand_values(self.operation, self.values, self.mask)
        return apply_atomic(self.operation, lds.views, places, operands, want_old)

    def commit(self, group: WaveGroup) -> None:
        old = self._run(group.batch.lds, self.destination is not None)
        if old is not None and self.destination is not None:
            registers = to_registers(self.operation, old, (group.waves, group.lanes), self.mask)
            Arrival(self.destination, tuple(registers), self.mask).commit(group)

    def take(self, rows: Rows) -> _LdsAtomic:
        mask = None if self.mask is None else self.mask[rows]
        values = tuple(value[rows] for value in self.values)
        return _LdsAtomic(self.operation, self.index[rows], values, mask, self.destination)

    def make_rollback(self, lds: Lds) -> Callable[[], None]:
        return make_element_rollback(lds, self.index, self.operation.size, self.mask)


def _make_pending(atomic: _LdsAtomic) -> PendingEffect:
    return PendingEffect(atomic.commit, lambda rows: _make_pending(atomic.take(rows)), lds_write=atomic)


def _translate_atomic(rest: str, instruction: Instruction, code: LoadedCode) -> Step:
    """Return the step of ds_add_u32, ds_cmpst_rtn_b64 and so on, by the name after ds_."""
    old = "_rtn_" in rest
    operation = find_atomic(rest.replace("_rtn_", "_"), instruction, code)
    operands = get_operands(instruction, code, (1 + operation.operands + int(old),))
    words = operation.size // 4
    destination = get_vector(instruction, code, operands[0], words) if old else None
    address = get_vector(instruction, code, operands[int(old)], 1)
    data = [get_vector(instruction, code, operand, words) for operand in operands[int(old) + 1 :]]
    offset = get_number(instruction, code, "offset")
    banks = code.arch.lds.banks

    def execute(group: WaveGroup, mask: Mask | None) -> None:
        index = check_range(group, compute_lds_address(group, address, offset), operation.size, mask)
        check_alignment(index, operation.size, mask)
        group.batch.counters.atomics += traffic.count_lanes(group, mask)
        traffic.count_lds_write(group, operation.size, mask, banks, index)
        values = tuple(value for register in data for value in copy_registers(group, register, words))
        group.schedule_effect("lds", _make_pending(_LdsAtomic(operation, index, values, mask, destination)))

    return make_lane_step("lds", execute)
