"""The calls through which an instruction was inlined, from the debug information of its code object.

The line table has the innermost line only: for `__syncthreads()` that is one of HIP's headers.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from tilewright.emulator.source_lines import SourceLine, find_source_line

# Parts of the paths of headers that belong to the compiler and to HIP.
_LIBRARIES = ("/lib/clang/", "/include/hip/", "/amd_detail/", "/include/c++/")

_Call = tuple[tuple[tuple[int, int], ...], int, SourceLine]  # addresses, depth, place of the call


def find_source_frames(code_object: bytes, address: int) -> tuple[SourceLine | None, tuple[SourceLine, ...]]:
    """Return the source line of an instruction and the calls through which that line was inlined.

    The line is the innermost one that belongs neither to HIP nor to the compiler.
    """
    line = find_source_line(code_object, address)
    if line is None:
        return None, ()
    frames = [line, *_find_calls(code_object, address)]
    own = next((at for at, frame in enumerate(frames) if not is_library(frame)), 0)
    return frames[own], tuple(frames[own + 1 :])


def is_library(line: SourceLine) -> bool:
    """Whether a line is in a header of HIP or the compiler."""
    return any(part in line.file for part in _LIBRARIES)


def _find_calls(code_object: bytes, address: int) -> list[SourceLine]:
    """Return the calls, innermost first."""
    found = [
        (depth, line)
        for ranges, depth, line in _read_calls(code_object)
        if any(start <= address < end for start, end in ranges)
    ]
    return [line for _, line in sorted(found, key=lambda call: -call[0])]


@lru_cache(maxsize=8)
def _read_calls(code_object: bytes) -> tuple[_Call, ...]:
    from elftools.common.exceptions import DWARFError, ELFError  # noqa: PLC0415 - takes long to import
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415

    try:
        elf = ELFFile(io.BytesIO(code_object))
        return tuple(_walk_units(elf.get_dwarf_info())) if elf.has_dwarf_info() else ()
    except (DWARFError, ELFError, KeyError, IndexError, ValueError):
        return ()  # the line table alone is still right


def _walk_units(info: Any) -> Iterator[_Call]:
    for unit in info.iter_CUs():
        top = unit.get_top_DIE()
        base = top.attributes["DW_AT_low_pc"].value if "DW_AT_low_pc" in top.attributes else 0
        files = info.line_program_for_CU(unit)
        yield from _walk_entries(info, unit, top, files, base, 0)


def _walk_entries(info: Any, unit: Any, entry: Any, files: Any, base: int, depth: int) -> Iterator[_Call]:
    for child in entry.iter_children():
        inlined = child.tag == "DW_TAG_inlined_subroutine"
        if inlined and "DW_AT_call_line" in child.attributes:
            given = child.attributes
            column = given["DW_AT_call_column"].value if "DW_AT_call_column" in given else 0
            line = SourceLine(_find_file(files, given["DW_AT_call_file"].value), given["DW_AT_call_line"].value, column)
            yield tuple(_list_ranges(info, unit, child, base)), depth, line
        if child.has_children:
            yield from _walk_entries(info, unit, child, files, base, depth + int(inlined))


def _find_file(files: Any, number: int) -> str:
    header = files.header
    entry = header["file_entry"][number if header["version"] >= 5 else number - 1]
    name = entry.name.decode(errors="replace")
    folders = header["include_directory"]
    at = entry.dir_index if header["version"] >= 5 else entry.dir_index - 1
    folder = folders[at].decode(errors="replace") if 0 <= at < len(folders) else ""
    return str(PurePosixPath(folder, name))


def _list_ranges(info: Any, unit: Any, entry: Any, base: int) -> Iterator[tuple[int, int]]:
    from elftools.dwarf.ranges import BaseAddressEntry  # noqa: PLC0415 - takes long to import

    given = entry.attributes
    if "DW_AT_low_pc" in given:
        start, end = given["DW_AT_low_pc"].value, given["DW_AT_high_pc"]
        yield start, (start if end.form != "DW_FORM_addr" else 0) + end.value
    elif "DW_AT_ranges" in given:
        lists = info.range_lists()
        for item in lists.get_range_list_at_offset(given["DW_AT_ranges"].value, unit):
            if isinstance(item, BaseAddressEntry):
                base = item.base_address
            else:
                start = 0 if getattr(item, "is_absolute", False) else base
                yield start + item.begin_offset, start + item.end_offset
