"""Lower ds_… instructions."""

from __future__ import annotations

import re

from tilewright.emulator.access.atomics import atomic_operation
from tilewright.emulator.access.elements import LDS_READS, LDS_WRITES, Element
from tilewright.emulator.access.operands import check_modifiers, expect, number, vector
from tilewright.emulator.access.permute import swizzle_sources
from tilewright.emulator.access.transpose import TRANSPOSES
from tilewright.emulator.code import Code
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.native import layout
from tilewright.emulator.native.layout import LANES, Permutation, Record
from tilewright.emulator.native.record import Tables, record

_PAIR = re.compile(r"(read|write)2(st64)?_(b32|b64)")


def lower_lds(name: str, instruction: Instruction, code: Code, tables: Tables) -> Record | None:
    """Return the record of a ds_… instruction; None for those that only NumPy supports."""
    rest = name.removeprefix("ds_")
    if rest in ("swizzle_b32", "bpermute_b32", "permute_b32"):
        return _permute(rest, instruction, code, tables)
    queue = tables.queues["lds"]
    if pair := _PAIR.fullmatch(rest):
        return _two(pair[1] == "read", LDS_READS[pair[3]], 64 if pair[2] else 1, instruction, code, queue)
    check_modifiers(instruction, code, ("offset",))
    verb, _, kind = rest.partition("_")
    if verb not in ("read", "write", "gws", "append", "consume"):
        return _atomic(rest, instruction, code, queue)
    return _one(verb, kind, instruction, code, queue)


def _one(verb: str, kind: str, instruction: Instruction, code: Code, queue: int) -> Record | None:
    if verb == "read" and kind in TRANSPOSES and code.arch.lds.transpose_read_bytes:
        size, bits = TRANSPOSES[kind]
        return _read(instruction, code, Element(size), bits, queue)
    if verb == "read" and kind in LDS_READS:
        return _read(instruction, code, LDS_READS[kind], 0, queue)
    if verb == "write" and kind in LDS_WRITES:
        return _write(instruction, code, LDS_WRITES[kind], queue)
    return None


def _flags(element: Element) -> int:
    half = {"": 0, "low": layout.D16, "high": layout.D16_HIGH}[element.half]
    return half | (layout.SIGNED if element.signed else 0)


def _read(instruction: Instruction, code: Code, element: Element, bits: int, queue: int) -> Record:
    data, address = expect(instruction, code, (2,))
    out = layout.vector(vector(instruction, code, data, element.registers))
    where = [layout.vector(vector(instruction, code, address, 1))]
    fields = {"offset": number(instruction, code, "offset"), "size": element.size, "flags": _flags(element)}
    return record("lds_read", out, where, detail=bits, queue=queue, **fields)


def _write(instruction: Instruction, code: Code, element: Element, queue: int) -> Record:
    address, data = expect(instruction, code, (2,))
    where, nothing = layout.vector(vector(instruction, code, address, 1)), layout.operand(layout.NOTHING)
    sources = [where, nothing, layout.vector(vector(instruction, code, data, element.registers))]
    fields = {"offset": number(instruction, code, "offset"), "size": element.size, "flags": _flags(element)}
    return record("lds_write", None, sources, queue=queue, **fields)


def _two(reads: bool, element: Element, far: int, instruction: Instruction, code: Code, queue: int) -> Record:
    check_modifiers(instruction, code, ("offset0", "offset1"))
    unit = element.size * far
    offsets = [number(instruction, code, name) * unit for name in ("offset0", "offset1")]
    nothing = layout.operand(layout.NOTHING)
    fields = {"offset": offsets[0], "offset1": offsets[1], "size": element.size, "flags": layout.TWO, "queue": queue}
    if reads:
        data, address = expect(instruction, code, (2,))
        out = layout.vector(vector(instruction, code, data, 2 * element.registers))
        return record("lds_read", out, [layout.vector(vector(instruction, code, address, 1))], **fields)
    address, *parts = expect(instruction, code, (3,))
    given = [layout.vector(vector(instruction, code, part, element.registers)) for part in parts]
    return record("lds_write", None, [layout.vector(vector(instruction, code, address, 1)), nothing, *given], **fields)


def _atomic(rest: str, instruction: Instruction, code: Code, queue: int) -> Record:
    from tilewright.emulator.native.lower_memory import atomic_detail  # noqa: PLC0415 - it calls this module

    old = "_rtn_" in rest
    operation = atomic_operation(rest.replace("_rtn_", "_"), instruction, code)
    operands = expect(instruction, code, (1 + operation.operands + int(old),))
    words = operation.size // 4
    out = layout.vector(vector(instruction, code, operands[0], words)) if old else None
    sources = [layout.vector(vector(instruction, code, operands[int(old)], 1)), layout.operand(layout.NOTHING)]
    sources += [layout.vector(vector(instruction, code, part, words)) for part in operands[int(old) + 1 :]]
    fields = {"offset": number(instruction, code, "offset"), "size": operation.size}
    flags = layout.RETURNS if old else 0
    return record("lds_atomic", out, sources, detail=atomic_detail(operation), flags=flags, queue=queue, **fields)


def _permute(rest: str, instruction: Instruction, code: Code, tables: Tables) -> Record:
    check_modifiers(instruction, code, ("offset",))
    offset, queue = number(instruction, code, "offset"), tables.queues["lds"]
    nothing = layout.operand(layout.NOTHING)
    if rest != "swizzle_b32":
        registers = [vector(instruction, code, part, 1) for part in expect(instruction, code, (3,))]
        out, address, data = (layout.vector(register) for register in registers)
        return record(rest.removesuffix("_b32"), out, [address, nothing, data], offset=offset, queue=queue)
    out, data = (layout.vector(vector(instruction, code, part, 1)) for part in expect(instruction, code, (2,)))
    lanes = swizzle_sources(offset, code.lanes)
    moved = Permutation(valid=2**64 - 1, enabled=2**64 - 1)
    moved.source[:] = [lanes[lane % code.lanes] for lane in range(LANES)]
    tables.permutations.append(moved)
    return record("swizzle", out, [nothing, nothing, data], target=len(tables.permutations) - 1, queue=queue)
