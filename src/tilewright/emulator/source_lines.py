"""The source line of an instruction: the line table (.debug_line) of a code object, DWARF 4 and 5.

Section 6.2 of the DWARF standard describes the format: each compilation unit has a header with its files, and a program
whose execution gives rows of address, file, line and column. Compilers write the table with `-g` or
`-gline-tables-only`; Triton always does.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from tilewright.emulator.faults import CodeObjectError

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_VERSIONS = (4, 5)
_EXECUTE = 0x4  # SHF_EXECINSTR
_DWARF64 = 0xFFFFFFFF  # instead of a length of 32 bits: one of 64 bits follows
_PATH, _FOLDER = 1, 2  # DW_LNCT_path, DW_LNCT_directory_index
_STRING, _BLOCK, _UDATA, _STRP, _LINE_STRP = 0x08, 0x09, 0x0F, 0x0E, 0x1F  # DW_FORM_…
_FIXED_FORMS = {0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8, 0x1E: 16}  # DW_FORM_data1, 2, 4, 8 and 16: their bytes


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A place in a source file. Column 0 is unknown."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.column else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class LineTable:
    """The source line of each range of instructions: it starts at its address and ends at the next one."""

    addresses: tuple[int, ...]
    lines: tuple[SourceLine | None, ...]

    def find(self, address: int) -> SourceLine | None:
        """Return the source line of the instruction at `address`, or None if it has none."""
        at = bisect_right(self.addresses, address) - 1
        return self.lines[at] if at >= 0 else None


def find_source_line(code_object: bytes, address: int) -> SourceLine | None:
    """Return the source line of the instruction at `address` in a code object, or None if it has none.

    Code without debug information has no lines, nor have instructions that the compiler attributes to no line.
    """
    return read_line_table(code_object).find(address)


@lru_cache(maxsize=16)
def read_line_table(code_object: bytes) -> LineTable:
    """Read the line table of a code object; without one the table is empty. Raises `CodeObjectError` if damaged."""
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - takes long to import

    try:
        elf = ELFFile(io.BytesIO(code_object))
        sections = {name: _read_section(elf, name) for name in (".debug_line", ".debug_line_str", ".debug_str")}
        code = [
            (section["sh_addr"], section["sh_addr"] + section["sh_size"])
            for section in elf.iter_sections()
            if section["sh_flags"] & _EXECUTE
        ]
        sequences = sorted(
            # The linker sets the address of functions that it removed to 0 and keeps their lines.
            (rows for rows in _read_sequences(sections) if any(start <= rows[0][0] < end for start, end in code)),
            key=lambda rows: rows[0][0],
        )
    except CodeObjectError:
        raise
    except Exception as error:  # of pyelftools, or an offset outside a section
        raise CodeObjectError(f"its line table cannot be read: {type(error).__name__}: {error}") from error
    rows = [row for sequence in sequences for row in sequence]
    return LineTable(tuple(address for address, _ in rows), tuple(line for _, line in rows))


_Row = tuple[int, SourceLine | None]


def _read_section(elf: ELFFile, name: str) -> bytes:
    section = elf.get_section_by_name(name)
    return b"" if section is None else bytes(section.data())


class _Cursor:
    """A position in a section."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def read_unsigned(self, size: int) -> int:
        return int.from_bytes(self.read_bytes(size), "little")

    def read_signed(self, size: int) -> int:
        return int.from_bytes(self.read_bytes(size), "little", signed=True)

    def read_bytes(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise CodeObjectError(f"its line table ends at byte {len(self.data)}, inside of a value")
        self.at += size
        return self.data[self.at - size : self.at]

    def read_string(self) -> str:
        end = self.data.index(0, self.at)
        text = self.data[self.at : end].decode(errors="replace")
        self.at = end + 1
        return text

    def read_uleb(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self.read_unsigned(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def read_sleb(self) -> int:
        start = self.at
        value = self.read_uleb()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> (bits - 1) else value


@dataclass(frozen=True, slots=True)
class _Header:
    """The part of a unit's header that its program needs."""

    min_length: int  # of an instruction, in bytes
    line_base: int
    line_range: int
    operand_counts: tuple[int, ...]  # of the standard opcodes 1, 2, …
    files: tuple[str, ...]  # by the number in the program


def _read_sequences(sections: dict[str, bytes]) -> Iterator[list[_Row]]:
    """Read the rows of each contiguous range of code, ascending. The last row has no line: it is the end."""
    data = sections[".debug_line"]
    unit = _Cursor(data)
    while unit.at < len(data):
        length, offset_bytes = unit.read_unsigned(4), 4
        if length == _DWARF64:
            length, offset_bytes = unit.read_unsigned(8), 8
        end = unit.at + length
        if end > len(data):
            raise CodeObjectError(f"a unit of its line table ends at byte {end}, but the table has {len(data)}")
        header = _read_header(unit, offset_bytes, sections)
        yield from _run_program(_Cursor(data[:end], unit.at), header)
        unit.at = end


def _read_header(unit: _Cursor, offset_bytes: int, sections: dict[str, bytes]) -> _Header:
    """Read a header; the cursor is then at the start of the program."""
    version = unit.read_unsigned(2)
    if version not in _VERSIONS:
        raise CodeObjectError(f"its line table is of DWARF version {version}; known are {_VERSIONS[0]} and 5")
    if version == 5:
        unit.read_bytes(2)  # the sizes of addresses and of segment selectors
    length = unit.read_unsigned(offset_bytes)
    program = unit.at + length
    min_length = unit.read_unsigned(1)
    unit.read_bytes(2)  # operations per instruction, 1 except in VLIW code; the initial value of is_stmt
    line_base, line_range, opcode_base = unit.read_signed(1), unit.read_unsigned(1), unit.read_unsigned(1)
    operand_counts = tuple(unit.read_bytes(opcode_base - 1))
    files = _read_files_5(unit, offset_bytes, sections) if version == 5 else _read_files_4(unit)
    unit.at = program
    return _Header(min_length, line_base, line_range, operand_counts, files)


def _read_files_4(unit: _Cursor) -> tuple[str, ...]:
    """Read the file table of DWARF 4. Folder 0 is the compiler's, which this table does not name; files start at 1."""
    folders, files = [""], [""]
    while folder := unit.read_string():
        folders.append(folder)
    while file := unit.read_string():
        folder = folders[unit.read_uleb()]
        unit.read_uleb()  # time of change
        unit.read_uleb()  # size
        files.append(str(PurePosixPath(folder, file)))
    return tuple(files)


def _read_files_5(unit: _Cursor, offset_bytes: int, sections: dict[str, bytes]) -> tuple[str, ...]:
    """Read the file table of DWARF 5. Both numberings start at 0; folder 0 is the compiler's."""
    folders = [str(entry[_PATH]) for entry in _read_entries(unit, offset_bytes, sections)]
    files = []
    for entry in _read_entries(unit, offset_bytes, sections):
        folder = folders[int(entry.get(_FOLDER, 0))]
        files.append(str(PurePosixPath(folders[0], folder, str(entry[_PATH]))))
    return tuple(files)


def _read_entries(unit: _Cursor, offset_bytes: int, sections: dict[str, bytes]) -> list[dict[int, int | str]]:
    """Read folders or files of DWARF 5: first which fields an entry has and their forms, then the entries."""
    fields = [(unit.read_uleb(), unit.read_uleb()) for _ in range(unit.read_unsigned(1))]
    return [
        {content: _read_form(unit, form, offset_bytes, sections) for content, form in fields}
        for _ in range(unit.read_uleb())
    ]


def _read_form(unit: _Cursor, form: int, offset_bytes: int, sections: dict[str, bytes]) -> int | str:
    if form == _STRING:
        return unit.read_string()
    if form in (_LINE_STRP, _STRP):
        section = ".debug_line_str" if form == _LINE_STRP else ".debug_str"
        return _Cursor(sections[section], unit.read_unsigned(offset_bytes)).read_string()
    if form == _UDATA:
        return unit.read_uleb()
    if form == _BLOCK:
        return int.from_bytes(unit.read_bytes(unit.read_uleb()), "little")
    if form in _FIXED_FORMS:
        return unit.read_unsigned(_FIXED_FORMS[form])
    raise CodeObjectError(f"a file of its line table has a field of the unknown form {form:#x}")


class _Registers:
    """The registers of a line program: the row that it builds."""

    def __init__(self) -> None:
        self.address, self.file, self.line, self.column = 0, 1, 1, 0

    def make_row(self, files: tuple[str, ...]) -> _Row:
        # Line 0: code that belongs to no line.
        found = SourceLine(files[self.file], self.line, self.column) if self.line else None
        return self.address, found


def _run_program(program: _Cursor, header: _Header) -> Iterator[list[_Row]]:
    registers, rows = _Registers(), list[_Row]()
    opcode_base = len(header.operand_counts) + 1
    while program.at < len(program.data):
        opcode = program.read_unsigned(1)
        if opcode >= opcode_base:  # a special opcode advances both address and line, and makes a row
            advance, line = divmod(opcode - opcode_base, header.line_range)
            registers.address += advance * header.min_length
            registers.line += header.line_base + line
            rows.append(registers.make_row(header.files))
        elif opcode == 0:
            if _run_extended(program, registers):
                rows.append((registers.address, None))
                yield rows
                registers, rows = _Registers(), []
        elif opcode == 1:  # DW_LNS_copy
            rows.append(registers.make_row(header.files))
        else:
            _run_standard(opcode, program, header, registers)


def _run_extended(program: _Cursor, registers: _Registers) -> bool:
    """Run an extended opcode, and tell whether it ends a sequence."""
    size = program.read_uleb()
    end = program.at + size
    opcode = program.read_unsigned(1)
    if opcode == 2:  # DW_LNE_set_address
        registers.address = program.read_unsigned(size - 1)
    program.at = end
    return opcode == 1  # DW_LNE_end_sequence


def _run_standard(opcode: int, program: _Cursor, header: _Header, registers: _Registers) -> None:
    if opcode == 2:  # DW_LNS_advance_pc
        registers.address += program.read_uleb() * header.min_length
    elif opcode == 3:  # DW_LNS_advance_line
        registers.line += program.read_sleb()
    elif opcode == 4:  # DW_LNS_set_file
        registers.file = program.read_uleb()
    elif opcode == 5:  # DW_LNS_set_column
        registers.column = program.read_uleb()
    elif opcode == 8:  # DW_LNS_const_add_pc: as the special opcode 255, without a row
        opcode_base = len(header.operand_counts) + 1
        registers.address += (255 - opcode_base) // header.line_range * header.min_length
    elif opcode == 9:  # DW_LNS_fixed_advance_pc
        registers.address += program.read_unsigned(2)
    else:  # others set flags without operands, or are newer: the header tells how many operands to skip
        for _ in range(header.operand_counts[opcode - 1]):
            program.read_uleb()
