"""Elements of loads and stores, by the suffix of their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.emulator.group import U32


@dataclass(frozen=True, slots=True)
class Element:
    """`size` bytes per lane. `half` is "low" or "high" if only half of a register is used."""

    size: int
    signed: bool = False
    half: str = ""

    @property
    def registers(self) -> int:
        return max(self.size // 4, 1)

    @property
    def keep(self) -> int:
        """The bits of the destination that a load does not change."""
        return {"": 0, "low": 0xFFFF0000, "high": 0x0000FFFF}[self.half]

    def extend_loaded(self, values: Sequence[U32]) -> list[U32]:
        """Return the register values of a load from zero-extended elements."""
        word = values[0]
        if self.signed:
            bits = np.uint32(32 - 8 * self.size)
            word = ((word << bits).view(np.int32) >> bits.view(np.int32)).view(np.uint32)
        if self.half == "low":
            word = word & np.uint32(0xFFFF)
        elif self.half == "high":
            word = word << np.uint32(16)
        return [word, *values[1:]]

    def extract_stored(self, values: Sequence[U32]) -> list[U32]:
        """Return the part of registers that a store writes."""
        return [values[0] >> np.uint32(16)] if self.half == "high" else list(values)


_WORDS = {"dword": Element(4), "dwordx2": Element(8), "dwordx3": Element(12), "dwordx4": Element(16)}

# By gfx9's names, which `isa.names.normalize_name` returns.
LOADS = {
    **_WORDS,
    "ubyte": Element(1),
    "sbyte": Element(1, signed=True),
    "ushort": Element(2),
    "sshort": Element(2, signed=True),
    "ubyte_d16": Element(1, half="low"),
    "sbyte_d16": Element(1, signed=True, half="low"),
    "short_d16": Element(2, half="low"),
    "ubyte_d16_hi": Element(1, half="high"),
    "sbyte_d16_hi": Element(1, signed=True, half="high"),
    "short_d16_hi": Element(2, half="high"),
}
STORES = {
    **_WORDS,
    "byte": Element(1),
    "short": Element(2),
    "byte_d16_hi": Element(1, half="high"),
    "short_d16_hi": Element(2, half="high"),
}

# The LDS has its own names for the same elements.
_LDS_WORDS = {"b32": Element(4), "b64": Element(8), "b96": Element(12), "b128": Element(16)}
LDS_READS = {
    **_LDS_WORDS,
    "u8": Element(1),
    "i8": Element(1, signed=True),
    "u16": Element(2),
    "i16": Element(2, signed=True),
    "u8_d16": Element(1, half="low"),
    "i8_d16": Element(1, signed=True, half="low"),
    "u16_d16": Element(2, half="low"),
    "u8_d16_hi": Element(1, half="high"),
    "i8_d16_hi": Element(1, signed=True, half="high"),
    "u16_d16_hi": Element(2, half="high"),
}
LDS_WRITES = {
    **_LDS_WORDS,
    "b8": Element(1),
    "b16": Element(2),
    "b8_d16_hi": Element(1, half="high"),
    "b16_d16_hi": Element(2, half="high"),
}
