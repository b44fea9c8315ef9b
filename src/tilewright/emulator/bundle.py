"""Bundles: files that hold the code objects of several GPUs."""

from __future__ import annotations

import importlib
import struct
import zlib
from collections.abc import Mapping

from tilewright.emulator.faults import CodeObjectError

# clang-offload-bundler's formats (LLVM, "Clang Offload Bundler").
_PLAIN = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED = b"CCOB"
_ELF = b"\x7fELF"
_ZLIB, _ZSTD = 0, 1
_WRAPPER = struct.Struct("<IIQQ")  # __CudaFatBinaryWrapper: magic, version, address of the bundle, unused
WRAPPER_BYTES = _WRAPPER.size
_WRAPPER_MAGIC = 0x48495046  # "HIPF"
# After magic, version (u16) and method (u16): file size in bytes (from version 2 on), unpacked size in bytes, hash.
_SIZES = {1: struct.Struct("<IQ"), 2: struct.Struct("<IIQ"), 3: struct.Struct("<QQQ")}


def find_code_object(data: bytes, arch: str) -> bytes:
    """Return the code object for `arch` in a bundle, or `data` itself if it is a code object."""
    if data.startswith(_ELF):
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


def read_bundle_size(header: bytes) -> int | None:
    """Return the size of a bundle if its header states it: only compressed ones from version 2 on do."""
    if not header.startswith(_COMPRESSED) or len(header) < 32:
        return None
    version = struct.unpack_from("<H", header, 4)[0]
    return int(_SIZES[version].unpack_from(header, 8)[0]) if version in (2, 3) else None


def read_wrapped_address(wrapper: bytes) -> int:
    """Return the address of the bundle that a HIP fat binary wrapper points to."""
    if len(wrapper) != WRAPPER_BYTES:
        raise CodeObjectError(f"a fat binary wrapper has {WRAPPER_BYTES} bytes, not {len(wrapper)}")
    magic, version, address, _ = _WRAPPER.unpack(wrapper)
    if magic != _WRAPPER_MAGIC or version != 1:
        raise CodeObjectError(f"it is not a HIP fat binary wrapper: magic {magic:#x}, version {version}")
    return int(address)


def _read_entries(data: bytes) -> Mapping[str, bytes]:
    (count,) = struct.unpack_from("<Q", data, len(_PLAIN))
    at = len(_PLAIN) + 8
    entries: dict[str, bytes] = {}
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", data, at)
        at += 24
        if at + length > len(data) or offset + size > len(data):
            end = max(at + length, offset + size)
            raise CodeObjectError(f"the bundle has {len(data)} bytes, but an entry ends at byte {end}")
        entries[data[at : at + length].decode()] = data[offset : offset + size]
        at += length
    return entries


def _unpack_bundle(data: bytes) -> bytes:
    try:
        version, method = struct.unpack_from("<HH", data, 4)
        if version not in _SIZES:
            raise CodeObjectError(f"the bundle has format version {version}; known are 1 to {max(_SIZES)}")
        sizes = _SIZES[version]
        unpacked = sizes.unpack_from(data, 8)[-2]
        packed = data[8 + sizes.size :]
        if version > 1:
            packed = data[8 + sizes.size : sizes.unpack_from(data, 8)[0]]
        plain = _unpack(packed, method)
    except (struct.error, zlib.error) as error:
        raise CodeObjectError(f"the compressed bundle is damaged: {error}") from error
    if len(plain) != unpacked:
        raise CodeObjectError(f"the compressed bundle has {len(plain)} bytes unpacked; its header states {unpacked}")
    return plain


def _unpack(packed: bytes, method: int) -> bytes:
    if method == _ZLIB:
        return zlib.decompress(packed)
    if method != _ZSTD:
        raise CodeObjectError(f"the bundle is compressed with method {method}; known are 0 (zlib) and 1 (zstd)")
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError as error:
        raise CodeObjectError(
            "the bundle is compressed with zstd, but the Python package is missing: pip install zstandard"
        ) from error
    try:
        return bytes(zstandard.ZstdDecompressor().decompressobj().decompress(packed))
    except zstandard.ZstdError as error:
        raise CodeObjectError(f"the compressed bundle is damaged: {error}") from error


def _parse_arch(target: str) -> str:
    """Return the GPU of a target such as hipv4-amdgcn-amd-amdhsa--gfx942:xnack-; empty for the host."""
    kind, _, rest = target.partition("-")
    return rest.rpartition("--")[2].partition(":")[0] if kind.startswith("hip") else ""


def _format_targets(entries: Mapping[str, bytes]) -> str:
    return ", ".join(entries) if entries else "nothing"
