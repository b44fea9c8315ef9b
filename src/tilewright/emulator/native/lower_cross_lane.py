"""Lower instructions that move values between lanes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.emulator.alu.dpp import LaneMap
from tilewright.emulator.alu.instruction_context import InstructionContext
from tilewright.emulator.instruction import EXEC, Operand
from tilewright.emulator.isa.table import VECTOR
from tilewright.emulator.native import layout
from tilewright.emulator.native.generate import handler_numbers
from tilewright.emulator.native.layout import InstructionRecord, LoweringTables, make_record
from tilewright.emulator.native.lower_source import make_permutation, make_source


def lower_cross_lane(site: InstructionContext, tables: LoweringTables) -> InstructionRecord | None:
    """Return the record of a cross-lane instruction; None for others and for those that only NumPy supports."""
    make = _MAKERS.get(site.name)
    return None if make is None else make(site, site.instruction.operands, tables)


def _lower_write_lane(site: InstructionContext, operands: tuple[Operand, ...], _: LoweringTables) -> InstructionRecord:
    site.check_modifiers()
    given = [_make_uniform_source(site, operand) for operand in operands[1:3]]
    return make_record("write_lane", layout.make_vector(site.vector_destination()), given)


def _lower_count_below(site: InstructionContext, operands: tuple[Operand, ...], _: LoweringTables) -> InstructionRecord:
    site.check_modifiers()
    given = [make_source(site, operand, "u32") for operand in operands[1:3]]
    shift = 0 if site.name == "v_mbcnt_lo_u32_b32" else 32
    return make_record("count_below", layout.make_vector(site.vector_destination()), given, detail=shift)


def _lower_swap(site: InstructionContext, operands: tuple[Operand, ...], _: LoweringTables) -> InstructionRecord:
    site.check_modifiers()
    first, second = (layout.make_vector(_get_vector(site, operand)) for operand in operands)
    return make_record("swap", first, [second])


def _get_vector(site: InstructionContext, operand: Operand) -> int:
    if operand.kind not in ("v", "a") or operand.count != 1 or operand.negated or operand.absolute or operand.half:
        raise site.unknown(f"an operand of {site.instruction.mnemonic}")
    return site.code.get_register(operand)


def _make_uniform_source(site: InstructionContext, operand: Operand) -> layout.OperandRecord:
    """Make a source that is the same in all lanes."""
    if operand.kind in ("v", "a"):
        raise site.unknown(f"a source of {site.instruction.mnemonic}")
    return make_source(site, operand, "u32")


def _lower_read_lane(site: InstructionContext, operands: tuple[Operand, ...], _: LoweringTables) -> InstructionRecord:
    site.check_modifiers()
    register = site.scalar_register(site.destination, 1)
    if register >= EXEC:
        raise site.unknown(f"exec as the destination of {site.instruction.mnemonic}")
    first = operands[1]
    from_ = _make_uniform_source(site, first) if first.kind == "s" else layout.make_vector(_get_vector(site, first))
    if site.name == "v_readfirstlane_b32":
        return make_record("read_first_lane", layout.make_scalar(register), [from_])
    return make_record("read_lane", layout.make_scalar(register), [from_, _make_uniform_source(site, operands[2])])


def _lower_row_swap(site: InstructionContext, operands: tuple[Operand, ...], _: LoweringTables) -> InstructionRecord:
    if any(site.get_number(name) for name in ("bound_ctrl", "fi")):
        raise site.unknown("a modifier of " + site.instruction.mnemonic)
    site.check_modifiers(frozenset({"bound_ctrl", "fi"}))
    first, second = (_get_vector(site, operand) for operand in operands)
    width = 32 if site.name == "v_permlane32_swap_b32" else 16
    return make_record("swap_rows", layout.make_vector(first), [layout.make_vector(second)], detail=width)


def _lower_half_exchange(
    site: InstructionContext, operands: tuple[Operand, ...], tables: LoweringTables
) -> InstructionRecord:
    site.check_modifiers()
    lanes = site.code.lanes
    everywhere = np.ones(lanes, np.bool_)
    crossed = LaneMap(np.arange(lanes) ^ (32 if lanes == 64 else 0), everywhere, everywhere, True, True)
    given = layout.make_operand(layout.VECTOR, _get_vector(site, operands[1]), flags=layout.PERMUTED)
    tables.permutations.append(make_permutation(crossed))
    number = handler_numbers()[0][VECTOR["v_mov_b32"]]
    out = layout.make_vector(site.vector_destination())
    return make_record(number, out, [given], target=len(tables.permutations) - 1)


def _lower_row_permute(site: InstructionContext, operands: tuple[Operand, ...], _: LoweringTables) -> InstructionRecord:
    site.check_modifiers(frozenset({"op_sel"}))
    fetch, zero = site.get_bits("op_sel", 4)[:2]
    other_row = 16 if site.name == "v_permlanex16_b32" else 0
    given = [
        layout.make_vector(_get_vector(site, operands[1])),
        *(_make_uniform_source(site, operand) for operand in operands[2:4]),
    ]
    out = layout.make_vector(site.vector_destination())
    return make_record("permute_row", out, given, detail=other_row, offset=fetch, offset1=zero)


_MAKERS: dict[str, Callable[[InstructionContext, tuple[Operand, ...], LoweringTables], InstructionRecord]] = {
    "v_readfirstlane_b32": _lower_read_lane,
    "v_readlane_b32": _lower_read_lane,
    "v_writelane_b32": _lower_write_lane,
    "v_mbcnt_lo_u32_b32": _lower_count_below,
    "v_mbcnt_hi_u32_b32": _lower_count_below,
    "v_swap_b32": _lower_swap,
    "v_permlane16_swap_b32": _lower_row_swap,
    "v_permlane32_swap_b32": _lower_row_swap,
    "v_permlane64_b32": _lower_half_exchange,
    "v_permlane16_b32": _lower_row_permute,
    "v_permlanex16_b32": _lower_row_permute,
}
