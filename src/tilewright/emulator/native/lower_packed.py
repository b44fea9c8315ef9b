"""Lower packed and dual instructions: two operations that both read before either writes."""

from __future__ import annotations

from tilewright.emulator.alu.instruction_context import PACKED_MODIFIERS, InstructionContext
from tilewright.emulator.alu.operands import match_sources
from tilewright.emulator.alu.packed import MIXED, list_dot_operands
from tilewright.emulator.alu.vector import find_vector_operation
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.isa.names import normalize_name
from tilewright.emulator.isa.operation import Operation
from tilewright.emulator.isa.packed import DOT, PACKED, SATURATED_PACKED, SMALL_DOTS, find_signed_dot
from tilewright.emulator.native import layout
from tilewright.emulator.native.generate import handler_numbers
from tilewright.emulator.native.layout import InstructionRecord, LoweringTables, make_record
from tilewright.emulator.native.lower_source import make_mask_source, make_source, set_output


def lower_packed(site: InstructionContext, tables: LoweringTables) -> InstructionRecord | None:
    """Return the record of a packed instruction; None for others and for those that only NumPy supports."""
    if site.name == "v_pk_mov_b32":
        return _lower_move_pair(site, tables)
    if site.name in PACKED:
        return _lower_packed_halves(site, tables)
    if site.name in MIXED:
        return _lower_mixed(site)
    operation = DOT.get(site.name) or find_signed_dot(site.name, *map(bool, site.get_bits("neg_lo", 3)[:2]))
    return None if operation is None else _lower_dot(site, operation)


def _join_halves(
    site: InstructionContext, halves: list[InstructionRecord], tables: LoweringTables, handler: str
) -> InstructionRecord:
    """Make two records that write to spare registers, and one that combines their results."""
    for number, half in enumerate(halves):
        half.out = layout.make_vector(tables.first_spare + number)
    tables.parts += halves
    made = make_record(handler, target=len(tables.parts) - 2)
    register = site.vector_destination(2 if handler == "pair" else 1)
    made.out, made.second = layout.make_vector(register), layout.make_vector(register + 1)
    return made


def _lower_packed_halves(site: InstructionContext, tables: LoweringTables) -> InstructionRecord | None:
    site.check_modifiers(PACKED_MODIFIERS)
    operation = PACKED[site.name]
    if site.has_clamp() and not operation.result.startswith("f"):
        if site.name not in SATURATED_PACKED:
            raise site.unknown(f"clamp of {site.instruction.mnemonic}")
        operation = SATURATED_PACKED[site.name]
    operands = _list_operands(site, operation)
    count = len(operands)
    picks = (site.get_bits("op_sel", count), site.get_bits("op_sel_hi", count, 1))
    signs = (site.get_bits("neg_lo", count), site.get_bits("neg_hi", count))
    halves = []
    for upper in (0, 1):
        half = make_record(handler_numbers()[0][operation])
        for k, (operand, text) in enumerate(zip(operands, operation.sources, strict=True)):
            kind = text.removeprefix("old ")
            part = upper if kind != text else picks[upper][k]
            made = _make_element(site, operand, kind, part, operation.result == "f32")
            if signs[upper][k]:
                made.flags ^= layout.NEGATE
            half.sources[k] = made
        set_output(site, half, operation.result)
        halves.append(half)
    return _join_halves(site, halves, tables, "pair" if operation.result == "f32" else "halves")


def _list_operands(site: InstructionContext, operation: Operation) -> list[Operand]:
    return [each.required_operand for each in match_sources(site, operation, site.instruction.operands[1:])]


def _make_element(
    site: InstructionContext, operand: Operand, kind: str, part: int, pairs: bool
) -> layout.OperandRecord:
    if not pairs:
        return make_source(site, operand, kind, 16 * part)
    return make_source(site, _select_register(site, operand, part), kind)


def _select_register(site: InstructionContext, operand: Operand, part: int) -> Operand:
    if operand.kind == "const":
        return operand
    if operand.kind not in ("v", "a", "s") or operand.count != 2:
        raise site.unknown(f"a source of {site.instruction.mnemonic}")
    return Operand(operand.kind, operand.index + part, 1, negated=operand.negated, absolute=operand.absolute)


