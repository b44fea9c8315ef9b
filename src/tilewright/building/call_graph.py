"""The call graph of a kernel: functions that are so large that the compiler did not inline them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tilewright.building.code_object import DisassembledInstruction, FunctionSymbol

# LLVM forms the address of a function from the program counter and a distance added to its lower half. gfx12 uses
# another mnemonic for the addition.
_GETPC = re.compile(r"s_getpc_b64 s\[(\d+):\d+\]")
_DISTANCE = re.compile(r"s_add(?:_co)?_u32 s(\d+), s\1, (?:lit\()?(0x[0-9a-f]+|-?\d+)\)?")
_GETPC_BYTES = 4  # it returns the address of the next instruction


def find_reachable(
    name: str, code: Mapping[str, Sequence[DisassembledInstruction]], functions: Mapping[str, FunctionSymbol]
) -> tuple[str, ...]:
    """Return a kernel and all functions that it calls directly or indirectly, each once."""
    starts = {symbol.address: other for other, symbol in functions.items() if other in code}
    found = [name]
    for function in found:  # grows while it is read
        targets = _find_addresses(code[function], functions[function].address)
        found += dict.fromkeys(starts[at] for at in targets if at in starts and starts[at] not in found)
    return tuple(found)


def _find_addresses(code: Sequence[DisassembledInstruction], start: int) -> Iterator[int]:
    """Yield the addresses that a function forms relative to its own: called functions and constants."""
    counters: dict[str, int] = {}
    for instruction in code:
        if counter := _GETPC.match(instruction.text):
            counters[counter[1]] = start + instruction.offset + _GETPC_BYTES
        elif (distance := _DISTANCE.match(instruction.text)) and distance[1] in counters:
            yield counters.pop(distance[1]) + _to_signed(int(distance[2], 0))


def _to_signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word
