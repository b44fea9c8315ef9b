"""Sources of vector instructions: arrays [waves, lanes], or [waves, 1] and [1] if all lanes read the same value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.emulator.alu.constants import FLAGS, find_aperture, make_constant, make_dword_constant, read_flag
from tilewright.emulator.alu.dpp import LaneMap
from tilewright.emulator.alu.instruction_context import InstructionContext
from tilewright.emulator.group import WaveGroup
from tilewright.emulator.instruction import VCC, Operand
from tilewright.emulator.isa.operation import TYPES, Array, Operation

# Sources that are not operands, or whose operand may be omitted.
_WITHOUT = ("scc", "mask")


@dataclass(frozen=True, slots=True)
class SourceOperand:
    """A source: its type, its operand (or None), and its index among the operands.

    The old value of the destination has the index -1.
    """

    kind: str
    operand: Operand | None
    number: int

    @property
    def required_operand(self) -> Operand:
        """The operand of a source that must have one."""
        assert self.operand is not None
        return self.operand


def match_sources(site: InstructionContext, operation: Operation, operands: Sequence[Operand]) -> list[SourceOperand]:
    """Return the sources of an operation, from the operands after the destinations. All operands must be used."""
    left = list(operands)
    found = []
    for kind in operation.sources:
        number = len(operands) - len(left)
        if kind == "scc":
            found.append(SourceOperand(kind, None, number))
        elif kind.startswith("old "):
            found.append(SourceOperand(kind.removeprefix("old "), site.destination, -1))
        elif left or kind in _WITHOUT:
            found.append(SourceOperand(kind, left.pop(0) if left else None, number))
        else:
            raise site.unknown(f"too few operands of {site.instruction.mnemonic}")
    if left:
        raise site.unknown(f"too many operands of {site.instruction.mnemonic}")
    return found


Getter = Callable[[WaveGroup], Array]

# First bit and width of an SDWA selection in a register.
SELECTIONS = {
    "BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8), "WORD_0": (0, 16), "WORD_1": (16, 16),
    "DWORD": (0, 32),
}  # fmt: skip
# Moves that copy bits, but treat their sources as floats for the modifiers neg and abs.
SIGNED_MOVES = frozenset({"v_cndmask_b32", "v_mov_b32", "v_cndmask_b16"})
_SIGN: dict[str, Any] = {"u16": np.uint16(0x8000), "u32": np.uint32(0x80000000)}


def apply_function(function: Callable[..., Array], sources: tuple[Getter, ...]) -> Callable[[WaveGroup], Array]:
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


def make_mask_source(site: InstructionContext, operand: Operand | None) -> Getter:
    """Make a lane-mask source; vcc if the instruction does not name one."""
    register = VCC if operand is None else site.mask_register(operand)
    return lambda group: group.read_mask(register)


def make_vector_source(
    site: InstructionContext, operand: Operand, kind: str, lanes: LaneMap | None, first_bit: int | None
) -> Getter:
    """Make a source of a type. `first_bit` is its first bit in the register, if the instruction selects a part."""
    width = TYPES[kind].itemsize * 8
    if operand.half:
        first_bit = 16 if operand.half == "h" else 0
    if width == 64:
        getter = _make_wide_source(site, operand, kind, lanes)
    elif lanes is None:
        getter = _make_plain_source(site, operand, kind, first_bit or 0)
    else:
        getter = _make_moved_source(site, operand, kind, lanes, first_bit or 0)
    if operand.sign_extended:
        raise site.unknown("sext() outside of SDWA")
    return apply_signs(site, operand, kind, getter)


def make_sdwa_source(site: InstructionContext, operand: Operand, kind: str, number: int) -> Getter:
    """Make a source of which SDWA selects a byte or a half; it is zero-extended or sign-extended."""
    name = site.get_word(f"src{number}_sel", "DWORD")
    if name not in SELECTIONS:
        raise site.unknown(f"the selection {name}")
    if TYPES[kind].itemsize > 4:
        raise site.unknown("SDWA on 64 bits")
    first, width = SELECTIONS[name]
    whole = _make_plain_source(site, operand, "u32", 0)
    if width == 32:
        select_bits = whole
    elif operand.sign_extended:
        left, right = np.uint32(32 - width - first), np.int32(32 - width)

        def select_bits(group: WaveGroup) -> Array:
            return ((whole(group) << left).view(np.int32) >> right).view(np.uint32)
    else:
        shift, bits = np.uint32(first), np.uint32((1 << width) - 1)

        def select_bits(group: WaveGroup) -> Array:
            return (whole(group) >> shift) & bits

    return apply_signs(site, operand, kind, lambda group: _extract_part(select_bits(group), kind, 0))


def apply_signs(site: InstructionContext, operand: Operand, kind: str, getter: Getter) -> Getter:
    """Apply the modifiers abs and neg to a source."""
    if not (operand.negated or operand.absolute):
        return getter
    absolute, negated = operand.absolute, operand.negated
    if kind.startswith("f"):

        def read_float(group: WaveGroup) -> Array:
            value = np.abs(getter(group)) if absolute else getter(group)
            return np.negative(value) if negated else value

        return read_float
    if site.name not in SIGNED_MOVES:
        raise site.unknown(f"a sign modifier on a source of {site.instruction.mnemonic}")
    sign = _SIGN[kind]

    def read_bits(group: WaveGroup) -> Array:
        value = getter(group) & ~sign if absolute else getter(group)
        return value ^ sign if negated else value

    return read_bits


def _extract_part(bits: Array, kind: str, first_bit: int) -> Array:
    """Return bits of dwords as a type of 8, 16 or 32 bits. The result is a view if the dwords are contiguous."""
    dtype = TYPES[kind]
    if dtype.itemsize == 4:
        return bits.view(dtype)
    step = 4 // dtype.itemsize
    if bits.strides[-1] != 4:
        bits = np.ascontiguousarray(bits)
    return bits.view(dtype)[..., first_bit // (8 * dtype.itemsize) :: step]


def _make_plain_source(site: InstructionContext, operand: Operand, kind: str, first_bit: int) -> Getter:
    """Make a source of at most 32 bits of a register, or a constant."""
    if operand.kind == "const":
        fixed = make_constant(site, operand, kind)
        if first_bit:
            fixed = _extract_part(make_dword_constant(site, operand, kind), kind, first_bit)
        return lambda _: fixed
    if operand.kind == "special":
        if operand.name not in FLAGS:
            raise site.unknown(f"the source {operand.name}")
        name = operand.name
        return lambda group: _extract_part(read_flag(group, name).astype(np.uint32)[:, None], kind, first_bit)
    if operand.kind == "none" and operand.name == "null":
        nothing = np.zeros(1, TYPES[kind])
        return lambda _: nothing
    if operand.count != 1 or operand.kind not in ("v", "a", "s"):
        raise site.unknown(f"a source of {site.instruction.mnemonic}")
    if operand.kind == "s":
        return _make_scalar_getter(operand.index, kind, first_bit)
    return _make_vector_getter(site.code.get_register(operand), kind, first_bit)


def _make_vector_getter(register: int, kind: str, first_bit: int) -> Getter:
    if kind == "u32":
        return lambda group: group.v[register]
    if kind == "i32":
        return lambda group: group.vi[register]
    if kind == "f32":
        return lambda group: group.vf[register]
    return lambda group: _extract_part(group.v[register], kind, first_bit)


def _make_scalar_getter(register: int, kind: str, first_bit: int) -> Getter:
    if kind == "u32":
        return lambda group: group.sc[register]
    if kind == "i32":
        return lambda group: group.sci[register]
    if kind == "f32":
        return lambda group: group.scf[register]
    return lambda group: _extract_part(group.sc[register], kind, first_bit)


def _make_moved_source(site: InstructionContext, operand: Operand, kind: str, lanes: LaneMap, first_bit: int) -> Getter:
    whole = _make_plain_source(site, operand, "u32", 0)
    return lambda group: _extract_part(lanes.move_lanes(group, whole(group)), kind, first_bit)


def _make_wide_source(site: InstructionContext, operand: Operand, kind: str, lanes: LaneMap | None) -> Getter:
    """Make a source of 64 bits: a pair of registers, or a constant."""
    dtype = TYPES[kind]
    if operand.kind == "const":
        fixed = make_constant(site, operand, kind)
        return lambda _: fixed
    if operand.kind == "special":
        value = find_aperture(site, operand, kind)
        if value is None:
            raise site.unknown(f"the source {operand.name}")
        wide = np.array([value], np.uint64).view(dtype)
        return lambda _: wide
    if operand.kind == "s":
        register = site.scalar_register(operand, 2)
        return lambda group: group.s64[register][:, None].view(dtype)
    if operand.kind not in ("v", "a") or operand.count != 2:
        raise site.unknown(f"a source of {site.instruction.mnemonic}")
    low = site.code.get_register(operand)

    def join_pair(group: WaveGroup) -> Array:
        first, second = group.v[low], group.v[low + 1]
        if lanes is not None:
            first, second = lanes.move_lanes(group, first), lanes.move_lanes(group, second)
        both = np.empty((group.waves, group.lanes, 2), np.uint32)
        both[..., 0] = first
        both[..., 1] = second
        return both.view(dtype)[..., 0]

    return join_pair
