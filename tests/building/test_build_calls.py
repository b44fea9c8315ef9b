"""Functions that a kernel calls belong to it."""

from __future__ import annotations

from tilewright.building.disassembled import DisassembledInstruction, FunctionSymbol
from tilewright.building.inspect import find_reachable


def call(offset: int, distance: str) -> tuple[DisassembledInstruction, ...]:
    """A call as LLVM writes it, to `distance` from the instruction after s_getpc."""
    texts = (
        (0, "s_getpc_b64 s[2:3]"),
        (4, f"s_add_u32 s2, s2, {distance}"),
        (12, "s_addc_u32 s3, s3, lit(0xffffffff)"),
        (20, "s_swappc_b64 s[30:31], s[2:3]"),
    )
    return tuple(DisassembledInstruction(offset + at, text.split()[0], text) for at, text in texts)


FUNCTIONS = {
    "kernel": FunctionSymbol("kernel", 0x400, 64),
    "loop": FunctionSymbol("loop", 0x100, 64),
    "tail": FunctionSymbol("tail", 0x200, 64),
    "other": FunctionSymbol("other", 0x300, 64),
}
END = (DisassembledInstruction(24, "s_endpgm", "s_endpgm"),)


def test_functions_are_followed_from_one_to_the_next() -> None:
    code = {
        "kernel": call(8, f"0x{(0x100 - 0x40C) & 0xFFFFFFFF:x}"),
        "loop": call(0, f"0x{0x200 - 0x104:x}"),
        "tail": call(0, f"0x{(0x100 - 0x204) & 0xFFFFFFFF:x}"),  # back to the loop: each is named once
        "other": END,
    }
    assert find_reachable("kernel", code, FUNCTIONS) == ("kernel", "loop", "tail")
    assert find_reachable("other", code, FUNCTIONS) == ("other",)


def test_gfx12_spells_the_addition_differently_and_constants_are_no_functions() -> None:
    to_loop = call(8, f"0x{(0x100 - 0x40C) & 0xFFFFFFFF:x}")
    spelt = tuple(
        DisassembledInstruction(i.offset, i.mnemonic, i.text.replace("s_add_u32", "s_add_co_u32")) for i in to_loop
    )
    code = dict.fromkeys(FUNCTIONS, END)
    assert find_reachable("kernel", {**code, "kernel": spelt}, FUNCTIONS) == ("kernel", "loop")
    assert find_reachable("kernel", {**code, "kernel": call(8, "0x1000")}, FUNCTIONS) == ("kernel",)
