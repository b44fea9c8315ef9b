"""Convert sources and destinations of arithmetic instructions to operands of records."""

from __future__ import annotations

from tilewright.emulator.alu.constants import FLAGS, encode_constant, encode_dword_constant, find_aperture
from tilewright.emulator.alu.dpp import LaneMap
from tilewright.emulator.alu.instruction_context import InstructionContext
from tilewright.emulator.alu.operands import SELECTIONS, SIGNED_MOVES
from tilewright.emulator.alu.results import find_destination_part
from tilewright.emulator.instruction import VCC, Operand
from tilewright.emulator.isa.operation import TYPES
from tilewright.emulator.isa.table import keeps_other_half
from tilewright.emulator.native import layout
from tilewright.emulator.native.layout import LANES, InstructionRecord, Permutation

_FLAG_KINDS = {"src_scc": layout.SCC, "src_vccz": layout.VCCZ, "src_execz": layout.EXECZ}
# A scalar register that no instruction uses: the destination of writes to "null".
NULL = 125


def bit_width(kind: str) -> int:
    return TYPES[kind].itemsize * 8


def make_permutation(lanes: LaneMap) -> Permutation:
    """Make a permutation of lanes; lanes that the wave does not have stay in place."""
    made = Permutation(zero=int(lanes.zero), inactive=int(lanes.fetch_inactive))
    sources = [*(int(lane) for lane in lanes.source), *range(len(lanes.source), LANES)]
    made.source[:] = sources
    made.valid = sum(1 << lane for lane, exists in enumerate(lanes.exists) if exists)
    made.enabled = sum(1 << lane for lane, enabled in enumerate(lanes.enabled) if enabled)
    return made


def make_source(
    site: InstructionContext, operand: Operand, kind: str, first_bit: int | None = None, moved: bool = False
) -> layout.OperandRecord:
    """Make a source of a type. `first_bit` is its first bit in the register, if the instruction selects a part."""
    if operand.half:
        first_bit = 16 if operand.half == "h" else 0
    if operand.sign_extended:
        raise site.unknown("sext() outside of SDWA")
    made = _make_wide(site, operand, kind) if bit_width(kind) == 64 else _make_part(site, operand, kind, first_bit or 0)
    made.flags |= _make_sign_flags(site, operand, kind) | (layout.PERMUTED if moved else 0)
    return made


def make_sdwa_source(site: InstructionContext, operand: Operand, kind: str, number: int) -> layout.OperandRecord:
    """Make a source of which SDWA selects a byte or a half."""
    name = site.get_word(f"src{number}_sel", "DWORD")
    if name not in SELECTIONS or bit_width(kind) > 32:
        raise site.unknown(f"the selection {name}")
    made = _make_part(site, operand, "u32", 0)
    made.shift, made.width = SELECTIONS[name]
    made.flags |= _make_sign_flags(site, operand, kind) | (layout.SIGN_EXTEND if operand.sign_extended else 0)
    return made


def _make_sign_flags(site: InstructionContext, operand: Operand, kind: str) -> int:
    flags = (layout.NEGATE if operand.negated else 0) | (layout.ABSOLUTE if operand.absolute else 0)
    if flags and not kind.startswith("f") and site.name not in SIGNED_MOVES:
        raise site.unknown(f"a sign modifier on a source of {site.instruction.mnemonic}")
    return flags


def _make_part(site: InstructionContext, operand: Operand, kind: str, first_bit: int) -> layout.OperandRecord:
    """Make a source of at most 32 bits of a register, or a constant."""
    width = 32 if not first_bit else bit_width(kind)
    if operand.kind == "const":
        encode = encode_dword_constant if first_bit else encode_constant
        return layout.make_constant(encode(site, operand, kind) >> first_bit)
    if operand.kind == "special":
        if operand.name not in FLAGS:
            raise site.unknown(f"the source {operand.name}")
        return layout.make_operand(_FLAG_KINDS[operand.name], shift=first_bit, width=width)
    if operand.kind == "none" and operand.name == "null":
        return layout.make_constant(0)
    if operand.count != 1 or operand.kind not in ("v", "a", "s"):
        raise site.unknown(f"a source of {site.instruction.mnemonic}")
    if operand.kind == "s":
        return layout.make_operand(layout.SCALAR, operand.index, shift=first_bit, width=width)
    return layout.make_operand(layout.VECTOR, site.code.get_register(operand), shift=first_bit, width=width)


def _make_wide(site: InstructionContext, operand: Operand, kind: str) -> layout.OperandRecord:
    if operand.kind == "const":
        return layout.make_constant(encode_constant(site, operand, kind))
    if operand.kind == "special":
        value = find_aperture(site, operand, kind)
        if value is None:
            raise site.unknown(f"the source {operand.name}")
        return layout.make_constant(value)
    if operand.kind == "s":
        return layout.make_scalar(site.scalar_register(operand, 2))
    if operand.kind not in ("v", "a") or operand.count != 2:
        raise site.unknown(f"a source of {site.instruction.mnemonic}")
    return layout.make_vector(site.code.get_register(operand))


def make_mask_source(site: InstructionContext, operand: Operand | None) -> layout.OperandRecord:
    """Make a lane-mask source; vcc if the instruction does not name one."""
    return layout.make_operand(layout.LANE_MASK, VCC if operand is None else site.mask_register(operand))


def make_mask_destination(site: InstructionContext, operand: Operand) -> layout.OperandRecord | None:
    """Make a lane-mask destination. None if it cannot be expressed: a pair of "null"."""
    if operand.kind != "none":
        return layout.make_scalar(site.mask_register(operand))
    return layout.make_scalar(NULL) if site.code.lanes == 32 else None


def set_destination(site: InstructionContext, made: InstructionRecord, kind: str) -> None:
    """Set the destination of a record for a result of a type."""
    size = TYPES[kind].itemsize
    made.out = layout.make_vector(site.vector_destination(2 if size == 8 else 1))
    if size == 8:
        return
    if site.instruction.encoding == "sdwa" and site.get_word("dst_sel", "DWORD") != "DWORD":
        name, rest = site.get_word("dst_sel", "DWORD"), site.get_word("dst_unused", "UNUSED_PAD")
        flags = {"UNUSED_PAD": 0, "UNUSED_PRESERVE": layout.DST_KEEP, "UNUSED_SEXT": layout.DST_SEXT}
        if name not in SELECTIONS or rest not in flags:
            raise site.unknown(f"the selection {name} with {rest}")
        made.out.shift, made.out.width = SELECTIONS[name]
        made.flags |= layout.PLACED | flags[rest]
        return
    if size < 4:
        part = find_destination_part(site, size)
        if part or size == 1 or keeps_other_half(site.name, site.code.arch):
            made.out.shift, made.out.width = 8 * size * part, 8 * size
            made.flags |= layout.PLACED | layout.DST_KEEP


def set_output(site: InstructionContext, made: InstructionRecord, kind: str) -> None:
    """Set output modifiers and clamp of a float result in a record."""
    factor = site.get_number("mul", 1) / site.get_number("div", 1)
    if factor not in (0.5, 1, 2, 4):
        raise site.unknown(f"the output modifier {factor}")
    if not kind.startswith("f"):
        if factor != 1:
            raise site.unknown(f"an output modifier of {site.instruction.mnemonic}")
        return
    made.omod = {1: 0, 2: 1, 4: 2, 0.5: 3}[factor]
    made.flags |= layout.CLAMP if site.has_clamp() else 0
