"""The context in which an instruction is translated."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.emulator.code import LoadedCode
from tilewright.emulator.faults import UnknownInstructionFault
from tilewright.emulator.instruction import Instruction, Operand

DPP_MODIFIERS = frozenset(
    {
        "quad_perm", "row_shl", "row_shr", "row_ror", "row_newbcast", "row_bcast", "row_mirror", "row_half_mirror",
        "row_share", "row_xmask", "wave_shl", "wave_rol", "wave_shr", "wave_ror", "dpp8",
        "row_mask", "bank_mask", "bound_ctrl", "fi",
    }
)  # fmt: skip
SDWA_MODIFIERS = frozenset({"src0_sel", "src1_sel", "dst_sel", "dst_unused"})
VECTOR_MODIFIERS = frozenset({"clamp", "mul", "div", "op_sel", "byte_sel"})
PACKED_MODIFIERS = frozenset({"clamp", "op_sel", "op_sel_hi", "neg_lo", "neg_hi"})


@dataclass(frozen=True, slots=True)
class InstructionContext:
    """An instruction with its canonical name and the code that it belongs to."""

    instruction: Instruction
    code: LoadedCode
    name: str

    def unknown(self, what: str) -> UnknownInstructionFault:
        return self.code.unknown(what, self.instruction)

    def check_modifiers(self, *allowed: frozenset[str]) -> None:
        """Raise for a modifier that the translator does not support."""
        known = frozenset().union(*allowed)
        for modifier in self.instruction.modifiers:
            if modifier not in known:
                raise self.unknown(f"the modifier '{modifier}' of {self.instruction.mnemonic}")

    def get_number(self, modifier: str, default: int = 0) -> int:
        """Return the number of a modifier; a flag counts as 1."""
        value = self.instruction.modifiers.get(modifier, default)
        if isinstance(value, (bool, int)):
            return int(value)
        raise self.unknown(f"the value {value!r} of the modifier '{modifier}'")

    def get_word(self, modifier: str, default: str) -> str:
        value = self.instruction.modifiers.get(modifier, default)
        if isinstance(value, str):
            return value
        raise self.unknown(f"the value {value!r} of the modifier '{modifier}'")

    def get_bits(self, modifier: str, count: int, default: int = 0) -> tuple[int, ...]:
        """Return a modifier with one bit per source; missing bits have the default."""
        value = self.instruction.modifiers.get(modifier, ())
        if not isinstance(value, tuple) or len(value) > count or any(bit not in (0, 1) for bit in value):
            raise self.unknown(f"the value {value!r} of the modifier '{modifier}'")
        return value + (default,) * (count - len(value))

    def has_clamp(self) -> bool:
        return self.get_number("clamp") != 0

    @property
    def destination(self) -> Operand:
        if not self.instruction.operands:
            raise self.unknown(f"{self.instruction.mnemonic} without operands")
        return self.instruction.operands[0]

    def vector_destination(self, count: int = 1) -> int:
        """Return the vector register of the first operand."""
        operand = self.destination
        if operand.kind not in ("v", "a") or operand.count != count or operand.negated or operand.absolute:
            raise self.unknown(f"the destination of {self.instruction.mnemonic}")
        return self.code.get_register(operand)

    def scalar_register(self, operand: Operand, count: int) -> int:
        """Return a scalar register (pair) that is read or written as a whole."""
        if operand.kind != "s" or operand.count != count or (count == 2 and operand.index % 2):
            raise self.unknown(f"an operand of {self.instruction.mnemonic}")
        return operand.index

    def mask_register(self, operand: Operand) -> int:
        """Return the scalar register (pair) that holds a lane mask."""
        return self.scalar_register(operand, self.code.lanes // 32)
