"""The instructions and functions of a code object, whichever tool listed them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FunctionSymbol:
    """A function in the code object."""

    name: str
    address: int
    size: int


@dataclass(frozen=True, slots=True)
class DisassembledInstruction:
    """One instruction; `offset` counts from the start of its function."""

    offset: int
    mnemonic: str
    text: str

    @property
    def mnemonics(self) -> tuple[str, ...]:
        """Both halves of a dual instruction (VOPD, `a :: b`), else the one mnemonic."""
        return tuple(half.split()[0] for half in self.text.split(" :: "))


@dataclass(frozen=True, slots=True)
class DisassembledLine:
    """One instruction with its address in the code object and its 32-bit words."""

    address: int
    text: str
    words: tuple[int, ...]

    @property
    def size(self) -> int:
        return 4 * len(self.words)
