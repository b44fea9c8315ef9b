"""The arithmetic units: scalar, vector, packed and cross-lane instructions."""

from __future__ import annotations

from tilewright.emulator.alu.cross_lane import translate_cross_lane
from tilewright.emulator.alu.dual import translate_dual
from tilewright.emulator.alu.packed import translate_packed
from tilewright.emulator.alu.scalar import translate_scalar
from tilewright.emulator.alu.site import Site
from tilewright.emulator.alu.vector import translate_vector
from tilewright.emulator.code import Code
from tilewright.emulator.group import Step
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.isa.names import canonical


def translate(instruction: Instruction, code: Code) -> Step | None:
    """Return the step of an arithmetic instruction; None for other instructions."""
    if instruction.other is not None:
        return translate_dual(instruction, code)
    name = canonical(instruction.mnemonic)
    if not name.startswith(("s_", "v_")):
        return None
    site = Site(instruction, code, name)
    if name.startswith("s_") or name.startswith("v_s_"):
        return translate_scalar(site)
    for translator in (translate_cross_lane, translate_packed, translate_vector):
        step = translator(site)
        if step is not None:
            return step
    return None
