"""Read code objects and bundles in this process's memory, of which only the address is known."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

from tilewright.emulator.bundle import read_bundle_size
from tilewright.emulator.faults import CodeObjectError

_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED = b"CCOB"
ELF = b"\x7fELF"
# More entries than any bundle has: a larger number means damage.
_MOST_ENTRIES = 4096


def read_image(address: int) -> bytes:
    """Return a copy of the bundle or code object at an address. Never reads unmapped memory."""
    room = _count_readable_bytes(address)
    header = ctypes.string_at(address, min(room, 64))
    if header.startswith(_BUNDLE):
        size = _find_bundle_end(address, room)
    elif header.startswith(_COMPRESSED):
        # A bundle of version 1 does not state its size; unpacking ignores the bytes after it.
        size = read_bundle_size(header) or room
    elif header.startswith(ELF):
        size = _find_elf_end(header, room)
    else:
        raise CodeObjectError(f"it is neither a code object nor a bundle: it begins with {header[:8]!r}")
    if size > room:
        raise CodeObjectError(f"its header states {size} bytes, but only {room} are readable")
    return ctypes.string_at(address, size)


def _find_bundle_end(address: int, room: int) -> int:
    """Return the end of the last entry of a bundle."""
    at = len(_BUNDLE)
    (count,) = struct.unpack("<Q", _read(address, at, 8, room))
    if count > _MOST_ENTRIES:
        raise CodeObjectError(f"the bundle is damaged: it states {count} entries")
    at += 8
    end = at
    for _ in range(count):
        offset, size, name = struct.unpack("<QQQ", _read(address, at, 24, room))
        at += 24 + name
        end = max(end, offset + size, at)
    return end


def _find_elf_end(header: bytes, room: int) -> int:
    """Return the end of the section headers: linkers put them last."""
    if len(header) < 64:
        raise CodeObjectError(f"an ELF header has 64 bytes, but only {len(header)} are readable")
    (offset,) = struct.unpack_from("<Q", header, 40)  # e_shoff
    size, count = struct.unpack_from("<HH", header, 58)  # e_shentsize, e_shnum
    end = offset + size * count
    if not 64 <= end <= room:
        raise CodeObjectError(f"its section headers end at byte {end}, but {room} bytes are readable")
    return int(end)


def _read(address: int, at: int, size: int, room: int) -> bytes:
    if at + size > room:
        raise CodeObjectError(f"the bundle is damaged: its table of entries extends past {room} bytes")
    return ctypes.string_at(address + at, size)


def _count_readable_bytes(address: int) -> int:
    """Return the number of readable bytes from an address to the end of contiguously mapped memory."""
    end = address
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        span, access = line.split(maxsplit=2)[:2]
        first, last = (int(number, 16) for number in span.split("-"))
        if first <= end < last and access.startswith("r"):
            end = last
    if end == address:
        raise CodeObjectError(f"the memory at {address:#x} is not readable")
    return end - address
