"""Lower scalar loads, and gfx9's scalar stores and atomics. emulator/access interprets their names and operands."""

from __future__ import annotations

from tilewright.emulator.access.atomics import find_memory_atomic
from tilewright.emulator.access.elements import Element
from tilewright.emulator.access.operands import (
    CACHE_POLICY,
    check_modifiers,
    get_number,
    get_operands,
    get_scalar,
)
from tilewright.emulator.access.scalar import DWORDS, SCRATCH_LOAD, SMALL, get_offset_unit
from tilewright.emulator.access.scalar_writes import (
    ATOMIC,
    BUFFER_ATOMIC,
    BUFFER_STORE,
    SCRATCH_STORE,
    STORE,
    STORED,
)
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.native import layout
from tilewright.emulator.native.layout import InstructionRecord, LoweringTables, make_record
from tilewright.emulator.native.lower_elements import encode_atomic, make_element_flags

# Handler and registers of the base, by the beginning of the name.
_LOADS = {"s_load_": ("scalar_load", 2), SCRATCH_LOAD: ("scalar_load", 2), "s_buffer_load_": ("scalar_buffer_load", 4)}
_STORES = {
    STORE: ("scalar_store", 2),
    SCRATCH_STORE: ("scalar_store", 2),
    BUFFER_STORE: ("scalar_buffer_store", 4),
}
_ATOMICS = {ATOMIC: ("scalar_atomic", 2), BUFFER_ATOMIC: ("scalar_buffer_atomic", 4)}


def lower_scalar_memory(
    name: str, instruction: Instruction, code: LoadedCode, tables: LoweringTables
) -> InstructionRecord | None:
    """Return the record of a scalar access; None for others and for those that only NumPy supports."""
    made: InstructionRecord | None = None
    for table, lower_kind in ((_LOADS, _lower_load), (_STORES, _lower_store), (_ATOMICS, _lower_atomic)):
        for prefix, (handler, base_count) in table.items():
            if name.startswith(prefix):
                made = lower_kind(handler, name.removeprefix(prefix), base_count, instruction, code)
    if made is not None:
        made.queue = tables.queues["scalar"]
    return made


def _lower_load(
    handler: str, kind: str, base_count: int, instruction: Instruction, code: LoadedCode
) -> InstructionRecord | None:
    if kind not in DWORDS and kind not in SMALL:
        return None
    element, count = SMALL.get(kind, Element(4)), DWORDS.get(kind, 1)
    made = make_record(handler, size=element.size, detail=count, flags=make_element_flags(element))
    return _set_address(made, instruction, code, count, base_count)


def _lower_store(
    handler: str, kind: str, base_count: int, instruction: Instruction, code: LoadedCode
) -> InstructionRecord | None:
    if kind not in STORED:
        return None
    return _set_address(make_record(handler, size=4, detail=DWORDS[kind]), instruction, code, DWORDS[kind], base_count)


def _lower_atomic(
    handler: str, kind: str, base_count: int, instruction: Instruction, code: LoadedCode
) -> InstructionRecord | None:
    operation = find_memory_atomic(kind, instruction, code)
    flags = layout.RETURNS if instruction.modifiers.get("glc") else 0
    made = make_record(handler, size=operation.size, detail=encode_atomic(operation), flags=flags)
    return _set_address(made, instruction, code, operation.size // 4 * operation.operands, base_count)


def _set_address(
    made: InstructionRecord, instruction: Instruction, code: LoadedCode, count: int, base_count: int
) -> InstructionRecord | None:
    """Set the scalar registers of data, base and offset; None for a form that only NumPy supports."""
    check_modifiers(instruction, code, CACHE_POLICY | {"offset"})
    data, base, *offsets = get_operands(instruction, code, (2, 3))
    made.out = layout.make_scalar(get_scalar(instruction, code, data, count))
    made.sources[0] = layout.make_scalar(get_scalar(instruction, code, base, base_count))
    made.offset = get_number(instruction, code, "offset")
    if get_offset_unit(instruction.mnemonic) != 1:
        made.flags |= layout.SCALED
    registers = 0
    for part in offsets:
        if part.kind == "s" and part.count == 1:
            registers += 1
            made.sources[registers] = layout.make_scalar(part.index)
        elif part.kind == "const" and isinstance(part.value, int):
            made.offset += part.value
        elif part.kind != "none":
            return None
    return made
