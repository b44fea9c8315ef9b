"""Lower instructions that access memory and LDS. emulator/access interprets their names and operands."""

from __future__ import annotations

import re
from collections.abc import Callable

from tilewright.emulator.access.atomics import OPERATIONS, AtomicOperation, memory_operation
from tilewright.emulator.access.elements import LOADS, STORES, Element
from tilewright.emulator.access.lds_dma import dma_element
from tilewright.emulator.access.operands import CACHE_POLICY, check_modifiers, expect, number, returns, scalar, vector
from tilewright.emulator.access.scalar import DWORDS, SMALL
from tilewright.emulator.code import Code
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.isa.names import canonical
from tilewright.emulator.native import layout
from tilewright.emulator.native.layout import Record
from tilewright.emulator.native.lower_lds import lower_lds
from tilewright.emulator.native.record import Tables, record

_POLICY = CACHE_POLICY | {"offset"}
_BUFFER = _POLICY | {"offen", "idxen", "lds"}
_CACHE_CONTROL = re.compile(r"buffer_(wbl2|inv|wbinvl1|wbinvl1_vol|gl0_inv|gl1_inv)|global_(inv|wb|wbinv)")

# In the order of the enumerations in atomics.h.
_ATOMICS = (
    "add", "sub", "rsub", "min", "max", "and", "or", "xor", "inc", "dec", "sub_clamp", "cond_sub", "swap", "cmpswap",
    "cmpst", "mskor", "pk_add", "add_flushed",
)  # fmt: skip
_ATOMIC_TYPES = ("u32", "u64", "i32", "i64", "f32", "f64", "f16", "bf16")


def lower_memory(instruction: Instruction, code: Code, tables: Tables) -> Record | None:
    """Return the record of a memory instruction; None for others and for those that only NumPy supports."""
    name = canonical(instruction.mnemonic)
    if _CACHE_CONTROL.fullmatch(name):
        return _cache_control(name, instruction, code, tables)
    lower_kind = _FAMILIES.get(name.partition("_")[0], _scalar)
    return lower_kind(name, instruction, code, tables)


def element_flags(element: Element) -> int:
    """Return the flags of a load or store of an element."""
    half = {"": 0, "low": layout.D16, "high": layout.D16_HIGH}[element.half]
    return half | (layout.SIGNED if element.signed else 0)


def atomic_detail(operation: AtomicOperation) -> int:
    """Encode operation and type as in atomics.h."""
    name, kind = next(key for key, value in OPERATIONS.items() if value == operation)
    letter = kind if name == "pk_add" else {"b": "u"}.get(kind[0], kind[0]) + kind[1:]
    return _ATOMICS.index(name) | _ATOMIC_TYPES.index(letter) << 8


def _cache_control(name: str, instruction: Instruction, code: Code, tables: Tables) -> Record:
    check_modifiers(instruction, code, CACHE_POLICY)
    if not name.startswith("global_"):
        return record("nothing")
    return record("occupy", queue=tables.queues["load" if name == "global_inv" else "store"])


def _scalar(name: str, instruction: Instruction, code: Code, tables: Tables) -> Record | None:
    handler, kind = "scalar_load", name.removeprefix("s_load_")
    if name.startswith("s_buffer_load_"):
        handler, kind = "scalar_buffer_load", name.removeprefix("s_buffer_load_")
    if kind == name or (kind not in DWORDS and kind not in SMALL):
        return None
    check_modifiers(instruction, code, _POLICY)
    element, count = SMALL.get(kind, Element(4)), DWORDS.get(kind, 1)
    destination, base, *offsets = expect(instruction, code, (2, 3))
    out = layout.scalar(scalar(instruction, code, destination, count))
    sources = [layout.scalar(scalar(instruction, code, base, 2 if handler == "scalar_load" else 4))]
    immediate = number(instruction, code, "offset")
    for part in offsets:
        if part.kind == "s" and part.count == 1:
            sources.append(layout.scalar(part.index))
        elif part.kind == "const" and isinstance(part.value, int):
            immediate += part.value
        elif part.kind != "none":
            return None
    fields = {"size": element.size, "detail": count, "flags": element_flags(element)}
    return record(handler, out, sources, offset=immediate, queue=tables.queues["scalar"], **fields)


def _vector_address(
    instruction: Instruction, code: Code, vaddr: Operand, saddr: Operand | None
) -> list[layout.Operand]:
    if saddr is not None and saddr.kind != "none":
        pair = layout.scalar(scalar(instruction, code, saddr, 2))
        return [layout.vector(vector(instruction, code, vaddr, 1)), pair]
    return [layout.vector(vector(instruction, code, vaddr, 2)), layout.operand(layout.NOTHING)]


