"""Lower packed and dual instructions: two operations that both read before either writes."""

from __future__ import annotations

from tilewright.emulator.alu import pairing
from tilewright.emulator.alu.site import PACKED_MODIFIERS, Site
from tilewright.emulator.alu.vector import vector_operation
from tilewright.emulator.code import Code
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.isa.names import canonical
from tilewright.emulator.isa.operation import Operation
from tilewright.emulator.isa.packed import dot_signed
from tilewright.emulator.isa.table import DOT, PACKED, SATURATED_PACKED
from tilewright.emulator.native import layout
from tilewright.emulator.native.generate import numbers
from tilewright.emulator.native.layout import Record
from tilewright.emulator.native.lower_source import mask_source, set_output, source
from tilewright.emulator.native.record import Tables, record

_MIXED = ("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16")


def lower_packed(site: Site, tables: Tables) -> Record | None:
    """Return the record of a packed instruction; None for others and for those that only NumPy supports."""
    if site.name == "v_pk_mov_b32":
        return _move_pair(site, tables)
    if site.name in PACKED:
        return _packed(site, tables)
    if site.name in _MIXED:
        return _mixed(site)
    operation = DOT.get(site.name) or dot_signed(site.name, *map(bool, site.bits("neg_lo", 3)[:2]))
    return None if operation is None else _dot(site, operation)


def _pair(site: Site, halves: list[Record], tables: Tables, handler: str) -> Record:
    """Make two records that write to spare registers, and one that combines their results."""
    for number, half in enumerate(halves):
        half.out = layout.vector(tables.first_spare + number)
    tables.parts += halves
    made = record(handler, target=len(tables.parts) - 2)
    register = site.vector_destination(2 if handler == "pair" else 1)
    made.out, made.second = layout.vector(register), layout.vector(register + 1)
    return made


def _packed(site: Site, tables: Tables) -> Record | None:
    site.check(PACKED_MODIFIERS)
    operation = PACKED[site.name]
    if site.clamps() and not operation.result.startswith("f"):
        if site.name not in SATURATED_PACKED:
            raise site.unknown(f"clamp of {site.instruction.mnemonic}")
        operation = SATURATED_PACKED[site.name]
    operands = _operands(site, operation)
    count = len(operands)
    picks = (site.bits("op_sel", count), site.bits("op_sel_hi", count, 1))
    signs = (site.bits("neg_lo", count), site.bits("neg_hi", count))
    halves = []
    for upper in (0, 1):
        half = record(numbers()[0][operation])
        for k, (operand, text) in enumerate(zip(operands, operation.sources, strict=True)):
            kind = text.removeprefix("old ")
            part = upper if kind != text else picks[upper][k]
            made = _element(site, operand, kind, part, operation.result == "f32")
            if signs[upper][k]:
                made.flags ^= layout.NEGATE
            half.sources[k] = made
        set_output(site, half, operation.result)
        halves.append(half)
    return _pair(site, halves, tables, "pair" if operation.result == "f32" else "halves")


def _operands(site: Site, operation: Operation) -> list[Operand]:
    return [each.given for each in pairing.sources_of(site, operation, site.instruction.operands[1:])]


def _element(site: Site, operand: Operand, kind: str, part: int, pairs: bool) -> layout.Operand:
    if not pairs:
        return source(site, operand, kind, 16 * part)
    return source(site, _register_of_pair(site, operand, part), kind)


def _register_of_pair(site: Site, operand: Operand, part: int) -> Operand:
    if operand.kind == "const":
        return operand
    if operand.kind not in ("v", "a", "s") or operand.count != 2:
        raise site.unknown(f"a source of {site.instruction.mnemonic}")
    return Operand(operand.kind, operand.index + part, 1, negated=operand.negated, absolute=operand.absolute)


