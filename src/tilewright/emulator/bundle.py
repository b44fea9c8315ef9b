"""Bundles: files that hold the code objects of several GPUs. They are read from bytes, or at an address in memory."""

from __future__ import annotations

import ctypes
import importlib
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

from tilewright.emulator.faults import CodeObjectError

# clang-offload-bundler's formats (LLVM, "Clang Offload Bundler").
_PLAIN = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED = b"CCOB"
ELF = b"\x7fELF"
_ZLIB, _ZSTD = 0, 1
# After magic, version (u16) and method (u16): file size in bytes (from version 2 on), unpacked size in bytes, hash.
_SIZES = {1: struct.Struct("<IQ"), 2: struct.Struct("<IIQ"), 3: struct.Struct("<QQQ")}
# More entries than any bundle has: a larger number means damage.
_MOST_ENTRIES = 4096
_MOST_UNPACKED = 4 << 30  # bytes, more than any bundle has


def find_code_object(data: bytes, arch: str) -> bytes:
    """Return the code object for `arch` in a bundle, or `data` itself if it is a code object."""
    if data.startswith(ELF):
        return data
    entries = read_bundle(data)
    found = [code for target, code in entries.items() if _parse_arch(target) == arch]
    if not found:
        raise CodeObjectError(f"the bundle has no code for {arch}; it has {_format_targets(entries)}")
    if len(found) > 1:
        raise CodeObjectError(f"the bundle has {len(found)} code objects for {arch}: {_format_targets(entries)}")
    return found[0]


def read_bundle(data: bytes) -> Mapping[str, bytes]:
    """Return the entries of a bundle, compressed or not, by target."""
    if data.startswith(_COMPRESSED):
        data = _unpack_bundle(data)
    if not data.startswith(_PLAIN):
        raise CodeObjectError(f"it is neither a code object nor a bundle: it begins with {data[:8]!r}")
    try:
        return _read_entries(data)
    except (struct.error, UnicodeDecodeError) as error:
        raise CodeObjectError(f"the bundle is damaged: {error}") from error


def list_archs(bundle: bytes) -> list[str]:
    """Return the GPUs that a bundle has code for."""
    return [arch for arch in map(_parse_arch, read_bundle(bundle)) if arch]


def read_bundle_size(header: bytes) -> int | None:
    """Return the size of a bundle if its header states it: only compressed ones from version 2 on do."""
    if not header.startswith(_COMPRESSED) or len(header) < 32:
        return None
    version = struct.unpack_from("<H", header, 4)[0]
    return int(_SIZES[version].unpack_from(header, 8)[0]) if version in (2, 3) else None


def _read_entries(data: bytes) -> Mapping[str, bytes]:
    (count,) = struct.unpack_from("<Q", data, len(_PLAIN))
    _check_count(count)
    at = len(_PLAIN) + 8
    entries: dict[str, bytes] = {}
    total = 0
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", data, at)
        at += 24
        if at + length > len(data) or offset + size > len(data):
            end = max(at + length, offset + size)
            raise CodeObjectError(f"the bundle has {len(data)} bytes, but an entry ends at byte {end}")
        entries[data[at : at + length].decode()] = data[offset : offset + size]
        at += length
        total += size
        if total > len(data):
            raise CodeObjectError(f"the bundle has {len(data)} bytes, but its entries have {total}")
    return entries


def _unpack_bundle(data: bytes) -> bytes:
    try:
        version, method = struct.unpack_from("<HH", data, 4)
        if version not in _SIZES:
            raise CodeObjectError(f"the bundle has format version {version}; known are 1 to {max(_SIZES)}")
        sizes = _SIZES[version]
        unpacked = sizes.unpack_from(data, 8)[-2]
        if unpacked > _MOST_UNPACKED:
            raise CodeObjectError(f"the compressed bundle states {unpacked} bytes; the limit is {_MOST_UNPACKED}")
        packed = data[8 + sizes.size :]
        if version > 1:
            packed = data[8 + sizes.size : sizes.unpack_from(data, 8)[0]]
        plain = _unpack(packed, method, unpacked + 1)
    except (struct.error, zlib.error) as error:
        raise CodeObjectError(f"the compressed bundle is damaged: {error}") from error
    if len(plain) != unpacked:
        raise CodeObjectError(f"the compressed bundle has {len(plain)} bytes unpacked; its header states {unpacked}")
    return plain


def _unpack(packed: bytes, method: int, most: int) -> bytes:
    """Return at most `most` bytes, however many there are: a few packed ones may stand for gigabytes."""
    if method == _ZLIB:
        unpacker = zlib.decompressobj()
        plain = unpacker.decompress(packed, most)
        if not unpacker.eof:
            raise CodeObjectError("the compressed bundle is cut off, or has more bytes than its header states")
        return plain
    if method != _ZSTD:
        raise CodeObjectError(f"the bundle is compressed with method {method}; known are 0 (zlib) and 1 (zstd)")
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError as error:
        raise CodeObjectError(
            "the bundle is compressed with zstd, but the Python package is missing: pip install zstandard"
        ) from error
    try:
        return bytes(zstandard.ZstdDecompressor().stream_reader(packed).read(most))
    except zstandard.ZstdError as error:
        raise CodeObjectError(f"the compressed bundle is damaged: {error}") from error


def _parse_arch(target: str) -> str:
    """Return the GPU of a target such as hipv4-amdgcn-amd-amdhsa--gfx942:xnack-; empty for the host."""
    kind, _, rest = target.partition("-")
    return rest.rpartition("--")[2].partition(":")[0] if kind.startswith("hip") else ""


def _format_targets(entries: Mapping[str, bytes]) -> str:
    return ", ".join(entries) if entries else "nothing"


def read_image_at(address: int) -> bytes:
    """Return a copy of the bundle or code object at an address. Never reads unmapped memory."""
    room = _count_readable_bytes(address)
    header = ctypes.string_at(address, min(room, 64))
    if header.startswith(_PLAIN):
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


def _check_count(count: int) -> None:
    if count > _MOST_ENTRIES:
        raise CodeObjectError(f"the bundle is damaged: it states {count} entries")


def _find_bundle_end(address: int, room: int) -> int:
    """Return the end of the last entry of a bundle."""
    at = len(_PLAIN)
    (count,) = struct.unpack("<Q", _read_table(address, at, 8, room))
    _check_count(count)
    at += 8
    end = at
    for _ in range(count):
        offset, size, name = struct.unpack("<QQQ", _read_table(address, at, 24, room))
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


def _read_table(address: int, at: int, size: int, room: int) -> bytes:
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