def _global(name: str, instruction: Instruction, code: Code, tables: Tables) -> Record | None:
    check_modifiers(instruction, code, _POLICY)
    kind, _, rest = name.removeprefix("global_").partition("_")
    offset, queues = number(instruction, code, "offset"), tables.queues
    if kind == "load" and rest.startswith("lds_"):
        vaddr, saddr = expect(instruction, code, (2,))
        element = dma_element(rest.removeprefix("lds_"), instruction, code)
        flags = element_flags(element) | layout.LDS_DMA
        where = _vector_address(instruction, code, vaddr, saddr)
        return record("global_load", None, where, offset=offset, size=element.size, flags=flags, queue=queues["load"])
    if kind == "load" and rest in LOADS:
        data, vaddr, saddr = expect(instruction, code, (3,))
        out = layout.vector(vector(instruction, code, data, LOADS[rest].registers))
        where = _vector_address(instruction, code, vaddr, saddr)
        return _load("global_load", out, where, LOADS[rest], offset, tables)
    if kind == "store" and rest in STORES:
        vaddr, data, saddr = expect(instruction, code, (3,))
        from_ = layout.vector(vector(instruction, code, data, STORES[rest].registers))
        where = [*_vector_address(instruction, code, vaddr, saddr), layout.operand(layout.NOTHING), from_]
        return _store("global_store", where, STORES[rest], offset, tables)
    return _global_atomic(rest, instruction, code, tables) if kind == "atomic" else None


def _load(
    handler: str, out: layout.Operand, where: list[layout.Operand], element: Element, offset: int, tables: Tables
) -> Record:
    flags = element_flags(element)
    return record(handler, out, where, offset=offset, size=element.size, flags=flags, queue=tables.queues["load"])


def _store(handler: str, sources: list[layout.Operand], element: Element, offset: int, tables: Tables) -> Record:
    flags = element_flags(element)
    return record(handler, None, sources, offset=offset, size=element.size, flags=flags, queue=tables.queues["store"])


def _global_atomic(rest: str, instruction: Instruction, code: Code, tables: Tables) -> Record:
    operands = expect(instruction, code, (4,) if returns(instruction, code) else (3,))
    vaddr, data, saddr = operands[-3:]
    return _atomic("global_atomic", rest, (operands[0], vaddr, saddr, data), instruction, code, tables)


