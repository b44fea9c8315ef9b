"""Lower ds_… instructions."""

from __future__ import annotations

from tilewright.emulator.access.atomics import OPERATIONS, find_atomic
from tilewright.emulator.access.elements import LDS_READS, LDS_WRITES, Element
from tilewright.emulator.access.lds import BY_LANE, PAIR
from tilewright.emulator.access.lds_atomics import (
    COUNTS,
    EXCHANGE_PAIR,
    NOTHING,
    read_count_target,
    read_exchange_places,
)
from tilewright.emulator.access.operands import check_modifiers, get_number, get_operands, get_vector
from tilewright.emulator.access.permute import PERMUTES, PULL_FROM_INACTIVE, swizzle_sources
from tilewright.emulator.access.transpose import TRANSPOSES
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.isa.names import normalize_name
from tilewright.emulator.native import layout
from tilewright.emulator.native.layout import LANES, InstructionRecord, LoweringTables, Permutation, make_record
from tilewright.emulator.native.lower_elements import encode_atomic, make_element_flags


def lower_lds(instruction: Instruction, code: LoadedCode, tables: LoweringTables) -> InstructionRecord | None:
    """Return the record of a ds_… instruction; None for others and for those that only NumPy supports."""
    name = normalize_name(instruction.mnemonic)
    if not name.startswith("ds_"):
        return None
    rest = name.removeprefix("ds_")
    if rest == "swizzle_b32" or rest in PERMUTES:
        return _lower_permute(rest, instruction, code, tables)
    queue = tables.queues["lds"]
    if pair := PAIR.fullmatch(rest):
        return _lower_pair(pair[1] == "read", LDS_READS[pair[3]], 64 if pair[2] else 1, instruction, code, queue)
    verb, _, kind = rest.partition("_")
    if verb in ("read", "write"):
        check_modifiers(instruction, code, ("offset",))
        return _lower_single(verb, kind, instruction, code, queue)
    return None if verb == "gws" else _lower_change(rest, instruction, code, queue)


def _lower_change(rest: str, instruction: Instruction, code: LoadedCode, queue: int) -> InstructionRecord:
    """Lower an instruction that changes elements."""
    if exchange := EXCHANGE_PAIR.fullmatch(rest):
        return _lower_exchange(bool(exchange[1]), exchange[2], instruction, code, queue)
    check_modifiers(instruction, code, ("offset",))
    if rest in COUNTS:
        return _lower_count(rest, instruction, code, queue)
    if rest == NOTHING:
        return make_record("occupy", queue=queue)
    return _lower_atomic(rest, instruction, code, queue)


def _lower_single(
    verb: str, kind: str, instruction: Instruction, code: LoadedCode, queue: int
) -> InstructionRecord | None:
    if verb == "read" and kind in TRANSPOSES and code.arch.lds.transpose_read_bytes:
        size, bits = TRANSPOSES[kind]
        return _lower_read(instruction, code, Element(size), bits, queue)
    if kind == BY_LANE:
        return _lower_by_lane(verb, instruction, code, queue)
    if verb == "read" and kind in LDS_READS:
        return _lower_read(instruction, code, LDS_READS[kind], 0, queue)
    if verb == "write" and kind in LDS_WRITES:
        return _lower_write(instruction, code, LDS_WRITES[kind], queue)
    return None


def _lower_read(
    instruction: Instruction, code: LoadedCode, element: Element, bits: int, queue: int
) -> InstructionRecord:
    data, address = get_operands(instruction, code, (2,))
    out = layout.make_vector(get_vector(instruction, code, data, element.registers))
    where = [layout.make_vector(get_vector(instruction, code, address, 1))]
    fields = {
        "offset": get_number(instruction, code, "offset"),
        "size": element.size,
        "flags": make_element_flags(element),
    }
    return make_record("lds_read", out, where, detail=bits, queue=queue, **fields)


def _lower_by_lane(verb: str, instruction: Instruction, code: LoadedCode, queue: int) -> InstructionRecord:
    """Lower an access whose address is M0 plus 4 times the lane."""
    (data,) = get_operands(instruction, code, (1,))
    register, nothing = layout.make_vector(get_vector(instruction, code, data, 1)), layout.make_operand(layout.NOTHING)
    fields = {"offset": get_number(instruction, code, "offset"), "size": 4, "queue": queue}
    if verb == "read":
        return make_record("lds_read", register, [nothing], **fields)
    return make_record("lds_write", None, [nothing, nothing, register], **fields)


def _lower_write(instruction: Instruction, code: LoadedCode, element: Element, queue: int) -> InstructionRecord:
    address, data = get_operands(instruction, code, (2,))
    where, nothing = layout.make_vector(get_vector(instruction, code, address, 1)), layout.make_operand(layout.NOTHING)
    sources = [where, nothing, layout.make_vector(get_vector(instruction, code, data, element.registers))]
    fields = {
        "offset": get_number(instruction, code, "offset"),
        "size": element.size,
        "flags": make_element_flags(element),
    }
    return make_record("lds_write", None, sources, queue=queue, **fields)


