"""v_bitop3: any function of three bits, given by its truth table."""

from __future__ import annotations

from functools import cache

from tilewright.emulator.isa.operation import Operation

# Functions of a and b, indexed by their values for (a, b) = 00, 01, 10, 11, the first in bit 0.
_TWO = (
    "0", "~(a | b)", "~a & b", "~a", "a & ~b", "~b", "a ^ b", "~(a & b)",
    "a & b", "~(a ^ b)", "b", "~a | b", "a", "a | ~b", "a | b", "1",
)  # fmt: skip
_ZERO, _ONES = 0, 15


@cache
def bitop3(table: int, kind: str) -> Operation:
    """Bit 4·a + 2·b + c of the table is the result for bits a, b, c."""
    without = sum((table >> (2 * pair) & 1) << pair for pair in range(4))  # c is 0
    having = sum((table >> (2 * pair + 1) & 1) << pair for pair in range(4))
    return Operation(kind, (kind, kind, kind), _join_forms(without, having))


def _join_forms(without: int, having: int) -> str:
    """Return a short expression for (c ? having : without)."""
    if without == having:
        constant = {_ZERO: "a ^ a", _ONES: "~(a ^ a)"}
        return constant.get(without, _TWO[without])
    if without == having ^ _ONES:
        return "c" if without == _ZERO else "~c" if having == _ZERO else f"({_TWO[without]}) ^ c"
    if _ZERO in (without, having):
        return f"({_TWO[having]}) & c" if without == _ZERO else f"({_TWO[without]}) & ~c"
    if _ONES in (without, having):
        return f"({_TWO[without]}) | c" if having == _ONES else f"({_TWO[having]}) | ~c"
    return f"(({_TWO[having]}) & c) | (({_TWO[without]}) & ~c)"
