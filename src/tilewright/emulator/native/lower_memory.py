"""Lower instructions that access memory. emulator/access interprets their names and operands."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.emulator.access import CACHE_CONTROL, COUNTED_CACHE_CONTROL
from tilewright.emulator.access.atomics import find_memory_atomic
from tilewright.emulator.access.buffer import BUFFER_MODIFIERS
from tilewright.emulator.access.elements import LOADS, STORES, Element
from tilewright.emulator.access.global_memory import BY_LANE, check_transposing_lanes, find_block_operands
from tilewright.emulator.access.lds_dma import find_dma_element
from tilewright.emulator.access.operands import (
    CACHE_POLICY,
    check_modifiers,
    get_number,
    get_operands,
    get_scalar,
    get_vector,
    needs_old_value,
)
from tilewright.emulator.access.transpose import GLOBAL_TRANSPOSES
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.isa.names import normalize_name
from tilewright.emulator.native import layout
from tilewright.emulator.native.layout import InstructionRecord, LoweringTables, make_record
from tilewright.emulator.native.lower_elements import encode_atomic, make_element_flags
from tilewright.emulator.native.lower_scalar_memory import lower_scalar_memory
from tilewright.emulator.native.memory_scopes import find_access_scope, find_fence

_POLICY = CACHE_POLICY | {"offset"}


def lower_memory(instruction: Instruction, code: LoadedCode, tables: LoweringTables) -> InstructionRecord | None:
    """Return the record of a memory instruction; None for others and for those that only NumPy supports."""
    name = normalize_name(instruction.mnemonic)
    if name in CACHE_CONTROL or name in COUNTED_CACHE_CONTROL:
        return _lower_cache_control(name, instruction, code, tables)
    lower_kind = _FAMILIES.get(name.partition("_")[0], lower_scalar_memory)
    made = lower_kind(name, instruction, code, tables)
    if made is not None:
        made.scope = find_access_scope(name, instruction, code)
    return made


def _lower_cache_control(
    name: str, instruction: Instruction, code: LoadedCode, tables: LoweringTables
) -> InstructionRecord:
    check_modifiers(instruction, code, CACHE_POLICY)
    kind = COUNTED_CACHE_CONTROL.get(name)
    queue = 0 if kind is None else tables.queues[kind]
    return make_record("cache_control", queue=queue, detail=int(kind is not None), scope=find_fence(name, instruction))


def _make_vector_address(
    instruction: Instruction, code: LoadedCode, vaddr: Operand, saddr: Operand | None
) -> list[layout.OperandRecord]:
    if saddr is not None and saddr.kind != "none":
        pair = layout.make_scalar(get_scalar(instruction, code, saddr, 2))
        return [layout.make_vector(get_vector(instruction, code, vaddr, 1)), pair]
    return [layout.make_vector(get_vector(instruction, code, vaddr, 2)), layout.make_operand(layout.NOTHING)]


def _lower_global(
    name: str, instruction: Instruction, code: LoadedCode, tables: LoweringTables
) -> InstructionRecord | None:
    check_modifiers(instruction, code, _POLICY)
    kind, _, rest = name.removeprefix("global_").partition("_")
    offset, queues = get_number(instruction, code, "offset"), tables.queues
    if kind == "load" and rest.startswith("lds_"):
        vaddr, saddr = get_operands(instruction, code, (2,))
        element = find_dma_element(rest.removeprefix("lds_"), instruction, code)
        flags = make_element_flags(element) | layout.LDS_DMA
        where = _make_vector_address(instruction, code, vaddr, saddr)
        return make_record(
            "global_load", None, where, offset=offset, size=element.size, flags=flags, queue=queues["load"]
        )
    if kind == "load" and rest in LOADS:
        data, vaddr, saddr = get_operands(instruction, code, (3,))
        out = layout.make_vector(get_vector(instruction, code, data, LOADS[rest].registers))
        where = _make_vector_address(instruction, code, vaddr, saddr)
        return _lower_load("global_load", out, where, LOADS[rest], offset, tables)
    if kind == "store" and rest in STORES:
        vaddr, data, saddr = get_operands(instruction, code, (3,))
        from_ = layout.make_vector(get_vector(instruction, code, data, STORES[rest].registers))
        where = [*_make_vector_address(instruction, code, vaddr, saddr), layout.make_operand(layout.NOTHING), from_]
        return _lower_store("global_store", where, STORES[rest], offset, tables)
    if kind == "atomic":
        return _lower_global_atomic(rest, instruction, code, tables)
    return _lower_special(kind, rest, instruction, code, tables)


def _lower_special(
    kind: str, rest: str, instruction: Instruction, code: LoadedCode, tables: LoweringTables
) -> InstructionRecord | None:
    """Lower a load or store that does not move an element per lane at the address of the lane."""
    if kind == "load" and rest in GLOBAL_TRANSPOSES:
        return _lower_transposed(GLOBAL_TRANSPOSES[rest], instruction, code, tables)
    if rest == BY_LANE:
        return _lower_by_lane(kind, instruction, code, tables)
    if rest == "block":
        _, vaddr, saddr = find_block_operands(kind, instruction, code)
        where = _make_vector_address(instruction, code, vaddr, saddr)
        return _lower_block(f"global_{kind}_block", kind, where, instruction, code, tables)
    return None


def _lower_transposed(
    form: tuple[int, int], instruction: Instruction, code: LoadedCode, tables: LoweringTables
) -> InstructionRecord:
    check_transposing_lanes(instruction, code)
    size, bits = form
    data, vaddr, saddr = get_operands(instruction, code, (3,))
    out = layout.make_vector(get_vector(instruction, code, data, size // 4))
    where = _make_vector_address(instruction, code, vaddr, saddr)
    made = _lower_load("global_load", out, where, Element(size), get_number(instruction, code, "offset"), tables)
    made.detail = bits
    return made


def _lower_by_lane(kind: str, instruction: Instruction, code: LoadedCode, tables: LoweringTables) -> InstructionRecord:
    """Lower an access whose address has 4 times the lane instead of a vector register."""
    data, saddr = get_operands(instruction, code, (2,))
    register = layout.make_vector(get_vector(instruction, code, data, 1))
    nothing, offset = layout.make_operand(layout.NOTHING), get_number(instruction, code, "offset")
    where = [nothing, layout.make_scalar(get_scalar(instruction, code, saddr, 2))]
    if kind == "load":
        return _lower_load("global_load", register, where, LOADS["dword"], offset, tables)
    return _lower_store("global_store", [*where, nothing, register], STORES["dword"], offset, tables)


def _lower_block(
    handler: str,
    kind: str,
    where: list[layout.OperandRecord],
    instruction: Instruction,
    code: LoadedCode,
    tables: LoweringTables,
) -> InstructionRecord:
    block = layout.make_vector(find_block_operands(kind, instruction, code)[0])
    nothing = layout.make_operand(layout.NOTHING)
    fields = {"offset": get_number(instruction, code, "offset"), "size": 4, "queue": tables.queues[kind]}
    return make_record(handler, block if kind == "load" else None, [*where, nothing, block], **fields)


def _lower_load(
    handler: str,
    out: layout.OperandRecord,
    where: list[layout.OperandRecord],
    element: Element,
    offset: int,
    tables: LoweringTables,
) -> InstructionRecord:
    flags = make_element_flags(element)
    return make_record(handler, out, where, offset=offset, size=element.size, flags=flags, queue=tables.queues["load"])


def _lower_store(
    handler: str, sources: list[layout.OperandRecord], element: Element, offset: int, tables: LoweringTables
) -> InstructionRecord:
    flags = make_element_flags(element)
    return make_record(
        handler, None, sources, offset=offset, size=element.size, flags=flags, queue=tables.queues["store"]
    )


def _lower_global_atomic(
    rest: str, instruction: Instruction, code: LoadedCode, tables: LoweringTables
) -> InstructionRecord:
    operands = get_operands(instruction, code, (4,) if needs_old_value(instruction, code) else (3,))
    vaddr, data, saddr = operands[-3:]
    return _lower_atomic("global_atomic", rest, (operands[0], vaddr, saddr, data), instruction, code, tables)


def _lower_atomic(
    handler: str,
    rest: str,
    places: tuple[Operand, Operand, Operand | None, Operand],
    instruction: Instruction,
    code: LoadedCode,
    tables: LoweringTables,
) -> InstructionRecord:
    """Lower an atomic. `places` are the destination, if any, both parts of the address, and the data."""
    operation, old = find_memory_atomic(rest, instruction, code), needs_old_value(instruction, code)
    destination, vaddr, saddr, data = places
    out = layout.make_vector(get_vector(instruction, code, destination, operation.size // 4)) if old else None
    sources = _make_vector_address(instruction, code, vaddr, saddr)
    sources += [
        layout.make_operand(layout.NOTHING),
        layout.make_vector(get_vector(instruction, code, data, operation.registers)),
    ]
    return make_record(
        handler, out, sources, offset=get_number(instruction, code, "offset"), size=operation.size,
        detail=encode_atomic(operation), flags=layout.RETURNS if old else 0,
        queue=tables.queues["load" if old else "store"],
    )  # fmt: skip


def _lower_flat(
    name: str, instruction: Instruction, code: LoadedCode, tables: LoweringTables
) -> InstructionRecord | None:
    """Lower a flat access. `target` is the queue of LDS accesses, which a flat access also occupies."""
    check_modifiers(instruction, code, _POLICY)
    kind, _, rest = name.removeprefix("flat_").partition("_")
    offset, nothing = get_number(instruction, code, "offset"), layout.make_operand(layout.NOTHING)
    made: InstructionRecord | None = None
    if kind == "load" and rest in LOADS:
        data, vaddr = get_operands(instruction, code, (2,))
        out = layout.make_vector(get_vector(instruction, code, data, LOADS[rest].registers))
        made = _lower_load(
            "flat_load", out, _make_vector_address(instruction, code, vaddr, None), LOADS[rest], offset, tables
        )
    elif kind == "store" and rest in STORES:
        vaddr, data = get_operands(instruction, code, (2,))
        from_ = layout.make_vector(get_vector(instruction, code, data, STORES[rest].registers))
        where = [*_make_vector_address(instruction, code, vaddr, None), nothing, from_]
        made = _lower_store("flat_store", where, STORES[rest], offset, tables)
    elif kind == "atomic":
        made = _lower_flat_atomic(rest, instruction, code, tables)
    if made is not None:
        made.target = tables.queues["lds"]
    return made


def _lower_flat_atomic(
    rest: str, instruction: Instruction, code: LoadedCode, tables: LoweringTables
) -> InstructionRecord:
    operands = get_operands(instruction, code, (3,) if needs_old_value(instruction, code) else (2,))
    vaddr, data = operands[-2:]
    return _lower_atomic("flat_atomic", rest, (operands[0], vaddr, None, data), instruction, code, tables)


def _lower_scratch(
    name: str, instruction: Instruction, code: LoadedCode, tables: LoweringTables
) -> InstructionRecord | None:
    check_modifiers(instruction, code, _POLICY)
    kind, _, rest = name.removeprefix("scratch_").partition("_")
    offset = get_number(instruction, code, "offset")
    if kind == "load" and rest in LOADS:
        data, vaddr, saddr = get_operands(instruction, code, (3,))
        out = layout.make_vector(get_vector(instruction, code, data, LOADS[rest].registers))
        return _lower_load(
            "scratch_load", out, _make_scratch_address(instruction, code, vaddr, saddr), LOADS[rest], offset, tables
        )
    if kind == "store" and rest in STORES:
        vaddr, data, saddr = get_operands(instruction, code, (3,))
        from_ = layout.make_vector(get_vector(instruction, code, data, STORES[rest].registers))
        where = [*_make_scratch_address(instruction, code, vaddr, saddr), layout.make_operand(layout.NOTHING), from_]
        return _lower_store("scratch_store", where, STORES[rest], offset, tables)
    if kind == "load" and rest.startswith("lds_"):
        vaddr, saddr = get_operands(instruction, code, (2,))
        element = find_dma_element(rest.removeprefix("lds_"), instruction, code)
        where = _make_scratch_address(instruction, code, vaddr, saddr)
        made = _lower_load("scratch_load", layout.make_operand(layout.NOTHING), where, element, offset, tables)
        made.flags |= layout.LDS_DMA
        return made
    if rest == "block":
        _, vaddr, saddr = find_block_operands(kind, instruction, code)
        where = _make_scratch_address(instruction, code, vaddr, saddr)
        return _lower_block(f"scratch_{kind}_block", kind, where, instruction, code, tables)
    return None


def _make_scratch_address(
    instruction: Instruction, code: LoadedCode, vaddr: Operand, saddr: Operand
) -> list[layout.OperandRecord]:
    nothing = layout.make_operand(layout.NOTHING)
    own = nothing if vaddr.kind == "none" else layout.make_vector(get_vector(instruction, code, vaddr, 1))
    common = nothing if saddr.kind == "none" else layout.make_scalar(get_scalar(instruction, code, saddr, 1))
    return [own, common]


def _lower_buffer(
    name: str, instruction: Instruction, code: LoadedCode, tables: LoweringTables
) -> InstructionRecord | None:
    check_modifiers(instruction, code, BUFFER_MODIFIERS)
    kind, _, rest = name.removeprefix("buffer_").partition("_")
    if rest.startswith("lds_") or instruction.modifiers.get("lds"):
        if kind != "load":
            return None
        element = find_dma_element(rest.removeprefix("lds_"), instruction, code)
        made = _make_buffer_record(instruction, code, get_operands(instruction, code, (3,)))
        return _fill_record(made, "buffer_load", element, layout.LDS_DMA, tables.queues["load"])
    if kind == "atomic":
        return _lower_buffer_atomic(rest, instruction, code, tables)
    table = {"load": LOADS, "store": STORES}.get(kind, {})
    if rest not in table:
        return None
    data, *others = get_operands(instruction, code, (4,))
    made = _make_buffer_record(instruction, code, tuple(others))
    register = layout.make_vector(get_vector(instruction, code, data, table[rest].registers))
    if made is not None:
        made.out = register
        made.sources[3] = register
    return _fill_record(made, f"buffer_{kind}", table[rest], 0, tables.queues[kind])


def _fill_record(
    made: InstructionRecord | None, handler: str, element: Element, flags: int, queue: int
) -> InstructionRecord | None:
    if made is None:
        return None
    made.op = make_record(handler).op
    made.size = element.size
    made.flags |= flags | make_element_flags(element)
    made.queue = queue
    return made


def _make_buffer_record(
    instruction: Instruction, code: LoadedCode, operands: tuple[Operand, ...]
) -> InstructionRecord | None:
    """Make a record with the address of a buffer instruction."""
    vaddr, descriptor, soffset = operands
    offen, idxen = bool(instruction.modifiers.get("offen")), bool(instruction.modifiers.get("idxen"))
    if not offen and not idxen and vaddr.kind != "none":
        return None
    first = layout.make_operand(layout.NOTHING)
    if offen or idxen:
        first = layout.make_vector(get_vector(instruction, code, vaddr, int(offen) + int(idxen)))
    if soffset.kind == "s" and soffset.count == 1:
        more = layout.make_scalar(soffset.index)
    elif soffset.kind == "none" or (soffset.kind == "const" and isinstance(soffset.value, int)):
        more = layout.make_constant(int(soffset.value) & 0xFFFFFFFF if soffset.kind == "const" else 0)
    else:
        return None
    sources = [first, layout.make_scalar(get_scalar(instruction, code, descriptor, 4)), more]
    flags = (layout.OFFEN if offen else 0) | (layout.IDXEN if idxen else 0)
    return make_record("nothing", None, sources, offset=get_number(instruction, code, "offset"), flags=flags)


def _lower_buffer_atomic(
    rest: str, instruction: Instruction, code: LoadedCode, tables: LoweringTables
) -> InstructionRecord | None:
    operation, old = find_memory_atomic(rest, instruction, code), needs_old_value(instruction, code)
    data, *others = get_operands(instruction, code, (4,))
    made = _make_buffer_record(instruction, code, tuple(others))
    if made is None:
        return None
    made.op = make_record("buffer_atomic").op
    made.out = made.sources[3] = layout.make_vector(get_vector(instruction, code, data, operation.registers))
    made.size, made.detail = operation.size, encode_atomic(operation)
    made.flags |= layout.RETURNS if old else 0
    made.queue = tables.queues["load" if old else "store"]
    return made


_FAMILIES: dict[str, Callable[[str, Instruction, LoadedCode, LoweringTables], InstructionRecord | None]] = {
    "buffer": _lower_buffer,
    "global": _lower_global,
    "flat": _lower_flat,
    "scratch": _lower_scratch,
}
