"""Lower ds_… instructions."""

from __future__ import annotations

from tilewright.emulator.access.atomics import find_atomic
from tilewright.emulator.access.elements import LDS_READS, LDS_WRITES, Element
from tilewright.emulator.access.lds import PAIR
from tilewright.emulator.access.operands import check_modifiers, get_number, get_operands, get_vector
from tilewright.emulator.access.permute import swizzle_sources
from tilewright.emulator.access.transpose import TRANSPOSES
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.isa.names import normalize_name
from tilewright.emulator.native import layout
from tilewright.emulator.native.layout import LANES, InstructionRecord, LoweringTables, Permutation, make_record
from tilewright.emulator.native.lower_memory import encode_atomic, make_element_flags


def lower_lds(instruction: Instruction, code: LoadedCode, tables: LoweringTables) -> InstructionRecord | None:
    """Return the record of a ds_… instruction; None for others and for those that only NumPy supports."""
    name = normalize_name(instruction.mnemonic)
    if not name.startswith("ds_"):
        return None
    rest = name.removeprefix("ds_")
    if rest in ("swizzle_b32", "bpermute_b32", "permute_b32"):
        return _lower_permute(rest, instruction, code, tables)
    queue = tables.queues["lds"]
    if pair := PAIR.fullmatch(rest):
        return _lower_pair(pair[1] == "read", LDS_READS[pair[3]], 64 if pair[2] else 1, instruction, code, queue)
    check_modifiers(instruction, code, ("offset",))
    verb, _, kind = rest.partition("_")
    if verb not in ("read", "write", "gws", "append", "consume"):
        return _lower_atomic(rest, instruction, code, queue)
    return _lower_single(verb, kind, instruction, code, queue)


def _lower_single(
    verb: str, kind: str, instruction: Instruction, code: LoadedCode, queue: int
) -> InstructionRecord | None:
    if kind == "addtid_b32":
        return _lower_by_lane(verb == "read", instruction, code, queue)
    if verb == "read" and kind in TRANSPOSES and code.arch.lds.transpose_read_bytes:
        size, bits = TRANSPOSES[kind]
        return _lower_read(instruction, code, Element(size), bits, queue)
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


def _lower_by_lane(reads: bool, instruction: Instruction, code: LoadedCode, queue: int) -> InstructionRecord:
    """Lower an access whose addresses are those of M0 and of the lane's number."""
    (operand,) = get_operands(instruction, code, (1,))
    data, nothing = layout.make_vector(get_vector(instruction, code, operand, 1)), layout.make_operand(layout.NOTHING)
    fields = {"offset": get_number(instruction, code, "offset"), "size": 4, "queue": queue}
    if reads:
        return make_record("lds_read", data, [nothing], **fields)
    return make_record("lds_write", None, [nothing, nothing, data], **fields)


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


def _lower_permute(rest: str, instruction: Instruction, code: LoadedCode, tables: LoweringTables) -> InstructionRecord:
    check_modifiers(instruction, code, ("offset",))
    offset, queue = get_number(instruction, code, "offset"), tables.queues["lds"]
    nothing = layout.make_operand(layout.NOTHING)
    if rest != "swizzle_b32":
        registers = [get_vector(instruction, code, part, 1) for part in get_operands(instruction, code, (3,))]
        out, address, data = (layout.make_vector(register) for register in registers)
        return make_record(rest.removesuffix("_b32"), out, [address, nothing, data], offset=offset, queue=queue)
    out, data = (
        layout.make_vector(get_vector(instruction, code, part, 1)) for part in get_operands(instruction, code, (2,))
    )
    lanes = swizzle_sources(offset, code.lanes)
    moved = Permutation(valid=2**64 - 1, enabled=2**64 - 1)
    moved.source[:] = [lanes[lane % code.lanes] for lane in range(LANES)]
    tables.permutations.append(moved)
    return make_record("swizzle", out, [nothing, nothing, data], target=len(tables.permutations) - 1, queue=queue)
