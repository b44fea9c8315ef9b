"""Lower arithmetic: scalar and vector operations of the table, and moves of values between lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tilewright.emulator.alu.cross_lane import get_scalar_destination
from tilewright.emulator.alu.dpp import LaneMap, read_lane_map
from tilewright.emulator.alu.instruction_context import DPP_MODIFIERS, SDWA_MODIFIERS, InstructionContext
from tilewright.emulator.alu.operands import match_sources
from tilewright.emulator.alu.vector import find_first_bit, find_vector_operation
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.instruction import EXEC, VCC, Instruction, Operand
from tilewright.emulator.isa.names import normalize_name
from tilewright.emulator.isa.operation import Operation
from tilewright.emulator.isa.scalar import SAVE_EXEC, WRITE_EXEC
from tilewright.emulator.isa.table import COMPARE, SCALAR, VECTOR
from tilewright.emulator.native import layout
from tilewright.emulator.native.generate import handler_numbers
from tilewright.emulator.native.layout import LANES, InstructionRecord, LoweringTables, make_record
from tilewright.emulator.native.lower_packed import lower_dual, lower_packed
from tilewright.emulator.native.lower_source import (
    NULL,
    bit_width,
    make_mask_destination,
    make_mask_source,
    make_permutation,
    make_sdwa_source,
    make_source,
    set_destination,
    set_output,
)
from tilewright.emulator.native.lower_wide import lower_wide

# In the order of the cases in run_save_exec.
_EXEC_LOGIC = ("and", "or", "xor", "andn2", "orn2", "nand", "nor", "xnor", "andn1", "orn1")


def lower_alu(instruction: Instruction, code: LoadedCode, tables: LoweringTables) -> InstructionRecord | None:
    """Return the record of an arithmetic instruction; None for others and for those that only NumPy supports."""
    if instruction.other is not None:
        return lower_dual(instruction, code, tables)
    name = normalize_name(instruction.mnemonic)
    if not name.startswith(("s_", "v_")):
        return None
    site = InstructionContext(instruction, code, name)
    if name.startswith(("s_", "v_s_")):
        return _lower_scalar(site)
    if (made := _lower_cross_lane(site, tables)) is not None:
        return made
    for lower_kind in (lower_packed, lower_wide):
        if (made := lower_kind(site, tables)) is not None:
            return made
    return lower_vector(site, tables)


def _lower_scalar(site: InstructionContext) -> InstructionRecord | None:
    if site.name in SAVE_EXEC or site.name in WRITE_EXEC:
        return _lower_exec_logic(site)
    operation = SCALAR.get(site.name)
    if operation is None:
        return None
    site.check_modifiers()
    operands = list(site.instruction.operands[1 if operation.result else 0 :])
    sources = []
    for kind in operation.sources:
        if kind == "scc":
            sources.append(layout.make_operand(layout.SCC))
            continue
        old = kind.startswith("old ")
        if not old and not operands:
            raise site.unknown(f"too few operands of {site.instruction.mnemonic}")
        sources.append(
            _make_scalar_source(site, site.destination if old else operands.pop(0), kind.removeprefix("old "))
        )
    if operands:
        raise site.unknown(f"too many operands of {site.instruction.mnemonic}")
    made = make_record(handler_numbers()[1][operation], None, sources)
    if operation.result:
        out = _make_scalar_destination(site, site.destination, operation.result)
        if out is None:
            return None
        made.out = out
    return made


def _make_scalar_source(site: InstructionContext, operand: Operand, kind: str) -> layout.OperandRecord:
    if operand.kind in ("v", "a") or operand.half or operand.sign_extended:
        raise site.unknown(f"a source of {site.instruction.mnemonic}")
    return make_source(site, operand, kind)


def _make_scalar_destination(site: InstructionContext, operand: Operand, kind: str) -> layout.OperandRecord | None:
    wide = bit_width(kind) == 64
    if operand.kind == "none" and operand.name == "null":
        return None if wide else layout.make_scalar(NULL)
    return layout.make_scalar(site.scalar_register(operand, 2 if wide else 1))


def _lower_exec_logic(site: InstructionContext) -> InstructionRecord | None:
    """Set exec to an operation of a source and exec; the destination gets the old exec, or the new one."""
    site.check_modifiers()
    saves = site.name in SAVE_EXEC
    operation = SAVE_EXEC[site.name] if saves else WRITE_EXEC[site.name]
    if len(site.instruction.operands) != 2:
        raise site.unknown(f"the operands of {site.instruction.mnemonic}")
    destination, operand = site.instruction.operands
    out = _make_scalar_destination(site, destination, operation.result)
    logic = site.name.split("_")[1]
    if out is None or logic not in _EXEC_LOGIC:
        return None
    given = [_make_scalar_source(site, operand, operation.result)]
    fields = {"size": bit_width(operation.result) // 8, "detail": _EXEC_LOGIC.index(logic)}
    return make_record("save_exec" if saves else "write_exec", out, given, **fields)


def lower_vector(site: InstructionContext, tables: LoweringTables) -> InstructionRecord | None:
    """Lower an operation in every lane."""
    if site.name in COMPARE:
        return _lower_comparison(site, COMPARE[site.name], tables)
    operation = find_vector_operation(site)
    if operation is None:
        return None
    if site.name.startswith("v_bitop3_"):
        made = make_record("bitop3", detail=site.get_number("bitop3"), size=bit_width(operation.result) // 8)
    elif operation in handler_numbers()[0]:
        made = make_record(handler_numbers()[0][operation])
    else:
        return None
    first = 1
    if operation.second:
        second = make_mask_destination(site, site.instruction.operands[1])
        if second is None:
            return None
        made.second, first = second, 2
    set_sources(site, made, operation, site.instruction.operands[first:], tables)
    set_destination(site, made, operation.result)
    set_output(site, made, operation.result)
    return made


def set_sources(
    site: InstructionContext,
    made: InstructionRecord,
    operation: Operation,
    operands: tuple[Operand, ...],
    tables: LoweringTables,
) -> None:
    """Set the sources of a record from the operands after the destinations."""
    lanes = read_lane_map(site)
    if lanes is not None:
        strict = operation.second or operation.result == "mask"
        if strict and not (lanes.zero and lanes.enabled.all()):
            raise site.unknown(f"lanes of {site.instruction.mnemonic} that are not written")
        made.target = len(tables.permutations)
        made.flags |= layout.MASKED
        tables.permutations.append(make_permutation(lanes))
    for k, each in enumerate(match_sources(site, operation, operands)):
        if each.kind == "mask":
            made.sources[k] = make_mask_source(site, each.operand)
        else:
            made.sources[k] = _make_source(site, each.required_operand, each.kind, each.number, lanes is not None)


def _make_source(
    site: InstructionContext, operand: Operand, kind: str, number: int, moves: bool
) -> layout.OperandRecord:
    if site.instruction.encoding == "sdwa" and 0 <= number < 2:
        if bit_width(kind) == 8:
            name = site.get_word("src0_sel", "BYTE_0")
            if not name.startswith("BYTE_"):
                raise site.unknown(f"the selection {name} of a byte")
            return make_source(site, operand, kind, 8 * int(name[5:]))
        return make_sdwa_source(site, operand, kind, number)
    return make_source(site, operand, kind, find_first_bit(site, kind, number), moves and number == 0)


def _lower_comparison(
    site: InstructionContext, operation: Operation, tables: LoweringTables
) -> InstructionRecord | None:
    site.check_modifiers(DPP_MODIFIERS, SDWA_MODIFIERS, frozenset({"op_sel", "clamp"}))
    operands = site.instruction.operands
    changes_exec = site.name.startswith("v_cmpx")
    made = make_record(handler_numbers()[0][operation])
    if len(operands) == 3:
        out = make_mask_destination(site, operands[0])
        if out is None:
            return None
        made.out = out
    else:
        made.out = layout.make_scalar(EXEC if changes_exec else VCC)
    made.flags = layout.WRITES_EXEC if changes_exec else 0
    set_sources(site, made, operation, operands[-2:], tables)
    return made


def _lower_cross_lane(site: InstructionContext, tables: LoweringTables) -> InstructionRecord | None:
    """Return the record of a cross-lane instruction; None for others and for those that only NumPy supports."""
    make = _CROSS_LANE.get(site.name)
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


def _lower_half_swap(site: InstructionContext, operands: tuple[Operand, ...], _: LoweringTables) -> InstructionRecord:
    site.check_modifiers()
    first, second = (
        layout.make_operand(
            layout.VECTOR, _get_vector(site, replace(operand, half="")), shift=16 * (operand.half == "h"), width=16
        )
        for operand in operands
    )
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
    register = get_scalar_destination(site)
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
    if site.code.lanes == 32:
        return make_record("nothing")
    everywhere = np.ones(LANES, np.bool_)
    crossed = LaneMap(np.arange(LANES) ^ 32, everywhere, everywhere, True, True)
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


def _lower_row_permute_by_lane(
    site: InstructionContext, operands: tuple[Operand, ...], _: LoweringTables
) -> InstructionRecord:
    site.check_modifiers(frozenset({"op_sel"}))
    fetch, zero = site.get_bits("op_sel", 3)[:2]
    other_row = 16 if site.name == "v_permlanex16_var_b32" else 0
    given = [layout.make_vector(_get_vector(site, operand)) for operand in operands[1:3]]
    out = layout.make_vector(site.vector_destination())
    return make_record("permute_row_by_lane", out, given, detail=other_row, offset=fetch, offset1=zero)


_CROSS_LANE: dict[str, Callable[[InstructionContext, tuple[Operand, ...], LoweringTables], InstructionRecord]] = {
    "v_readfirstlane_b32": _lower_read_lane,
    "v_readlane_b32": _lower_read_lane,
    "v_writelane_b32": _lower_write_lane,
    "v_mbcnt_lo_u32_b32": _lower_count_below,
    "v_mbcnt_hi_u32_b32": _lower_count_below,
    "v_swap_b32": _lower_swap,
    "v_swap_b16": _lower_half_swap,
    "v_permlane16_swap_b32": _lower_row_swap,
    "v_permlane32_swap_b32": _lower_row_swap,
    "v_permlane64_b32": _lower_half_exchange,
    "v_permlane16_b32": _lower_row_permute,
    "v_permlanex16_b32": _lower_row_permute,
    "v_permlane16_var_b32": _lower_row_permute_by_lane,
    "v_permlanex16_var_b32": _lower_row_permute_by_lane,
}
