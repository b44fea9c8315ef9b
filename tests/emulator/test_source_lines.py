"""Source lines of instructions: tables made by hand, and the assembler's against LLVM's own reader."""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

import pytest
from assembled import assemble

from tilewright.emulator.faults import CodeObjectError
from tilewright.emulator.source_lines import SourceLine, find_source_line, read_line_table

_PROGBITS, _STRTAB, _EXECUTE, _CODE = 1, 3, 6, 0x1000


def _elf(**sections: bytes) -> bytes:
    """An ELF file with 256 bytes of code at 0x1000 and these sections, whose names start with a point."""
    named = [("", b""), (".text", bytes(256)), *((f".{name}", data) for name, data in sections.items())]
    names = b"".join(f"{name}\0".encode() for name, _ in named) + b".shstrtab\0"
    named.append((".shstrtab", names))
    headers, body, at = b"", b"", 64
    for name, data in named:
        kind = 0 if not name else _STRTAB if name == ".shstrtab" else _PROGBITS
        flags, address = (_EXECUTE, _CODE) if name == ".text" else (0, 0)
        begin = names.index(f"{name}\0".encode()) if name else 0
        headers += struct.pack("<IIQQQQIIQQ", begin, kind, flags, address, at, len(data), 0, 0, 1, 0)
        body += data
        at += len(data)
    ident = b"\x7fELF\x02\x01\x01" + bytes([64, 2]) + bytes(7)
    head = struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 0, at, 0, 64, 0, 0, 64, len(named), len(named) - 1)
    return ident + head + body + headers


def _unit(version: int, files: bytes, program: bytes) -> bytes:
    # Instructions of 4 bytes, line_base -5, line_range 14, opcode_base 13: the values of LLVM.
    after = struct.pack("<BBBbBB", 4, 1, 1, -5, 14, 13) + bytes([0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1]) + files
    sizes = b"\x08\x00" if version == 5 else b""
    rest = struct.pack("<H", version) + sizes + struct.pack("<I", len(after)) + after + program
    return struct.pack("<I", len(rest)) + rest


FILES_4 = b"/src\0other\0\0" + b"k.py\0\x01\0\0" + b"h.py\0\x02\0\0" + b"/abs/x.py\0\x01\0\0" + b"\0"
SET_ADDRESS = b"\x00\x09\x02" + struct.pack("<Q", _CODE)
END = b"\x00\x01\x01"
# Line 10, column 5; 8 bytes later line 12 of file 2; 4 bytes later line 0; 8 bytes later the end.
PROGRAM = (
    SET_ADDRESS + b"\x03\x09\x05\x05\x01" + b"\x04\x02\x05\x07" + bytes([13 + 2 * 14 + 5 + 2])
    + b"\x02\x01\x03\x74\x01" + b"\x02\x02" + END
)  # fmt: skip


def test_rows_of_dwarf_4() -> None:
    data = _elf(debug_line=_unit(4, FILES_4, PROGRAM))
    assert find_source_line(data, _CODE) == SourceLine("/src/k.py", 10, 5)
    assert find_source_line(data, _CODE + 4) == SourceLine("/src/k.py", 10, 5)
    assert find_source_line(data, _CODE + 8) == SourceLine("other/h.py", 12, 7)
    assert find_source_line(data, _CODE + 12) is None  # line 0
    assert find_source_line(data, _CODE + 20) is None  # after the end
    assert find_source_line(data, _CODE - 4) is None
    assert str(find_source_line(data, _CODE)) == "/src/k.py:10:5"
    assert str(SourceLine("k.py", 3, 0)) == "k.py:3"


def test_rows_of_dwarf_5() -> None:
    strings = b"/build\0/src\0k.py\0"
    folders = b"\x01\x01\x1f" + b"\x02" + struct.pack("<II", 0, 7)
    # Path (line_strp), folder (udata), MD5 (data16): file 0 is repeated as file 1, as clang does.
    files = b"\x03\x01\x1f\x02\x0b\x05\x1e" + b"\x03"
    files += struct.pack("<IB", 12, 1) + bytes(16) + struct.pack("<IB", 12, 1) + bytes(16)
    files += struct.pack("<IB", 12, 0) + bytes(16)
    data = _elf(debug_line=_unit(5, folders + files, PROGRAM), debug_line_str=strings)
    assert find_source_line(data, _CODE) == SourceLine("/src/k.py", 10, 5)
    assert find_source_line(data, _CODE + 8) == SourceLine("/build/k.py", 12, 7)


def test_lines_of_removed_functions_are_left_out() -> None:
    removed = b"\x00\x09\x02" + bytes(8) + b"\x03\x1e\x01\x02\x80\x20" + END  # line 31 of 16 KiB at address 0
    data = _elf(debug_line=_unit(4, FILES_4, PROGRAM) + _unit(4, FILES_4, removed))
    assert find_source_line(data, _CODE) == SourceLine("/src/k.py", 10, 5)
    assert all(line is None or line.line != 31 for line in read_line_table(data).lines)


def test_code_without_lines_has_none() -> None:
    assert find_source_line(_elf(), _CODE) is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (_unit(3, FILES_4, PROGRAM), "DWARF version 3; known are 4 and 5"),
        (_unit(4, FILES_4, PROGRAM)[:-4], "but the table has"),
        (_unit(4, FILES_4, PROGRAM[:5]), "inside of a value"),
        (_unit(4, b"/src", b""), "its line table cannot be read"),
        (_unit(5, b"\x01\x01\x70\x01", b""), "unknown form 0x70"),
    ],
    ids=["version", "cut", "program cut", "files cut", "form"],
)
def test_damaged_tables_are_errors(table: bytes, message: str) -> None:
    with pytest.raises(CodeObjectError, match=re.escape(message)):
        find_source_line(_elf(debug_line=table), _CODE)


def test_files_that_are_not_elf_are_errors() -> None:
    with pytest.raises(CodeObjectError, match="cannot be read"):
        find_source_line(b"no code object", 0)


@pytest.mark.compile
@pytest.mark.parametrize("version", [4, 5])
def test_every_row_agrees_with_llvm(version: int, tmp_path: Path) -> None:
    body = ['.file 1 "/src" "k.py"', '.file 2 "/lib" "math.py"']
    if version == 5:  # only DWARF 5 has a file 0
        body.insert(0, '.file 0 "/build" "main.py"')
    for number in range(300):  # long enough for every kind of opcode
        body.append(f".loc {1 if number % 3 else 2} {1 + number * 37 % 200} {number % 50}")
        body += ["v_mov_b32 v0, v1"] * (1 + number * number % 90)
    code_object = assemble("\n".join([*body, "s_endpgm"]))
    file = tmp_path / "kernel.co"
    file.write_bytes(code_object)
    listing = subprocess.run(
        ["llvm-dwarfdump-22", "--debug-line", str(file)], capture_output=True, text=True, check=True
    ).stdout
    assert f"version: {version}" in listing
    rows = re.findall(r"^(0x\w{16}) +(\d+) +(\d+) +(\d+) .*?(end_sequence)?$", listing, re.MULTILINE)
    assert len(rows) > 300
    names = {1: "/src/k.py", 2: "/lib/math.py"}
    for address, line, column, number, end in rows:
        expected = None if end else SourceLine(names[int(number)], int(line), int(column))
        assert find_source_line(code_object, int(address, 16)) == expected