def _move_pair(site: Site, tables: Tables) -> Record:
    site.check(frozenset({"op_sel"}))
    if len(site.instruction.operands) != 3:
        raise site.unknown(f"the operands of {site.instruction.mnemonic}")
    halves = [
        record(
            numbers()[0][PACKED["v_pk_mov_b32"]], None, [source(site, _register_of_pair(site, operand, part), "u32")]
        )
        for operand, part in zip(site.instruction.operands[1:], site.bits("op_sel", 2), strict=True)
    ]
    return _pair(site, halves, tables, "pair")


def _mixed(site: Site) -> Record | None:
    """v_fma_mix: op_sel_hi selects f16 sources, op_sel the half of the register that holds them."""
    site.check(PACKED_MODIFIERS)
    operands = site.instruction.operands[1:]
    if len(operands) != 3:
        raise site.unknown(f"the operands of {site.instruction.mnemonic}")
    if any((*site.bits("neg_lo", 3), *site.bits("neg_hi", 3))):
        raise site.unknown("neg_lo or neg_hi of " + site.instruction.mnemonic)
    halves, picks = site.bits("op_sel_hi", 3), site.bits("op_sel", 3)
    given = []
    for operand, half, pick in zip(operands, halves, picks, strict=True):
        if pick and not half:
            raise site.unknown("op_sel of an f32 source of " + site.instruction.mnemonic)
        given.append(source(site, operand, "f16" if half else "f32", 16 * pick if half else None))
    made = record("fma_mix", layout.vector(site.vector_destination()), given)
    made.detail = sum(half << k for k, half in enumerate(halves))
    set_output(site, made, "f32")
    if site.name != "v_fma_mix_f32":
        made.out.shift, made.out.width = 16 if site.name == "v_fma_mixhi_f16" else 0, 16
        made.flags |= layout.PLACED | layout.DST_KEEP
    return made


def _dot(site: Site, operation: Operation) -> Record | None:
    site.check(PACKED_MODIFIERS)
    operands = _operands(site, operation)
    count = len(operands)
    signed = site.name in ("v_dot4_i32_iu8", "v_dot8_i32_iu4")
    negated = any(site.bits("neg_hi", count)) or (not signed and any(site.bits("neg_lo", count)))
    if negated or any(site.bits("op_sel", count)[:2]) or not all(site.bits("op_sel_hi", count, 1)[:2]):
        return None
    if site.clamps() and not operation.result.startswith("f"):
        raise site.unknown(f"clamp of {site.instruction.mnemonic}")
    given = [
        source(site, operand, kind.removeprefix("old "))
        for operand, kind in zip(operands, operation.sources, strict=True)
    ]
    made = record(numbers()[0][operation], layout.vector(site.vector_destination()), given)
    set_output(site, made, operation.result)
    return made


def lower_dual(instruction: Instruction, code: Code, tables: Tables) -> Record | None:
    """Lower two vector instructions that are issued as one."""
    halves: list[Record] = []
    registers: list[int] = []
    for half in (instruction, instruction.other):
        if half is None:
            return None
        site = Site(half, code, canonical(half.mnemonic.replace("v_dual_", "v_")))
        site.check()
        operation = DOT.get(site.name) or vector_operation(site)
        if operation is None or operation.second or operation.result[1:] != "32":
            return None
        made = record(numbers()[0][operation], layout.vector(tables.first_spare + len(halves)))
        _set_dual_sources(site, made, operation)
        halves.append(made)
        registers.append(site.vector_destination())
    tables.parts += halves
    made = record("pair", layout.vector(registers[0]), target=len(tables.parts) - 2)
    made.second = layout.vector(registers[1])
    return made


def _set_dual_sources(site: Site, made: Record, operation: Operation) -> None:
    for k, each in enumerate(pairing.sources_of(site, operation, site.instruction.operands[1:])):
        if each.kind == "mask":
            made.sources[k] = mask_source(site, each.operand)
        else:
            made.sources[k] = source(site, each.given, each.kind)
