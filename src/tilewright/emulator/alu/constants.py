"""Constants and hardware values as sources."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.emulator import hardware
from tilewright.emulator.alu.instruction_context import InstructionContext
from tilewright.emulator.group import WaveGroup
from tilewright.emulator.instruction import VCC, Operand
from tilewright.emulator.isa.operation import TYPES, Array

# Integers that fit the operand field of an instruction; others follow it as a 32-bit literal.
_INLINE = range(-16, 65)

APERTURES = {
    "src_shared_base": hardware.SHARED_BASE,
    "src_shared_limit": hardware.SHARED_LIMIT,
    "src_private_base": hardware.PRIVATE_BASE,
    "src_private_limit": hardware.PRIVATE_LIMIT,
}


def make_constant(site: InstructionContext, operand: Operand, kind: str) -> Array:
    """Return a constant as the type that the instruction reads, without its modifiers."""
    bits = encode_constant(site, operand, kind)
    dtype = TYPES[kind]
    return np.array([bits], f"u{dtype.itemsize}").view(dtype)


def encode_constant(site: InstructionContext, operand: Operand, kind: str) -> int:
    size = TYPES[kind].itemsize * 8
    value = operand.value
    if isinstance(value, float):
        # A decimal point: a float constant. Integer instructions read the bits of the f32, those of 16 bits its lower
        # half (LLVM, AMDGPUBaseInfo.cpp, getInlineEncodingV216: what the hardware does, unlike the manuals).
        if kind in ("u16", "i16"):
            return int(np.array([value], np.float32).view(np.uint32)[0]) & 0xFFFF
        wide: Any = {16: np.float16, 32: np.float32, 64: np.float64}.get(size)
        if wide is None:
            raise site.unknown(f"the constant {value} for an operand of {size} bits")
        return int(np.array([value], wide).view(f"u{size // 8}")[0])
    if not -(1 << 63) <= value < 1 << 64:
        raise site.unknown(f"the constant {value}")
    if size == 64 and value not in _INLINE and 0 <= value < 1 << 32:
        # A literal is the upper half of an f64, and is extended for integers.
        if kind == "f64":
            return value << 32
        if kind == "i64" and value >> 31:
            return value | 0xFFFFFFFF00000000
    return value & ((1 << size) - 1)


def encode_dword_constant(site: InstructionContext, operand: Operand, kind: str) -> int:
    """Return a constant of which an instruction selects a part: an f16 constant is the lower half, above it is 0."""
    as_half = kind == "f16" and isinstance(operand.value, float)
    return encode_constant(site, operand, "f16" if as_half else "u32")


def make_dword_constant(site: InstructionContext, operand: Operand, kind: str) -> Array:
    """Return `encode_dword_constant` as an array."""
    return np.array([encode_dword_constant(site, operand, kind)], np.uint32)


def find_aperture(site: InstructionContext, operand: Operand, kind: str) -> int | None:
    """Return the 64-bit value of an aperture register; None for other operands."""
    if operand.name not in APERTURES:
        return None
    if TYPES[kind].itemsize != 8:
        raise site.unknown(f"{operand.name} as an operand of {TYPES[kind].itemsize * 8} bits")
    return APERTURES[operand.name]


def read_flag(group: WaveGroup, name: str) -> Array:
    """Return SCC, or whether vcc or exec is zero, per wave."""
    if name == "src_scc":
        return group.scc
    mask = group.exec_mask if name == "src_execz" else group.read_mask(VCC)
    return np.logical_not(mask.any(axis=1))


FLAGS = ("src_scc", "src_vccz", "src_execz")