def _lower_pair(
    reads: bool, element: Element, far: int, instruction: Instruction, code: LoadedCode, queue: int
) -> InstructionRecord:
    check_modifiers(instruction, code, ("offset0", "offset1"))
    unit = element.size * far
    offsets = [get_number(instruction, code, name) * unit for name in ("offset0", "offset1")]
    nothing = layout.make_operand(layout.NOTHING)
    fields = {"offset": offsets[0], "offset1": offsets[1], "size": element.size, "flags": layout.TWO, "queue": queue}
    if reads:
        data, address = get_operands(instruction, code, (2,))
        out = layout.make_vector(get_vector(instruction, code, data, 2 * element.registers))
        return make_record("lds_read", out, [layout.make_vector(get_vector(instruction, code, address, 1))], **fields)
    address, *parts = get_operands(instruction, code, (3,))
    given = [layout.make_vector(get_vector(instruction, code, part, element.registers)) for part in parts]
    return make_record(
        "lds_write", None, [layout.make_vector(get_vector(instruction, code, address, 1)), nothing, *given], **fields
    )


def _lower_atomic(rest: str, instruction: Instruction, code: LoadedCode, queue: int) -> InstructionRecord:
    old = "_rtn_" in rest
    operation = find_atomic(rest.replace("_rtn_", "_"), instruction, code)
    operands = get_operands(instruction, code, (1 + operation.operands + int(old),))
    words = operation.size // 4
    out = layout.make_vector(get_vector(instruction, code, operands[0], words)) if old else None
    sources = [
        layout.make_vector(get_vector(instruction, code, operands[int(old)], 1)),
        layout.make_operand(layout.NOTHING),
    ]
    sources += [layout.make_vector(get_vector(instruction, code, part, words)) for part in operands[int(old) + 1 :]]
    fields = {"offset": get_number(instruction, code, "offset"), "size": operation.size}
    flags = layout.RETURNS if old else 0
    return make_record("lds_atomic", out, sources, detail=encode_atomic(operation), flags=flags, queue=queue, **fields)


def _lower_exchange(
    far: bool, element: str, instruction: Instruction, code: LoadedCode, queue: int
) -> InstructionRecord:
    operation = OPERATIONS["swap", element]
    words = operation.size // 4
    target, place, *data = get_operands(instruction, code, (4,))
    out = layout.make_vector(get_vector(instruction, code, target, 2 * words))
    sources = [layout.make_vector(get_vector(instruction, code, place, 1)), layout.make_operand(layout.NOTHING)]
    sources += [layout.make_vector(get_vector(instruction, code, part, words)) for part in data]
    first, second = read_exchange_places(instruction, code, operation.size * (64 if far else 1))
    fields = {"offset": first, "offset1": second, "size": operation.size, "queue": queue}
    return make_record("lds_exchange_two", out, sources, flags=layout.TWO, **fields)


def _lower_count(rest: str, instruction: Instruction, code: LoadedCode, queue: int) -> InstructionRecord:
    out = layout.make_vector(read_count_target(instruction, code))
    detail = encode_atomic(OPERATIONS[COUNTS[rest], "u32"])
    offset = get_number(instruction, code, "offset")
    return make_record("lds_count", out, offset=offset, size=4, detail=detail, queue=queue)


def _lower_permute(rest: str, instruction: Instruction, code: LoadedCode, tables: LoweringTables) -> InstructionRecord:
    check_modifiers(instruction, code, ("offset",))
    offset, queue = get_number(instruction, code, "offset"), tables.queues["lds"]
    nothing = layout.make_operand(layout.NOTHING)
    if rest != "swizzle_b32":
        registers = [get_vector(instruction, code, part, 1) for part in get_operands(instruction, code, (3,))]
        out, address, data = (layout.make_vector(register) for register in registers)
        handler, detail = ("permute", 0) if rest == "permute_b32" else ("bpermute", int(rest == PULL_FROM_INACTIVE))
        return make_record(handler, out, [address, nothing, data], offset=offset, detail=detail, queue=queue)
    out, data = (
        layout.make_vector(get_vector(instruction, code, part, 1)) for part in get_operands(instruction, code, (2,))
    )
    lanes = swizzle_sources(offset, code.lanes)
    moved = Permutation(valid=2**64 - 1, enabled=2**64 - 1)
    moved.source[:] = [lanes[lane % code.lanes] for lane in range(LANES)]
    tables.permutations.append(moved)
    return make_record("swizzle", out, [nothing, nothing, data], target=len(tables.permutations) - 1, queue=queue)
