"""Match the operands of an instruction with the sources of its operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.emulator.alu.instruction_context import InstructionContext
from tilewright.emulator.instruction import Operand
from tilewright.emulator.isa.operation import Operation

# Sources that are not operands, or whose operand may be omitted.
_WITHOUT = ("scc", "mask")


@dataclass(frozen=True, slots=True)
class SourceOperand:
    """A source: its type, its operand (or None), and its index among the operands.

    The old value of the destination has the index -1.
    """

    kind: str
    operand: Operand | None
    number: int

    @property
    def required_operand(self) -> Operand:
        """The operand of a source that must have one."""
        assert self.operand is not None
        return self.operand


def match_sources(site: InstructionContext, operation: Operation, operands: Sequence[Operand]) -> list[SourceOperand]:
    """Return the sources of an operation, from the operands after the destinations. All operands must be used."""
    left = list(operands)
    found = []
    for kind in operation.sources:
        number = len(operands) - len(left)
        if kind == "scc":
            found.append(SourceOperand(kind, None, number))
        elif kind.startswith("old "):
            found.append(SourceOperand(kind.removeprefix("old "), site.destination, -1))
        elif left or kind in _WITHOUT:
            found.append(SourceOperand(kind, left.pop(0) if left else None, number))
        else:
            raise site.unknown(f"too few operands of {site.instruction.mnemonic}")
    if left:
        raise site.unknown(f"too many operands of {site.instruction.mnemonic}")
    return found
