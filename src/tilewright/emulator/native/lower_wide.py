"""Lower instructions on many elements in consecutive registers: a record of one element, which a loop runs for each."""

from __future__ import annotations

from tilewright.emulator.alu.instruction_context import InstructionContext
from tilewright.emulator.alu.wide import list_wide_operands
from tilewright.emulator.instruction import Operand
from tilewright.emulator.isa.wide import WIDE, WideSource
from tilewright.emulator.native import layout
from tilewright.emulator.native.generate import handler_numbers
from tilewright.emulator.native.layout import InstructionRecord, LoweringTables, OperandRecord, make_record
from tilewright.emulator.native.lower_source import make_source


def lower_wide(site: InstructionContext, tables: LoweringTables) -> InstructionRecord | None:
    """Return the record of an instruction in the table WIDE; None for others.

    The record of an element stands behind the code. It reads elements from spare registers, and writes the first.
    """
    wide = WIDE.get(site.name)
    if wide is None:
        return None
    out = layout.make_vector(site.vector_destination(wide.registers))
    made = make_record("elements", out, target=len(tables.parts), detail=wide.count, size=wide.width)
    part = make_record(handler_numbers()[0][wide.element], layout.make_vector(tables.first_spare))
    spare = tables.first_spare
    operands = list_wide_operands(site, wide)
    for number, (operand, source, kind) in enumerate(zip(operands, wide.sources, wide.element.sources, strict=True)):
        if source.step or source.random:
            made.sources[number] = _make_elements(site, operand, source)
            part.sources[number] = layout.make_vector(spare)
            spare += 1
        else:
            part.sources[number] = make_source(site, operand, kind)
    tables.parts.append(part)
    return made


def _make_elements(site: InstructionContext, operand: Operand, source: WideSource) -> OperandRecord:
    """Make a source whose elements the loop copies: `value` says where they are, and is 0 for random numbers."""
    if source.random:
        return make_source(site, operand, "u32")
    in_vector = operand.kind == "v"
    made = layout.make_vector(site.code.get_register(operand)) if in_vector else layout.make_scalar(operand.index)
    made.value = source.step | source.width << 8
    return made
