"""Where memory was allocated: the line of Python or of the HIP program, and memory that was not freed."""

from __future__ import annotations

import ctypes
import io
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.inlined_calls import find_source_frames, is_library
from tilewright.emulator.memory import Memory
from tilewright.emulator.sanitizer.findings import Finding
from tilewright.emulator.source_lines import SourceLine

_PACKAGE = str(Path(__file__).parents[2])
_MOST_FRAMES = 64
# Between the program's call and here: the shim, Python and what connects them.
_BETWEEN = re.compile(r"/(libpython|libffi|_ctypes|libc[.-]|libgcc|ld-linux|libamdhip64|python3?[.\d]*$)[^/]*$")
_MAPPED = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ..x. ([0-9a-f]+) \S+ \d+\s+(/.*)")
_SITE = re.compile(r"(.+):(\d+)")


@dataclass(frozen=True, slots=True)
class NativeSite:
    """The calls that led to an allocation, as addresses. As a text, it is the line of the program, or "" if unknown."""

    addresses: tuple[int, ...]

    def __str__(self) -> str:
        mapped = [
            (int(match[1], 16), int(match[2], 16), int(match[3], 16), match[4])
            for line in Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
            if (match := _MAPPED.match(line))
        ]
        for address in self.addresses:
            before = address - 1  # in the call, not behind it
            for start, end, offset, path in mapped:
                if start <= before < end and not _BETWEEN.search(path):
                    site, is_header = _describe_native(path, before - start + offset)
                    if not is_header:
                        return site
        return ""


def find_allocation_site() -> str | NativeSite:
    """Return the line that allocates: of Python outside this package, or else of the C++ program."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_PACKAGE, "<")) and "contextlib" not in file:
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    addresses = (ctypes.c_void_p * _MOST_FRAMES)()
    count = ctypes.CDLL(None).backtrace(addresses, _MOST_FRAMES)
    return NativeSite(tuple(address for address in addresses[:count] if address))


@lru_cache(maxsize=1024)
def _describe_native(path: str, offset: int) -> tuple[str, bool]:
    """Return the place of a call, and whether it is in a header of HIP, such as that of `hipMalloc` for types."""
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - takes long to import

    try:
        data = _read_file(path)
        elf = ELFFile(io.BytesIO(data))
        loaded = (part.header for part in elf.iter_segments("PT_LOAD"))
        address = next(
            offset - part.p_offset + part.p_vaddr for part in loaded if 0 <= offset - part.p_offset < part.p_filesz
        )
        line, _ = find_source_frames(data, address)
    except (OSError, StopIteration, ValueError):
        line = None
    if line is None:
        return f"{Path(path).name}+{offset:#x}", False
    return f"{line.file}:{line.line}", is_library(line)


@lru_cache(maxsize=4)
def _read_file(path: str) -> bytes:
    return Path(path).read_bytes()


def find_leaks(memory: Memory, gpu: str) -> list[Finding]:
    """Return a finding for each allocation that the program has not freed; those of the emulated device have labels."""
    found = []
    for address, size, label, site in memory.list_sites():
        if not label:
            match = _SITE.fullmatch(site)
            source = SourceLine(match[1], int(match[2]), 0) if match else None
            message = f"{size} bytes at {address:#x} are not freed"
            place = CodePlace(action="allocates", source=source)
            advice = "Free it with hipFree." if site else "Compile the program with -g to see where it was allocated."
            found.append(Finding("leak", message, gpu, places=(place,) if source else (), advice=advice))
    return found
