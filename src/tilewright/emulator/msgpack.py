"""Decode MessagePack, the encoding of a code object's metadata. Only the types in AMD's metadata are supported."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from tilewright.emulator.faults import CodeObjectError

Node = None | bool | int | float | str | list["Node"] | dict[str, "Node"]

_DEEPEST = 32  # the metadata of AMD's code objects has five levels


def decode(data: bytes) -> Node:
    """Decode the one value in `data`, or raise `CodeObjectError`."""
    value, end = _decode_value(data, 0, 0)
    if end != len(data):
        raise CodeObjectError(f"the metadata ends at byte {end} of {len(data)}")
    return value


def _decode_value(data: bytes, at: int, depth: int) -> tuple[Node, int]:  # noqa: PLR0911 - one for each kind of value
    """Return the value that begins at byte `at`, and its end."""
    if depth > _DEEPEST:
        raise CodeObjectError(f"the metadata is nested more than {_DEEPEST} levels deep")
    tag = _take_bytes(data, at, 1)[0]
    at += 1
    if tag <= 0x7F:
        return tag, at
    if tag >= 0xE0:
        return tag - 0x100, at
    if tag <= 0x8F:
        return _decode_map(data, at, tag & 0xF, depth)
    if tag <= 0x9F:
        return _decode_list(data, at, tag & 0xF, depth)
    if tag <= 0xBF:
        return _decode_text(data, at, tag & 0x1F)
    if tag in _FIXED:
        return _FIXED[tag], at
    if tag in _NUMBERS:
        form = _NUMBERS[tag]
        size = struct.calcsize(form)
        return struct.unpack(form, _take_bytes(data, at, size))[0], at + size
    if tag in _COUNTED:
        size, read = _COUNTED[tag]
        return read(data, at + size, int.from_bytes(_take_bytes(data, at, size), "big"), depth)
    raise CodeObjectError(f"the metadata has an unknown kind of value, {tag:#x}, at byte {at - 1}")


def _take_bytes(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise CodeObjectError(f"the metadata has {len(data)} bytes, but byte {at + size} is needed")
    return data[at : at + size]


def _decode_text(data: bytes, at: int, size: int, depth: int = 0) -> tuple[Node, int]:  # noqa: ARG001 - as _list and _map
    try:
        return _take_bytes(data, at, size).decode(), at + size
    except UnicodeDecodeError as error:
        raise CodeObjectError(f"the metadata has a string that is not UTF-8, at byte {at}") from error


def _decode_list(data: bytes, at: int, count: int, depth: int) -> tuple[Node, int]:
    items: list[Node] = []
    for _ in range(count):
        item, at = _decode_value(data, at, depth + 1)
        items.append(item)
    return items, at


def _decode_map(data: bytes, at: int, count: int, depth: int) -> tuple[Node, int]:
    items: dict[str, Node] = {}
    for _ in range(count):
        key, at = _decode_value(data, at, depth + 1)
        if not isinstance(key, str):
            raise CodeObjectError(f"the metadata has the key {key!r}, but keys must be strings")
        items[key], at = _decode_value(data, at, depth + 1)
    return items, at


# The tags are those of MessagePack's specification (msgpack/spec.md).
_FIXED: Mapping[int, Node] = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS: Mapping[int, str] = {
    0xCA: ">f", 0xCB: ">d",
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_COUNTED: Mapping[int, tuple[int, Callable[[bytes, int, int, int], tuple[Node, int]]]] = {
    0xD9: (1, _decode_text), 0xDA: (2, _decode_text), 0xDB: (4, _decode_text),
    0xDC: (2, _decode_list), 0xDD: (4, _decode_list),
    0xDE: (2, _decode_map), 0xDF: (4, _decode_map),
}  # fmt: skip