def _atomic(
    handler: str,
    rest: str,
    places: tuple[Operand, Operand, Operand | None, Operand],
    instruction: Instruction,
    code: Code,
    tables: Tables,
) -> Record:
    """Lower an atomic. `places` are the destination, if any, both parts of the address, and the data."""
    operation, old = memory_operation(rest, instruction, code), returns(instruction, code)
    destination, vaddr, saddr, data = places
    out = layout.vector(vector(instruction, code, destination, operation.size // 4)) if old else None
    sources = _vector_address(instruction, code, vaddr, saddr)
    sources += [layout.operand(layout.NOTHING), layout.vector(vector(instruction, code, data, operation.registers))]
    return record(
        handler, out, sources, offset=number(instruction, code, "offset"), size=operation.size,
        detail=atomic_detail(operation), flags=layout.RETURNS if old else 0,
        queue=tables.queues["load" if old else "store"],
    )  # fmt: skip


def _flat(name: str, instruction: Instruction, code: Code, tables: Tables) -> Record | None:
    """Lower a flat access. `target` is the queue of LDS accesses, which a flat access also occupies."""
    check_modifiers(instruction, code, _POLICY)
    kind, _, rest = name.removeprefix("flat_").partition("_")
    offset, nothing = number(instruction, code, "offset"), layout.operand(layout.NOTHING)
    made: Record | None = None
    if kind == "load" and rest in LOADS:
        data, vaddr = expect(instruction, code, (2,))
        out = layout.vector(vector(instruction, code, data, LOADS[rest].registers))
        made = _load("flat_load", out, _vector_address(instruction, code, vaddr, None), LOADS[rest], offset, tables)
    elif kind == "store" and rest in STORES:
        vaddr, data = expect(instruction, code, (2,))
        from_ = layout.vector(vector(instruction, code, data, STORES[rest].registers))
        where = [*_vector_address(instruction, code, vaddr, None), nothing, from_]
        made = _store("flat_store", where, STORES[rest], offset, tables)
    elif kind == "atomic":
        made = _flat_atomic(rest, instruction, code, tables)
    if made is not None:
        made.target = tables.queues["lds"]
    return made


def _flat_atomic(rest: str, instruction: Instruction, code: Code, tables: Tables) -> Record:
    operands = expect(instruction, code, (3,) if returns(instruction, code) else (2,))
    vaddr, data = operands[-2:]
    return _atomic("flat_atomic", rest, (operands[0], vaddr, None, data), instruction, code, tables)


def _scratch(name: str, instruction: Instruction, code: Code, tables: Tables) -> Record | None:
    check_modifiers(instruction, code, _POLICY)
    kind, _, rest = name.removeprefix("scratch_").partition("_")
    offset = number(instruction, code, "offset")
    if kind == "load" and rest in LOADS:
        data, vaddr, saddr = expect(instruction, code, (3,))
        out = layout.vector(vector(instruction, code, data, LOADS[rest].registers))
        return _load("scratch_load", out, _scratch_place(instruction, code, vaddr, saddr), LOADS[rest], offset, tables)
    if kind == "store" and rest in STORES:
        vaddr, data, saddr = expect(instruction, code, (3,))
        from_ = layout.vector(vector(instruction, code, data, STORES[rest].registers))
        where = [*_scratch_place(instruction, code, vaddr, saddr), layout.operand(layout.NOTHING), from_]
        return _store("scratch_store", where, STORES[rest], offset, tables)
    return None


def _scratch_place(instruction: Instruction, code: Code, vaddr: Operand, saddr: Operand) -> list[layout.Operand]:
    nothing = layout.operand(layout.NOTHING)
    own = nothing if vaddr.kind == "none" else layout.vector(vector(instruction, code, vaddr, 1))
    common = nothing if saddr.kind == "none" else layout.scalar(scalar(instruction, code, saddr, 1))
    return [own, common]


def _buffer(name: str, instruction: Instruction, code: Code, tables: Tables) -> Record | None:
    check_modifiers(instruction, code, _BUFFER)
    kind, _, rest = name.removeprefix("buffer_").partition("_")
    if rest.startswith("lds_") or instruction.modifiers.get("lds"):
        if kind != "load":
            return None
        element = dma_element(rest.removeprefix("lds_"), instruction, code)
        made = _buffer_place(instruction, code, expect(instruction, code, (3,)))
        return _filled(made, "buffer_load", element, layout.LDS_DMA, tables.queues["load"])
    if kind == "atomic":
        return _buffer_atomic(rest, instruction, code, tables)
    table = {"load": LOADS, "store": STORES}.get(kind, {})
    if rest not in table:
        return None
    data, *others = expect(instruction, code, (4,))
    made = _buffer_place(instruction, code, tuple(others))
    register = layout.vector(vector(instruction, code, data, table[rest].registers))
    if made is not None:
        made.out = register
        made.sources[3] = register
    return _filled(made, f"buffer_{kind}", table[rest], 0, tables.queues[kind])


def _filled(made: Record | None, handler: str, element: Element, flags: int, queue: int) -> Record | None:
    if made is None:
        return None
    made.op = record(handler).op
    made.size = element.size
    made.flags |= flags | element_flags(element)
    made.queue = queue
    return made


def _buffer_place(instruction: Instruction, code: Code, operands: tuple[Operand, ...]) -> Record | None:
    """Make a record with the address of a buffer instruction."""
    vaddr, descriptor, soffset = operands
    offen, idxen = bool(instruction.modifiers.get("offen")), bool(instruction.modifiers.get("idxen"))
    if not offen and not idxen and vaddr.kind != "none":
        return None
    first = layout.operand(layout.NOTHING)
    if offen or idxen:
        first = layout.vector(vector(instruction, code, vaddr, int(offen) + int(idxen)))
    if soffset.kind == "s" and soffset.count == 1:
        more = layout.scalar(soffset.index)
    elif soffset.kind == "none" or (soffset.kind == "const" and isinstance(soffset.value, int)):
        more = layout.constant(int(soffset.value) & 0xFFFFFFFF if soffset.kind == "const" else 0)
    else:
        return None
    sources = [first, layout.scalar(scalar(instruction, code, descriptor, 4)), more]
    flags = (layout.OFFEN if offen else 0) | (layout.IDXEN if idxen else 0)
    return record("nothing", None, sources, offset=number(instruction, code, "offset"), flags=flags)


def _buffer_atomic(rest: str, instruction: Instruction, code: Code, tables: Tables) -> Record | None:
    operation, old = memory_operation(rest, instruction, code), returns(instruction, code)
    data, *others = expect(instruction, code, (4,))
    made = _buffer_place(instruction, code, tuple(others))
    if made is None:
        return None
    made.op = record("buffer_atomic").op
    made.out = made.sources[3] = layout.vector(vector(instruction, code, data, operation.registers))
    made.size, made.detail = operation.size, atomic_detail(operation)
    made.flags |= layout.RETURNS if old else 0
    made.queue = tables.queues["load" if old else "store"]
    return made


_FAMILIES: dict[str, Callable[[str, Instruction, Code, Tables], Record | None]] = {
    "buffer": _buffer,
    "global": _global,
    "flat": _flat,
    "scratch": _scratch,
    "ds": lower_lds,
}
