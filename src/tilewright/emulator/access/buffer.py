"""buffer_…: memory through a descriptor with a length. Past it, reads return 0 and writes are dropped, per dword.

An access is inside if lane offset + bytes ≤ length − scalar offset. Each dword of a wide access is checked by itself,
an atomic as a whole. AMD's own simulator does the same (ROCm/rocm-systems, pull request 10928, compared with gfx950
hardware).

The lane offset is the sum of the register and the instruction's offset, in 32 bits: a negative register value can
become positive. LLVM relies on this on every GPU: it folds additions that may wrap around into the offset of a vector
access, and requires `nuw` only for s_buffer_load, which adds in 64 bits (llvm-project, pull request 68302). So does
Mesa's ACO (aco_optimizer.cpp, `vaddr_prevent_overflow`), and AMD's simulator does it for CDNA, RDNA3 and RDNA4
(rocm-systems, emulation/rocjitsu, `buffer_offset_part`). docs/findings.md discusses the evidence against it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.emulator.access import traffic
from tilewright.emulator.access.atomics import AtomicOperation, memory_atomic, memory_operation
from tilewright.emulator.access.buffer_descriptor import RawBuffer, buffer_base, is_swizzled, raw_buffer
from tilewright.emulator.access.effects import Arrival, active, deliver, occupy
from tilewright.emulator.access.elements import LOADS, STORES, Element
from tilewright.emulator.access.gather import load, store
from tilewright.emulator.access.lds_dma import dma_element, send_to_lds
from tilewright.emulator.access.operands import (
    CACHE_POLICY,
    Scalars,
    check_modifiers,
    expect,
    number,
    returns,
    scalar,
    scalar_offset,
    vector,
)
from tilewright.emulator.access.private import private_load, private_store, wave_offset
from tilewright.emulator.code import Code
from tilewright.emulator.group import U32, Group, Step
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.memory import Index, Mask

_MODIFIERS = CACHE_POLICY | {"offset", "offen", "idxen", "lds"}


@dataclass(frozen=True, slots=True)
class Address:
    """How an instruction addresses its buffer. Missing registers are None."""

    instruction: Instruction
    code: Code
    descriptor: int
    index: int | None
    offset: int | None
    immediate: int
    soffset: Scalars

    def own(self, group: Group) -> Index:
        """Return the offset of each lane without index and scalar offset."""
        if self.offset is None:
            return np.full((group.waves, group.lanes), self.immediate, np.int64)
        short: U32 = group.v[self.offset] + np.uint32(self.immediate)
        return short.astype(np.int64)

    def private(self, group: Group) -> Index | None:
        """Return the offset of each lane in its private memory; None if the buffer is not private memory."""
        if not is_swizzled(group, self.descriptor, self.code):
            return None
        if self.index is not None:
            raise self.code.unknown("an index into a swizzled buffer", self.instruction)
        base = buffer_base(group, self.descriptor).view(np.int64)
        return self.own(group) + wave_offset(group, base, self.soffset(group)[:, None], self.code, self.instruction)


@dataclass(frozen=True, slots=True)
class Reach:
    """The addresses of an access for all lanes, and per dword the lanes that are inside the buffer."""

    address: np.ndarray[tuple[int, ...], np.dtype[np.uint64]]
    inside: tuple[Mask, ...] | None  # None: all lanes are active and inside


def _reach(group: Group, where: Address, size: int) -> Reach:
    buffer = raw_buffer(group, where.descriptor, where.instruction, where.code)
    own = where.own(group)
    soffset = where.soffset(group)[:, None]
    if where.index is not None and buffer.stride:
        return _strided(group, where, buffer, own + soffset, size)
    room = buffer.records - soffset
    address = (buffer.base + soffset.view(np.uint64)) + own.view(np.uint64)
    if group.full and int(own.max()) + size <= int(room.min()):
        return Reach(address, None)
    step = min(size, 4)
    inside = tuple((own + (k + step) <= room) & group.exec_mask for k in range(0, size, step))
    return Reach(address, inside)


def _strided(group: Group, where: Address, buffer: RawBuffer, offset: Index, size: int) -> Reach:
    """Check a buffer of records with a stride: only the index decides whether an access is inside."""
    index = group.v[where.index or 0].astype(np.int64)
    inside = (index < buffer.records) & group.exec_mask
    return Reach(buffer.base + (index * buffer.stride + offset).view(np.uint64), (inside,) * max(size // 4, 1))


def _pieces(reach: Reach, size: int) -> list[tuple[int, int, Mask | None]]:
    """Split the access into as few parts as the bounds allow: first byte, size, lanes."""
    if reach.inside is None:
        return [(0, size, None)]
    # Bounds are monotonic: a lane with the last dword has all. So if first and last agree, one mask is enough.
    if bool((reach.inside[0] == reach.inside[-1]).all()):
        return [(0, size, reach.inside[0])]
    return [(4 * k, 4, mask) for k, mask in enumerate(reach.inside)]


def _fetch(group: Group, where: Address, element: Element) -> list[U32]:
    """Read the values of a load, 0 past the end."""
    memory = group.batch.memory
    line_bytes = where.code.arch.memory.line_bytes
    reach = _reach(group, where, element.size)
    values: list[U32] = []
    for first, size, mask in _pieces(reach, element.size):
        if mask is not None and not mask.any():
            values += [np.zeros((group.waves, group.lanes), np.uint32)] * max(size // 4, 1)
            continue
        index = memory.check(reach.address + np.uint64(first) if first else reach.address, size, mask)
        traffic.memory_read(group, index, size, mask, line_bytes)
        words = load(memory.views, index, size)
        values += words if mask is None else [np.where(mask, word, np.uint32(0)) for word in words]
    return element.arrived(values)


def _load(where: Address, element: Element, register: int) -> Step:
    def step(group: Group) -> None:
        private = where.private(group)
        if private is not None:
            private_load(group, private, element, register)
            return
        values = _fetch(group, where, element)
        deliver(group, "load", Arrival(register, tuple(values), active(group), element.keep))

    return step


def _load_to_lds(where: Address, element: Element) -> Step:
    def step(group: Group) -> None:
        if where.private(group) is not None:
            raise where.code.unknown("a copy from private memory to LDS", where.instruction)
        values = _fetch(group, where, element)
        if group.full or group.exec_mask.any():
            send_to_lds(group, values, element, where.immediate, where.code)
        else:
            occupy(group, "load")

    return step


def _store(where: Address, element: Element, register: int) -> Step:
    line_bytes = where.code.arch.memory.line_bytes

    def step(group: Group) -> None:
        private = where.private(group)
        if private is not None:
            private_store(group, private, element, register)
            return
        memory = group.batch.memory
        values = element.leaving(group.v[register : register + element.registers])
        reach = _reach(group, where, element.size)
        for first, size, mask in _pieces(reach, element.size):
            if mask is None or mask.any():
                index = memory.check(reach.address + np.uint64(first) if first else reach.address, size, mask)
                traffic.memory_write(group, index, size, mask, line_bytes)
                store(memory.views, index, values[first // 4 :], size, mask)
        occupy(group, "store")

    return step


def _atomic(where: Address, operation: AtomicOperation, register: int, old: bool) -> Step:
    def step(group: Group) -> None:
        if where.private(group) is not None:
            raise where.code.unknown("an atomic on private memory", where.instruction)
        reach = _reach(group, where, operation.size)
        mask = None if reach.inside is None else reach.inside[-1]
        if mask is not None and not mask.any():
            zeros = np.zeros((group.waves, group.lanes), np.uint32)
            if old:
                values = (zeros,) * (operation.size // 4)
                deliver(group, "load", Arrival(register, values, active(group)))
            else:
                occupy(group, "store")
            return
        index = group.batch.memory.check(reach.address, operation.size, mask)
        memory_atomic(group, operation, index, mask, register, register if old else None)

    return step


def translate_buffer(name: str, instruction: Instruction, code: Code) -> Step:
    """Return the step of a buffer_… instruction."""
    check_modifiers(instruction, code, _MODIFIERS)
    kind, _, rest = name.removeprefix("buffer_").partition("_")
    to_lds = rest.startswith("lds_") or bool(instruction.modifiers.get("lds"))
    if kind == "load" and to_lds:
        where = _address(instruction, code, expect(instruction, code, (3,)))
        return _load_to_lds(where, dma_element(rest.removeprefix("lds_"), instruction, code))
    if kind not in ("load", "store", "atomic") or to_lds:
        raise code.unknown(f"instruction {name}", instruction)
    data, *others = expect(instruction, code, (4,))
    where = _address(instruction, code, tuple(others))
    if kind == "atomic":
        operation = memory_operation(rest, instruction, code)
        register = vector(instruction, code, data, operation.registers)
        return _atomic(where, operation, register, returns(instruction, code))
    table = LOADS if kind == "load" else STORES
    if rest not in table:
        raise code.unknown(f"instruction {name}", instruction)
    register = vector(instruction, code, data, table[rest].registers)
    return (_load if kind == "load" else _store)(where, table[rest], register)


def _address(instruction: Instruction, code: Code, operands: tuple[Operand, ...]) -> Address:
    vaddr, descriptor, soffset = operands
    offen, idxen = bool(instruction.modifiers.get("offen")), bool(instruction.modifiers.get("idxen"))
    if not offen and not idxen and vaddr.kind != "none":
        raise code.unknown("a vector address without offen or idxen", instruction)
    first = vector(instruction, code, vaddr, int(offen) + int(idxen)) if offen or idxen else None
    return Address(
        instruction,
        code,
        scalar(instruction, code, descriptor, 4),
        index=first if idxen else None,
        offset=None if first is None or not offen else first + int(idxen),
        immediate=number(instruction, code, "offset"),
        soffset=scalar_offset(instruction, code, soffset, signed_literal=False),
    )
