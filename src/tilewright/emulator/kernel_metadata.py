"""Kernels in the metadata of a code object: arguments and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.emulator.faults import CodeObjectError
from tilewright.emulator.msgpack import Node


@dataclass(frozen=True, slots=True)
class Argument:
    """A part of the kernel's argument memory. The runtime fills those whose kind begins with "hidden_"."""

    kind: str
    offset: int
    size: int

    @property
    def hidden(self) -> bool:
        return self.kind.startswith("hidden_")


@dataclass(frozen=True, slots=True)
class KernelMetadata:
    """The metadata of one kernel."""

    name: str
    descriptor_symbol: str
    arguments: tuple[Argument, ...]
    argument_bytes: int  # including hidden arguments
    max_block_threads: int
    wave_size: int

    @property
    def explicit_bytes(self) -> int:
        """Number of bytes that the caller must pass."""
        return max((item.offset + item.size for item in self.arguments if not item.hidden), default=0)

    @property
    def explicit_room(self) -> int:
        """Offset of the first hidden argument; the caller's padding may extend to it."""
        return min((item.offset for item in self.arguments if item.hidden), default=self.argument_bytes)


def read_metadata(metadata: Node) -> Mapping[str, KernelMetadata]:
    """Return the kernels by name, in the order of the metadata."""
    if not isinstance(metadata, dict):
        raise CodeObjectError(f"its metadata is {type(metadata).__name__}, not a map")
    kernels = metadata.get("amdhsa.kernels")
    if not isinstance(kernels, list):
        raise CodeObjectError("its metadata has no list 'amdhsa.kernels'")
    read = [_read_kernel(kernel) for kernel in kernels]
    return {kernel.name: kernel for kernel in read}


def _read_kernel(kernel: Node) -> KernelMetadata:
    if not isinstance(kernel, dict):
        raise CodeObjectError("its metadata has a kernel that is not a map")
    name = _read_text(kernel, ".name", "a kernel")
    where = f"kernel {name}"
    arguments = kernel.get(".args", [])
    if not isinstance(arguments, list):
        raise CodeObjectError(f"the metadata of {where} has .args that is not a list")
    size = _read_number(kernel, ".kernarg_segment_size", where)
    return KernelMetadata(
        name=name,
        descriptor_symbol=_read_text(kernel, ".symbol", where),
        arguments=tuple(_read_argument(item, size, where) for item in arguments),
        argument_bytes=size,
        max_block_threads=_read_number(kernel, ".max_flat_workgroup_size", where),
        wave_size=_read_number(kernel, ".wavefront_size", where),
    )


def _read_argument(item: Node, room: int, where: str) -> Argument:
    if not isinstance(item, dict):
        raise CodeObjectError(f"the metadata of {where} has an argument that is not a map")
    where = f"an argument of {where}"
    kind, offset, size = (
        _read_text(item, ".value_kind", where),
        _read_number(item, ".offset", where),
        _read_number(item, ".size", where),
    )
    if offset + size > room:
        raise CodeObjectError(f"{where} ends at byte {offset + size}, but the arguments have {room} bytes")
    return Argument(kind, offset, size)


def _read_text(node: Mapping[str, Node], key: str, where: str) -> str:
    value = node.get(key)
    if not isinstance(value, str):
        raise CodeObjectError(f"the metadata of {where} has {key} = {value!r}, expected a string")
    return value


def _read_number(node: Mapping[str, Node], key: str, where: str) -> int:
    value = node.get(key)
    # 2**24 is far above all hardware limits that are stated here.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 24:
        raise CodeObjectError(f"the metadata of {where} has {key} = {value!r}, expected a number below 2**24")
    return value
