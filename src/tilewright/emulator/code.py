"""What translating an instruction needs to know of the kernel that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arch.spec import Arch
from tilewright.emulator.faults import Place, UnknownInstructionFault
from tilewright.emulator.instruction import Instruction, Operand


@dataclass(frozen=True, slots=True)
class Code:
    """A kernel's code, loaded: `base` is the address at which offset 0 of the code object lies in memory."""

    arch: Arch
    kernel: str
    lanes: int
    accumulators: int  # the vector register that a0 is kept in
    base: int

    def register(self, operand: Operand) -> int:
        """The vector register that an operand of kind v or a is kept in (the first, of several)."""
        return operand.index + (self.accumulators if operand.kind == "a" else 0)

    def unknown(self, what: str, instruction: Instruction) -> UnknownInstructionFault:
        """The fault to raise for something in an instruction that is not known."""
        place = Place(kernel=self.kernel, address=instruction.address, instruction=instruction.text)
        return UnknownInstructionFault(f"{what} is not known on the emulated {self.arch.name}", place)
