"""Sources of vector instructions: arrays [waves, lanes], or [waves, 1] and [1] if all lanes read the same value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.emulator.alu.constants import FLAGS, aperture, constant, dword_constant, flag
from tilewright.emulator.alu.lanes import LaneMap
from tilewright.emulator.alu.site import Site
from tilewright.emulator.group import Group
from tilewright.emulator.instruction import VCC, Operand
from tilewright.emulator.isa.arrays import TYPES, Array

Getter = Callable[[Group], Array]

# First bit and width of an SDWA selection in a register.
SELECTIONS = {
    "BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8), "WORD_0": (0, 16), "WORD_1": (16, 16),
    "DWORD": (0, 32),
}  # fmt: skip
# Moves that copy bits, but treat their sources as floats for the modifiers neg and abs.
SIGNED_MOVES = frozenset({"v_cndmask_b32", "v_mov_b32", "v_cndmask_b16"})
_SIGN: dict[str, Any] = {"u16": np.uint16(0x8000), "u32": np.uint32(0x80000000)}


def applied(function: Callable[..., Array], sources: tuple[Getter, ...]) -> Callable[[Group], Array]:
    """Return a getter that applies a function to sources."""
    if len(sources) == 1:
        (only,) = sources
        return lambda group: function(only(group))
    if len(sources) == 2:
        first, second = sources
        return lambda group: function(first(group), second(group))
    if len(sources) == 3:
        one, two, three = sources
        return lambda group: function(one(group), two(group), three(group))
    return lambda group: function(*[source(group) for source in sources])


def mask_source(site: Site, operand: Operand | None) -> Getter:
    """Make a lane-mask source; vcc if the instruction does not name one."""
    register = VCC if operand is None else site.mask_register(operand)
    return lambda group: group.mask(register)


def vector_source(site: Site, operand: Operand, kind: str, lanes: LaneMap | None, first_bit: int | None) -> Getter:
    """Make a source of a type. `first_bit` is its first bit in the register, if the instruction selects a part."""
    width = TYPES[kind].itemsize * 8
    if operand.half:
        first_bit = 16 if operand.half == "h" else 0
    if width == 64:
        getter = _wide(site, operand, kind, lanes)
    elif lanes is None:
        getter = _plain(site, operand, kind, first_bit or 0)
    else:
        getter = _moved(site, operand, kind, lanes, first_bit or 0)
    if operand.sign_extended:
        raise site.unknown("sext() outside of SDWA")
    return signed(site, operand, kind, getter)


def sdwa_source(site: Site, operand: Operand, kind: str, number: int) -> Getter:
    """Make a source of which SDWA selects a byte or a half; it is zero-extended or sign-extended."""
    name = site.word(f"src{number}_sel", "DWORD")
    if name not in SELECTIONS:
        raise site.unknown(f"the selection {name}")
    if TYPES[kind].itemsize > 4:
        raise site.unknown("SDWA on 64 bits")
    first, width = SELECTIONS[name]
    whole = _plain(site, operand, "u32", 0)
    if width == 32:
        select_bits = whole
    elif operand.sign_extended:
        left, right = np.uint32(32 - width - first), np.int32(32 - width)

        def select_bits(group: Group) -> Array:
            return ((whole(group) << left).view(np.int32) >> right).view(np.uint32)
    else:
        shift, bits = np.uint32(first), np.uint32((1 << width) - 1)

        def select_bits(group: Group) -> Array:
            return (whole(group) >> shift) & bits

    return signed(site, operand, kind, lambda group: _part(select_bits(group), kind, 0))


def signed(site: Site, operand: Operand, kind: str, getter: Getter) -> Getter:
    """Apply the modifiers abs and neg to a source."""
    if not (operand.negated or operand.absolute):
        return getter
    absolute, negated = operand.absolute, operand.negated
    if kind.startswith("f"):

        def float_source(group: Group) -> Array:
            value = np.abs(getter(group)) if absolute else getter(group)
            return np.negative(value) if negated else value

        return float_source
    if site.name not in SIGNED_MOVES:
        raise site.unknown(f"a sign modifier on a source of {site.instruction.mnemonic}")
    sign = _SIGN[kind]

    def bits_source(group: Group) -> Array:
        value = getter(group) & ~sign if absolute else getter(group)
        return value ^ sign if negated else value

    return bits_source


def _part(bits: Array, kind: str, first_bit: int) -> Array:
    """Return bits of dwords as a type of 8, 16 or 32 bits. The result is a view if the dwords are contiguous."""
    dtype = TYPES[kind]
    if dtype.itemsize == 4:
        return bits.view(dtype)
    step = 4 // dtype.itemsize
    if bits.strides[-1] != 4:
        bits = np.ascontiguousarray(bits)
    return bits.view(dtype)[..., first_bit // (8 * dtype.itemsize) :: step]


def _plain(site: Site, operand: Operand, kind: str, first_bit: int) -> Getter:
    """Make a source of at most 32 bits of a register, or a constant."""
    if operand.kind == "const":
        fixed = constant(site, operand, kind)
        if first_bit:
            fixed = _part(dword_constant(site, operand, kind), kind, first_bit)
        return lambda _: fixed
    if operand.kind == "special":
        if operand.name not in FLAGS:
            raise site.unknown(f"the source {operand.name}")
        name = operand.name
        return lambda group: _part(flag(group, name).astype(np.uint32)[:, None], kind, first_bit)
    if operand.kind == "none" and operand.name == "null":
        nothing = np.zeros(1, TYPES[kind])
        return lambda _: nothing
    if operand.count != 1 or operand.kind not in ("v", "a", "s"):
        raise site.unknown(f"a source of {site.instruction.mnemonic}")
    if operand.kind == "s":
        return _scalar(operand.index, kind, first_bit)
    return _vector(site.code.register(operand), kind, first_bit)


def _vector(register: int, kind: str, first_bit: int) -> Getter:
    if kind == "u32":
        return lambda group: group.v[register]
    if kind == "i32":
        return lambda group: group.vi[register]
    if kind == "f32":
        return lambda group: group.vf[register]
    return lambda group: _part(group.v[register], kind, first_bit)


def _scalar(register: int, kind: str, first_bit: int) -> Getter:
    if kind == "u32":
        return lambda group: group.sc[register]
    if kind == "i32":
        return lambda group: group.sci[register]
    if kind == "f32":
        return lambda group: group.scf[register]
    return lambda group: _part(group.sc[register], kind, first_bit)


def _moved(site: Site, operand: Operand, kind: str, lanes: LaneMap, first_bit: int) -> Getter:
    whole = _plain(site, operand, "u32", 0)
    return lambda group: _part(lanes.moved(group, whole(group)), kind, first_bit)


def _wide(site: Site, operand: Operand, kind: str, lanes: LaneMap | None) -> Getter:
    """Make a source of 64 bits: a pair of registers, or a constant."""
    dtype = TYPES[kind]
    if operand.kind == "const":
        fixed = constant(site, operand, kind)
        return lambda _: fixed
    if operand.kind == "special":
        value = aperture(site, operand, kind)
        if value is None:
            raise site.unknown(f"the source {operand.name}")
        wide = np.array([value], np.uint64).view(dtype)
        return lambda _: wide
    if operand.kind == "s":
        register = site.scalar_register(operand, 2)
        return lambda group: group.s64[register][:, None].view(dtype)
    if operand.kind not in ("v", "a") or operand.count != 2:
        raise site.unknown(f"a source of {site.instruction.mnemonic}")
    low = site.code.register(operand)

    def pair(group: Group) -> Array:
        first, second = group.v[low], group.v[low + 1]
        if lanes is not None:
            first, second = lanes.moved(group, first), lanes.moved(group, second)
        both = np.empty((group.waves, group.lanes, 2), np.uint32)
        both[..., 0] = first
        both[..., 1] = second
        return both.view(dtype)[..., 0]

    return pair
