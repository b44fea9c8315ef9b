"""The arithmetic units: scalar, vector, packed and cross-lane instructions."""

from __future__ import annotations

from tilewright.emulator.alu.cross_lane import translate_cross_lane
from tilewright.emulator.alu.instruction_context import InstructionContext
from tilewright.emulator.alu.packed import translate_dual, translate_packed
from tilewright.emulator.alu.scalar import translate_scalar
from tilewright.emulator.alu.vector import translate_vector
from tilewright.emulator.alu.wide import translate_wide
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import Step
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.isa.names import normalize_name


def translate(instruction: Instruction, code: LoadedCode) -> Step | None:
    """Return the step of an arithmetic instruction; None for other instructions."""
    if instruction.other is not None:
        return translate_dual(instruction, code)
    name = normalize_name(instruction.mnemonic)
    if not name.startswith(("s_", "v_")):
        return None
    site = InstructionContext(instruction, code, name)
    if name.startswith("s_") or name.startswith("v_s_"):
        return translate_scalar(site)
    for translator in (translate_cross_lane, translate_packed, translate_wide, translate_vector):
        step = translator(site)
        if step is not None:
            return step
    return None