def _lower_move_pair(site: InstructionContext, tables: LoweringTables) -> InstructionRecord:
    site.check_modifiers(frozenset({"op_sel"}))
    if len(site.instruction.operands) != 3:
        raise site.unknown(f"the operands of {site.instruction.mnemonic}")
    halves = [
        make_record(
            handler_numbers()[0][PACKED["v_pk_mov_b32"]],
            None,
            [make_source(site, _select_register(site, operand, part), "u32")],
        )
        for operand, part in zip(site.instruction.operands[1:], site.get_bits("op_sel", 2), strict=True)
    ]
    return _join_halves(site, halves, tables, "pair")


def _lower_mixed(site: InstructionContext) -> InstructionRecord | None:
    """v_fma_mix: op_sel_hi selects f16 sources, op_sel the half of the register that holds them."""
    site.check_modifiers(PACKED_MODIFIERS)
    operands = site.instruction.operands[1:]
    if len(operands) != 3:
        raise site.unknown(f"the operands of {site.instruction.mnemonic}")
    if any((*site.get_bits("neg_lo", 3), *site.get_bits("neg_hi", 3))):
        raise site.unknown("neg_lo or neg_hi of " + site.instruction.mnemonic)
    halves, picks = site.get_bits("op_sel_hi", 3), site.get_bits("op_sel", 3)
    given = []
    for operand, half, pick in zip(operands, halves, picks, strict=True):
        if pick and not half:
            raise site.unknown("op_sel of an f32 source of " + site.instruction.mnemonic)
        given.append(make_source(site, operand, "f16" if half else "f32", 16 * pick if half else None))
    made = make_record("fma_mix", layout.make_vector(site.vector_destination()), given)
    made.detail = sum(half << k for k, half in enumerate(halves))
    set_output(site, made, "f32")
    if site.name != "v_fma_mix_f32":
        made.out.shift, made.out.width = 16 if site.name == "v_fma_mixhi_f16" else 0, 16
        made.flags |= layout.PLACED | layout.DST_KEEP
    return made


def _lower_dot(site: InstructionContext, operation: Operation) -> InstructionRecord | None:
    site.check_modifiers(PACKED_MODIFIERS)
    operands = list_dot_operands(site, operation)
    count = len(operands)
    signed = site.name in ("v_dot4_i32_iu8", "v_dot8_i32_iu4")
    negated = any(site.get_bits("neg_hi", count)) or (not signed and any(site.get_bits("neg_lo", count)))
    negated = negated and site.name not in SMALL_DOTS
    if negated or any(site.get_bits("op_sel", count)[:2]) or not all(site.get_bits("op_sel_hi", count, 1)[:2]):
        return None
    if site.has_clamp() and not operation.result.startswith("f"):
        raise site.unknown(f"clamp of {site.instruction.mnemonic}")
    given = [
        make_source(site, operand, kind.removeprefix("old "))
        for operand, kind in zip(operands, operation.sources, strict=True)
    ]
    made = make_record(handler_numbers()[0][operation], layout.make_vector(site.vector_destination()), given)
    set_output(site, made, operation.result)
    return made


def lower_dual(instruction: Instruction, code: LoadedCode, tables: LoweringTables) -> InstructionRecord | None:
    """Lower two vector instructions that are issued as one."""
    halves: list[InstructionRecord] = []
    registers: list[int] = []
    for half in (instruction, instruction.other):
        if half is None:
            return None
        site = InstructionContext(half, code, normalize_name(half.mnemonic.replace("v_dual_", "v_")))
        site.check_modifiers()
        operation = DOT.get(site.name) or find_vector_operation(site)
        if operation is None or operation.second or operation.result[1:] != "32":
            return None
        made = make_record(handler_numbers()[0][operation], layout.make_vector(tables.first_spare + len(halves)))
        _set_dual_sources(site, made, operation)
        halves.append(made)
        registers.append(site.vector_destination())
    tables.parts += halves
    made = make_record("pair", layout.make_vector(registers[0]), target=len(tables.parts) - 2)
    made.second = layout.make_vector(registers[1])
    return made


def _set_dual_sources(site: InstructionContext, made: InstructionRecord, operation: Operation) -> None:
    for k, each in enumerate(match_sources(site, operation, site.instruction.operands[1:])):
        if each.kind == "mask":
            made.sources[k] = make_mask_source(site, each.operand)
        else:
            made.sources[k] = make_source(site, each.required_operand, each.kind)
