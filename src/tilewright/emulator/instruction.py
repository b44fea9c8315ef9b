"""One instruction of a code object, as printed by LLVM's disassembler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# Kinds of operands. Register kinds have an index and a count of 32-bit registers.
#   v       vector registers            a        accumulation registers of matrix instructions
#   s       scalar registers, also vcc, exec, m0, ttmp and flat_scratch with the indices below
#   const   a number                    special  a hardware value by name: src_shared_base, src_scc, …
#   none    "off" and "null"            word     any other text: a counter list, hwreg(…), a label
Kind = Literal["v", "a", "s", "const", "special", "none", "word"]

FLAT_SCRATCH = 102
VCC = 106
TTMP = 108
M0 = 124
EXEC = 126
SCALARS = 128  # registers kept per wave

Modifier = int | str | bool | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand. `half` is "l" or "h" if the text names half a register (v1.l), else ""."""

    kind: Kind
    index: int = 0
    count: int = 1
    value: int | float = 0  # of a const; a float only if the text has a decimal point
    name: str = ""  # of a special or a word
    negated: bool = False
    absolute: bool = False
    sign_extended: bool = False
    half: str = ""


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction at an address of its code object.

    `mnemonic` is the printed name without the encoding suffix (e32, e64, dpp, sdwa, e64_dpp), which is in `encoding`.
    `other` is the second half of a pair that is issued as one (v_dual_… :: v_dual_…).
    """

    address: int
    size: int
    mnemonic: str
    operands: tuple[Operand, ...]
    text: str
    encoding: str = ""
    modifiers: Mapping[str, Modifier] = field(default_factory=dict)
    other: Instruction | None = None

    @property
    def next_address(self) -> int:
        """The address of the next instruction."""
        return self.address + self.size
