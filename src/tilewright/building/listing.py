"""Read the listing that the toolchain from PyPI adds to code objects: the assembler's text of every instruction.

It takes the place of a disassembler. Instructions are matched with the bytes of the code, so a listing that does not
belong to its code is an error.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base.errors import ToolchainError
from tilewright.building.disassembled import DisassembledLine, FunctionSymbol

SECTION = ".tilewright.listing"
# "\ts_cbranch_scc1 .LBB0_3                  ; encoding: [A,A,0xa2,0xbf]": bytes, or letters that the linker replaces.
_LINE = re.compile(r"\t(?P<text>[^\s;][^;]*?)\s*;.*encoding: \[(?P<bytes>[^\]]+)\]")
# An operand that the linker computes, such as "name@rel32@lo+4", is the last one.
_SYMBOLIC = re.compile(r"[^,\s]+$")
_BRANCH = re.compile(r"s_branch|s_cbranch_\w+|s_call_\w+|s_subvector_loop_\w+")
_LABEL = re.compile(r"(?P<name>[A-Za-z_.$][\w.$]*):")
_TEXT = ".text"


@dataclass(frozen=True, slots=True)
class _Listed:
    text: str
    mask: bytes  # 0xff for bytes that are known, 0 for those that the linker replaces
    value: bytes


def read_listing(path: Path) -> str:
    """Return the listing of a code object. Raises `ToolchainError` if it has none."""
    listing = find_listing(path.read_bytes())
    if listing is None:
        raise ToolchainError(
            f"{path} has no listing of its instructions: the toolchain from PyPI has no disassembler, and only adds a "
            "listing to code that it compiles itself. Install llvm-objdump and set TILEWRIGHT_TOOLCHAIN=gpu-less, or "
            "build the kernel again."
        )
    return listing


def find_listing(code: bytes) -> str | None:
    """Return the listing in a code object; None if it has none."""
    section = _open_elf(code).get_section_by_name(SECTION)
    return None if section is None else section.data().decode("utf-8", errors="replace")


def find_metadata(listing: str) -> str:
    """Return the metadata in a listing, in the form in which llvm-readelf prints it."""
    begin, end = listing.find("\n---\n"), listing.find("\n...\n")
    return listing[begin + 1 : end + 5] if 0 <= begin < end else ""


def read_elf_functions(code: bytes) -> dict[str, FunctionSymbol]:
    """Return the functions of a code object by name."""
    table = _open_elf(code).get_section_by_name(".symtab")
    return {
        symbol.name: FunctionSymbol(symbol.name, symbol["st_value"], symbol["st_size"])
        for symbol in (table.iter_symbols() if table is not None else ())
        if symbol.name and symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_shndx"] != "SHN_UNDEF"
    }


def list_instructions(code: bytes, listing: str) -> tuple[DisassembledLine, ...]:
    """Return the listed instructions with their addresses and words, function by function in address order."""
    section = _open_elf(code).get_section_by_name(_TEXT)
    if section is None:
        return ()
    start, data = section["sh_addr"], section.data()
    functions = read_elf_functions(code)
    blocks = _split_functions(listing, functions.keys())
    lines: list[DisassembledLine] = []
    for name in sorted(blocks, key=lambda name: functions[name].address):
        first = functions[name].address
        lines += _match_code(blocks[name], data, start, first, first + functions[name].size)
    return tuple(lines)


def _open_elf(code: bytes) -> Any:
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415  (an extra, which only this needs)

    return ELFFile(io.BytesIO(code))


def _split_functions(listing: str, names: Any) -> dict[str, list[_Listed]]:
    """Split a listing at the labels of functions."""
    blocks: dict[str, list[_Listed]] = {}
    current: list[_Listed] = []
    for line in listing.splitlines():
        if (label := _LABEL.match(line)) and label["name"] in names:
            current = blocks.setdefault(label["name"], [])
        elif match := _LINE.match(line):
            current.append(_parse_line(match))
    return blocks


def _parse_line(match: re.Match[str]) -> _Listed:
    words = match["bytes"].split(",")
    known = [re.fullmatch(r"0x([0-9a-f]{2})", word) for word in words]
    return _Listed(
        match["text"],
        bytes(0xFF if word else 0 for word in known),
        bytes(int(word[1], 16) if word else 0 for word in known),
    )


def _match_code(
    listed: Sequence[_Listed], data: bytes, start: int, address: int, end: int
) -> Iterator[DisassembledLine]:
    """Yield the instructions of a function. Between them there may be padding, s_nop, which aligns a loop."""
    for one in listed:
        size = len(one.value)
        while not _fits(one, data, address - start):
            if address + 4 > end:
                raise ToolchainError(f"the listing does not belong to its code: no {one.text!r} before {end:#x}")
            yield DisassembledLine(address, "s_nop 0", _read_words(data, address - start, 4))
            address += 4
        words = _read_words(data, address - start, size)
        yield DisassembledLine(address, _resolve(one, words), words)
        address += size


def _fits(one: _Listed, data: bytes, offset: int) -> bool:
    found = data[offset : offset + len(one.value)]
    return len(found) == len(one.value) and all(
        byte & mask == value for byte, mask, value in zip(found, one.mask, one.value, strict=True)
    )


def _resolve(one: _Listed, words: tuple[int, ...]) -> str:
    """Replace a symbol by the number that the linker wrote. Targets of branches are read from the words anyway."""
    if all(one.mask):
        return one.text
    name = one.text.split()[0]
    number = str(words[0] & 0xFFFF) if _BRANCH.fullmatch(name) else f"{words[-1]:#x}"
    return _SYMBOLIC.sub(number, one.text)


def _read_words(data: bytes, offset: int, size: int) -> tuple[int, ...]:
    return tuple(int.from_bytes(data[at : at + 4], "little") for at in range(offset, offset + size, 4))
