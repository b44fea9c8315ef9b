"""The kernel that an instruction belongs to, as far as its translation needs it."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arch.spec import Arch
from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.faults import UnknownInstructionFault
from tilewright.emulator.instruction import Instruction, Operand


@dataclass(frozen=True, slots=True)
class LoadedCode:
    """The loaded code of a kernel. `base` is the memory address of offset 0 of the code object."""

    arch: Arch
    kernel: str
    lanes: int
    accumulators: int  # the vector register that holds a0
    base: int

    def get_register(self, operand: Operand) -> int:
        """Return the vector register that holds an operand of kind v or a (the first of several)."""
        return operand.index + (self.accumulators if operand.kind == "a" else 0)

    def unknown(self, what: str, instruction: Instruction) -> UnknownInstructionFault:
        """Return the fault to raise for an unknown part of an instruction."""
        place = CodePlace(kernel=self.kernel, address=instruction.address, instruction=instruction.text)
        return UnknownInstructionFault(f"{what} is not supported on the emulated {self.arch.name}", place)
