"""Scalar loads: one address per wave, into scalar registers.

s_scratch_load_… and s_scratch_store_… of gfx9 access memory from a base in scalar registers, like s_load_…, but a
scalar offset counts 64 bytes (ISA manual of CDNA3, 8.2.1.1). Private memory is not interleaved here, which matters if a
kernel reaches the same bytes by vector instructions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.access.buffer_descriptor import RawBuffer, read_raw_buffer
from tilewright.emulator.access.effects import ScalarArrival, write_scalars
from tilewright.emulator.access.elements import Element
from tilewright.emulator.access.gather import load
from tilewright.emulator.access.operands import (
    CACHE_POLICY,
    Scalars,
    check_modifiers,
    get_number,
    get_operands,
    get_scalar,
    get_scalar_offset,
    read_pair,
    scale_scalars,
)
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.faults import AlignmentFault
from tilewright.emulator.group import U32, Step, WaveGroup
from tilewright.emulator.instruction import Instruction, Operand

SCRATCH_LOAD = "s_scratch_load_"
DWORDS = {"dword": 1, **{f"dwordx{n}": n for n in (2, 3, 4, 8, 16)}}
SMALL = {
    "u8": Element(1),
    "i8": Element(1, signed=True),
    "u16": Element(2),
    "i16": Element(2, signed=True),
}


def translate_scalar(name: str, instruction: Instruction, code: LoadedCode) -> Step | None:
    """Return the step of s_load_…, s_scratch_load_… and s_buffer_load_…; None for other instructions."""
    for prefix, build in (("s_load_", _load), (SCRATCH_LOAD, _load), ("s_buffer_load_", _load_buffer)):
        kind = name.removeprefix(prefix)
        if kind == name:
            continue
        if kind not in DWORDS and kind not in SMALL:
            raise code.unknown(f"instruction {name}", instruction)
        element = SMALL.get(kind, Element(4))
        return build(instruction, code, element, DWORDS.get(kind, 1))
    return None


def get_offset_unit(mnemonic: str) -> int:
    """Return the bytes that 1 in a scalar offset register stands for."""
    return 64 if mnemonic.startswith("s_scratch_") else 1


def read_scalar_operands(instruction: Instruction, code: LoadedCode, count: int) -> tuple[int, Operand, Scalars]:
    """Return the destination, the base, and a getter of the offset of each wave."""
    check_modifiers(instruction, code, CACHE_POLICY | {"offset"})
    destination, base, *offsets = get_operands(instruction, code, (2, 3))
    register = get_scalar(instruction, code, destination, count)
    immediate = get_number(instruction, code, "offset")
    unit = get_offset_unit(instruction.mnemonic)
    parts = [
        scale_scalars(get_scalar_offset(instruction, code, part, signed_literal=True), unit if part.kind == "s" else 1)
        for part in offsets
    ]
    constant = np.array([immediate], np.int64)
    return register, base, lambda group: sum((part(group) for part in parts), constant)


def _load(instruction: Instruction, code: LoadedCode, element: Element, count: int) -> Step:
    register, base, offset = read_scalar_operands(instruction, code, count)
    pair = get_scalar(instruction, code, base, 2)

    def execute(group: WaveGroup) -> None:
        address = read_pair(group, pair) + offset(group).view(np.uint64)
        check_scalar_alignment(address, element.size)
        memory = group.batch.memory
        index = memory.check_access(address, element.size * count, None)
        group.batch.counters.global_read_bytes += element.size * count * group.waves
        if element.size == 4:
            words = memory.views.u32[(index >> 2)[:, None] + np.arange(count)]
            values = tuple(words[:, k] for k in range(count))
        else:
            values = tuple(element.extend_loaded(load(memory.views, index, element.size)))
        write_scalars(group, ScalarArrival(register, values))

    return execute


def _load_buffer(instruction: Instruction, code: LoadedCode, element: Element, count: int) -> Step:
    register, base, offset = read_scalar_operands(instruction, code, count)
    quad = get_scalar(instruction, code, base, 4)

    def execute(group: WaveGroup) -> None:
        buffer = read_scalar_buffer(group, quad, instruction, code)
        offsets = np.broadcast_to(offset(group), (group.waves,))
        write_scalars(group, ScalarArrival(register, _read_bounded(group, buffer, offsets, element, count)))

    return execute


def read_scalar_buffer(group: WaveGroup, quad: int, instruction: Instruction, code: LoadedCode) -> RawBuffer:
    """Read the descriptor of a scalar access, which must have no stride."""
    buffer = read_raw_buffer(group, quad, instruction, code)
    if buffer.stride:
        raise code.unknown(f"a scalar access to a buffer with stride {buffer.stride}", instruction)
    return buffer


def _read_bounded(
    group: WaveGroup, buffer: RawBuffer, offset: NDArray[np.int64], element: Element, count: int
) -> tuple[U32, ...]:
    """Read elements of the buffer; 0 past its end."""
    memory = group.batch.memory
    values = []
    for k in range(count):
        begin = offset + element.size * k
        inside = (begin >= 0) & (begin + element.size <= buffer.records[:, 0])
        value = np.zeros(group.waves, np.uint32)
        if inside.any():
            address = buffer.base[:, 0] + begin.view(np.uint64)
            check_scalar_alignment(address, element.size)
            index = memory.check_access(address, element.size, inside)
            value = np.where(inside, element.extend_loaded(load(memory.views, index, element.size))[0], value)
        group.batch.counters.global_read_bytes += element.size * int(np.count_nonzero(inside))
        values.append(value)
    return tuple(values)


def check_scalar_alignment(address: NDArray[np.uint64], size: int) -> None:
    """Raise for a misaligned address: the scalar cache drops the lowest bits and would read other bytes."""
    bad = (address & np.uint64(size - 1)) != 0
    if bad.any():
        row = int(bad.argmax())
        what = f"a scalar load of {size}-byte elements at {int(address[row]):#x}, which is not a multiple of {size}"
        raise AlignmentFault(what, CodePlace(wave=row))
