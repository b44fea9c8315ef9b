"""Arguments of a Triton kernel: its signature, flattened, and each value as bytes."""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

CONSTEXPR = "constexpr"
_DESCRIPTOR = "tensordesc"
_WIDEST = 8  # bytes of the widest number


@dataclass(frozen=True, slots=True)
class KernelArgument:
    """One value that the kernel gets. `kind` is Triton's type: `*fp32` for a pointer, `i32`, `bf16`, …"""

    name: str
    kind: str
    value: Any

    @property
    def is_pointer(self) -> bool:
        return self.kind.startswith("*")


def flatten_arguments(name: str, kind: Any, value: Any) -> Iterator[KernelArgument]:
    """Yield the values that the kernel gets for one parameter: tuples have several, constants none."""
    if isinstance(kind, tuple):
        for index, (inner_kind, inner) in enumerate(zip(kind, value, strict=True)):
            yield from flatten_arguments(f"{name}[{index}]", inner_kind, inner)
    elif kind.startswith(_DESCRIPTOR):
        yield from _flatten_descriptor(name, kind, value)
    elif kind != CONSTEXPR:
        yield KernelArgument(name, kind, value)


def _flatten_descriptor(name: str, kind: str, value: Any) -> Iterator[KernelArgument]:
    """Yield a tensor descriptor as Triton's AMD compiler expects it: with shape and strides twice."""
    element = kind.partition("<")[2].partition("[")[0]
    yield KernelArgument(name, f"*{element}", value.base)
    for size in (*value.shape, *value.strides):
        yield KernelArgument(name, "i64", size)
    yield KernelArgument(name, "i1", value.padding == "nan")
    if hasattr(value, "round_f32_to_tf32"):  # since Triton 3.7
        yield KernelArgument(name, "i1", value.round_f32_to_tf32)
    for size in value.shape:
        yield KernelArgument(name, "i32", size)
    for stride in value.strides:
        yield KernelArgument(name, "i64", stride)


def pack_number(kind: str, value: Any) -> bytes:
    """Return a number's bytes, at least as many as its kind has. Errors are those of Triton's launcher in C."""
    pack = _PACKERS.get(kind)
    if pack is None:
        raise TypeError(f"kernels with arguments of type {kind!r} are not supported; known are {', '.join(_PACKERS)}")
    return pack(value)


def _pack_signed(value: Any) -> bytes:
    return operator.index(value).to_bytes(_WIDEST, "little", signed=True)


def _pack_unsigned(value: Any) -> bytes:
    return operator.index(value).to_bytes(_WIDEST, "little")


def _pack_bf16(value: Any) -> bytes:
    return bytes(ctypes.c_float(value))[2:]  # truncated, as Triton does


_PACKERS: dict[str, Callable[[Any], bytes]] = {
    **dict.fromkeys(("i1", "i8", "i16", "i32", "i64"), _pack_signed),
    **dict.fromkeys(("u1", "u8", "u16", "u32", "u64"), _pack_unsigned),
    "fp16": lambda value: struct.pack("<e", value),
    "bf16": _pack_bf16,
    # Not struct: a number that is too large becomes infinity, as in C.
    **dict.fromkeys(("fp32", "f32"), lambda value: bytes(ctypes.c_float(value))),
    "fp64": lambda value: struct.pack("<d", value),
}
