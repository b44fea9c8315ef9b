"""Lower arithmetic: scalar and vector operations of the table."""

from __future__ import annotations

from tilewright.emulator.alu import pairing
from tilewright.emulator.alu.lanes import lane_map
from tilewright.emulator.alu.site import DPP_MODIFIERS, SDWA_MODIFIERS, Site
from tilewright.emulator.alu.vector import first_bit_of, vector_operation
from tilewright.emulator.code import Code
from tilewright.emulator.instruction import EXEC, VCC, Instruction, Operand
from tilewright.emulator.isa.names import canonical
from tilewright.emulator.isa.operation import Operation
from tilewright.emulator.isa.table import COMPARE, SAVE_EXEC, SCALAR, WRITE_EXEC
from tilewright.emulator.native import layout
from tilewright.emulator.native.generate import numbers
from tilewright.emulator.native.layout import Record
from tilewright.emulator.native.lower_cross_lane import lower_cross_lane
from tilewright.emulator.native.lower_packed import lower_dual, lower_packed
from tilewright.emulator.native.lower_source import (
    NULL,
    bits_of,
    mask_destination,
    mask_source,
    permutation,
    sdwa_source,
    set_destination,
    set_output,
    source,
)
from tilewright.emulator.native.record import Tables, record

# In the order of the cases in run_save_exec.
_EXEC_LOGIC = ("and", "or", "xor", "andn2", "orn2", "nand", "nor", "xnor", "andn1", "orn1")


def lower_alu(instruction: Instruction, code: Code, tables: Tables) -> Record | None:
    """Return the record of an arithmetic instruction; None for others and for those that only NumPy supports."""
    if instruction.other is not None:
        return lower_dual(instruction, code, tables)
    name = canonical(instruction.mnemonic)
    if not name.startswith(("s_", "v_")):
        return None
    site = Site(instruction, code, name)
    if name.startswith(("s_", "v_s_")):
        return _scalar(site)
    if (made := lower_cross_lane(site, tables)) is not None:
        return made
    if (made := lower_packed(site, tables)) is not None:
        return made
    return lower_vector(site, tables)


def _scalar(site: Site) -> Record | None:
    if site.name in SAVE_EXEC or site.name in WRITE_EXEC:
        return _exec_logic(site)
    operation = SCALAR.get(site.name)
    if operation is None:
        return None
    site.check()
    operands = list(site.instruction.operands[1 if operation.result else 0 :])
    sources = []
    for kind in operation.sources:
        if kind == "scc":
            sources.append(layout.operand(layout.SCC))
            continue
        old = kind.startswith("old ")
        if not old and not operands:
            raise site.unknown(f"too few operands of {site.instruction.mnemonic}")
        sources.append(_scalar_source(site, site.destination if old else operands.pop(0), kind.removeprefix("old ")))
    if operands:
        raise site.unknown(f"too many operands of {site.instruction.mnemonic}")
    made = record(numbers()[1][operation], None, sources)
    if operation.result:
        out = _scalar_destination(site, site.destination, operation.result)
        if out is None:
            return None
        made.out = out
    return made


def _scalar_source(site: Site, operand: Operand, kind: str) -> layout.Operand:
    if operand.kind in ("v", "a") or operand.half or operand.sign_extended:
        raise site.unknown(f"a source of {site.instruction.mnemonic}")
    return source(site, operand, kind)


def _scalar_destination(site: Site, operand: Operand, kind: str) -> layout.Operand | None:
    wide = bits_of(kind) == 64
    if operand.kind == "none" and operand.name == "null":
        return None if wide else layout.scalar(NULL)
    return layout.scalar(site.scalar_register(operand, 2 if wide else 1))


def _exec_logic(site: Site) -> Record | None:
    """Set exec to an operation of a source and exec; the destination gets the old exec, or the new one."""
    site.check()
    saves = site.name in SAVE_EXEC
    operation = SAVE_EXEC[site.name] if saves else WRITE_EXEC[site.name]
    if len(site.instruction.operands) != 2:
        raise site.unknown(f"the operands of {site.instruction.mnemonic}")
    destination, operand = site.instruction.operands
    out = _scalar_destination(site, destination, operation.result)
    logic = site.name.split("_")[1]
    if out is None or logic not in _EXEC_LOGIC:
        return None
    given = [_scalar_source(site, operand, operation.result)]
    fields = {"size": bits_of(operation.result) // 8, "detail": _EXEC_LOGIC.index(logic)}
    return record("save_exec" if saves else "write_exec", out, given, **fields)


def lower_vector(site: Site, tables: Tables) -> Record | None:
    """Lower an operation in every lane."""
    if site.name in COMPARE:
        return _comparison(site, COMPARE[site.name], tables)
    operation = vector_operation(site)
    if operation is None:
        return None
    if site.name.startswith("v_bitop3_"):
        made = record("bitop3", detail=site.number("bitop3"), size=bits_of(operation.result) // 8)
    elif operation in numbers()[0]:
        made = record(numbers()[0][operation])
    else:
        return None
    first = 1
    if operation.second:
        second = mask_destination(site, site.instruction.operands[1])
        if second is None:
            return None
        made.second, first = second, 2
    set_sources(site, made, operation, site.instruction.operands[first:], tables)
    set_destination(site, made, operation.result)
    set_output(site, made, operation.result)
    return made


def set_sources(site: Site, made: Record, operation: Operation, operands: tuple[Operand, ...], tables: Tables) -> None:
    """Set the sources of a record from the operands after the destinations."""
    lanes = lane_map(site)
    if lanes is not None:
        strict = operation.second or operation.result == "mask"
        if strict and not (lanes.zero and lanes.enabled.all()):
            raise site.unknown(f"lanes of {site.instruction.mnemonic} that are not written")
        made.target = len(tables.permutations)
        made.flags |= layout.MASKED
        tables.permutations.append(permutation(lanes))
    for k, each in enumerate(pairing.sources_of(site, operation, operands)):
        if each.kind == "mask":
            made.sources[k] = mask_source(site, each.operand)
        else:
            made.sources[k] = _source(site, each.given, each.kind, each.number, lanes is not None)


def _source(site: Site, operand: Operand, kind: str, number: int, moves: bool) -> layout.Operand:
    if site.instruction.encoding == "sdwa" and 0 <= number < 2:
        if bits_of(kind) == 8:
            name = site.word("src0_sel", "BYTE_0")
            if not name.startswith("BYTE_"):
                raise site.unknown(f"the selection {name} of a byte")
            return source(site, operand, kind, 8 * int(name[5:]))
        return sdwa_source(site, operand, kind, number)
    return source(site, operand, kind, first_bit_of(site, kind, number), moves and number == 0)


def _comparison(site: Site, operation: Operation, tables: Tables) -> Record | None:
    site.check(DPP_MODIFIERS, SDWA_MODIFIERS, frozenset({"op_sel", "clamp"}))
    operands = site.instruction.operands
    changes_exec = site.name.startswith("v_cmpx")
    made = record(numbers()[0][operation])
    if len(operands) == 3:
        out = mask_destination(site, operands[0])
        if out is None:
            return None
        made.out = out
    else:
        made.out = layout.scalar(EXEC if changes_exec else VCC)
    made.flags = layout.WRITES_EXEC if changes_exec else 0
    set_sources(site, made, operation, operands[-2:], tables)
    return made
