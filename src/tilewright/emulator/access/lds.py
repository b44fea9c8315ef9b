"""ds_…: reads and writes of the LDS. lds_atomics.py has the atomic operations.

Addresses need not be multiples of the element size: the runtime enables unaligned access.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from tilewright.emulator.access import traffic
from tilewright.emulator.access.effects import (
    Arrival,
    LdsWrite,
    copy_registers,
    make_lane_step,
    read_lds,
    write_lds,
    write_vectors,
)
from tilewright.emulator.access.elements import LDS_READS, LDS_WRITES, Element
from tilewright.emulator.access.gather import load
from tilewright.emulator.access.lds_atomics import translate_lds_change
from tilewright.emulator.access.lds_range import check_range, compute_lds_address
from tilewright.emulator.access.operands import check_modifiers, get_number, get_operands, get_vector
from tilewright.emulator.access.permute import translate_permute
from tilewright.emulator.access.transpose import TRANSPOSES, transpose_lanes
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import U32, Step, WaveGroup
from tilewright.emulator.instruction import M0, Instruction
from tilewright.emulator.lds import MemoryViews
from tilewright.emulator.memory import Index, Mask

BY_LANE = "addtid_b32"
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
    verb, _, kind = rest.partition("_")
    if verb not in ("read", "write"):
        return translate_lds_change(rest, instruction, code)
    check_modifiers(instruction, code, ("offset",))
    return (_translate_read if verb == "read" else _translate_write)(kind, instruction, code)


def _translate_read(kind: str, instruction: Instruction, code: LoadedCode) -> Step:
    if kind in TRANSPOSES:
        return _read_transposed(instruction, code, kind)
    if kind == BY_LANE:
        return _read_by_lane(instruction, code)
    if kind not in LDS_READS:
        raise code.unknown(f"LDS read {kind}", instruction)
    return _read(instruction, code, LDS_READS[kind])


def _translate_write(kind: str, instruction: Instruction, code: LoadedCode) -> Step:
    if kind == BY_LANE:
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
