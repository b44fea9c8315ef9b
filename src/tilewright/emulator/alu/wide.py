"""Vector instructions that apply one operation of the table to many elements in consecutive registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tilewright.emulator.alu.float_mode import FloatMode, make_mode_step
from tilewright.emulator.alu.instruction_context import InstructionContext
from tilewright.emulator.alu.operands import Getter, make_vector_source
from tilewright.emulator.group import Step, WaveGroup
from tilewright.emulator.instruction import Operand
from tilewright.emulator.isa.float_functions import flush_subnormals
from tilewright.emulator.isa.numpy_form import make_function
from tilewright.emulator.isa.operation import TYPES, Array, choose_expression
from tilewright.emulator.isa.small_floats import next_random
from tilewright.emulator.isa.wide import WIDE, WideOperation, WideSource

Elements = Callable[[WaveGroup], Iterator[Array]]


def translate_wide(site: InstructionContext) -> Step | None:
    """Return the step of an instruction in the table WIDE; None for other instructions."""
    wide = WIDE.get(site.name)
    if wide is None:
        return None
    list_wide_operands(site, wide)
    kinds = (*wide.element.sources, wide.element.result)
    return make_mode_step(site, kinds, lambda mode: _make_step(site, wide, mode))


def list_wide_operands(site: InstructionContext, wide: WideOperation) -> list[Operand]:
    """Return the source operands of an instruction, after checking all of its operands."""
    site.check_modifiers()
    site.vector_destination(wide.registers)
    operands = list(site.instruction.operands[1:])
    if len(operands) != len(wide.sources):
        raise site.unknown(f"the operands of {site.instruction.mnemonic}")
    for operand, source in zip(operands, wide.sources, strict=True):
        if source.step and (operand.kind not in ("v", "s") or operand.count != source.count_registers(wide.count)):
            raise site.unknown(f"a source of {site.instruction.mnemonic}")
    return operands


def _make_step(site: InstructionContext, wide: WideOperation, mode: FloatMode) -> Step:
    target = site.vector_destination(wide.registers)
    operands = list_wide_operands(site, wide)
    given = zip(operands, wide.sources, wide.element.sources, strict=True)
    sources = [_make_elements(site, wide, operand, source, kind, mode) for operand, source, kind in given]
    function = make_function(choose_expression(wide.element, mode.limits), len(sources))
    dtype = TYPES[wide.element.result]

    def execute(group: WaveGroup) -> None:
        words = [np.zeros((group.waves, group.lanes), np.uint32) for _ in range(wide.registers)]
        for number, values in enumerate(zip(*(source(group) for source in sources), strict=True)):
            bits = function(*values).astype(dtype, copy=False).astype(np.uint32)
            first, shift = divmod(wide.width * number, 32)
            words[first] |= bits << np.uint32(shift)
            if shift + wide.width > 32:
                words[first + 1] |= bits >> np.uint32(32 - shift)
        # Nothing is written before all sources, which may be the same registers, are read.
        for number, word in enumerate(words):
            group.write(target + number, word)

    return execute


def _make_elements(
    site: InstructionContext, wide: WideOperation, operand: Operand, source: WideSource, kind: str, mode: FloatMode
) -> Elements:
    """Make a source that gives its elements one after the other."""
    if source.step == 0:
        return _repeat(make_vector_source(site, operand, kind, None, None), wide.count, source.random)
    parts = [
        make_vector_source(site, Operand(operand.kind, operand.index + number, 1), "u32", None, None)
        for number in range(operand.count)
    ]
    mask = np.uint32((1 << source.width) - 1)

    def list_elements(group: WaveGroup) -> Iterator[Array]:
        for number in range(wide.count):
            first, shift = divmod(source.step * number, 32)
            bits = parts[first](group) >> np.uint32(shift)
            if shift + source.width > 32:
                bits = bits | (parts[first + 1](group) << np.uint32(32 - shift))
            values = _convert(bits & mask, kind)
            yield flush_subnormals(values) if kind in mode.sources else values

    return list_elements


def _repeat(getter: Getter, count: int, random: bool) -> Elements:
    def list_elements(group: WaveGroup) -> Iterator[Array]:
        value = getter(group)
        for _ in range(count):
            yield value
            value = next_random(value) if random else value

    return list_elements


def _convert(bits: Array, kind: str) -> Array:
    dtype = TYPES[kind]
    return bits.view(dtype) if dtype.itemsize == 4 else bits.astype(dtype)
