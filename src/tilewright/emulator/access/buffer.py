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
from tilewright.emulator.access.atomics import AtomicOperation, find_memory_atomic, run_memory_atomic
from tilewright.emulator.access.buffer_descriptor import RawBuffer, is_swizzled, read_base, read_raw_buffer
from tilewright.emulator.access.effects import Arrival, active_lanes, reserve_counter, write_vectors
from tilewright.emulator.access.elements import LOADS, STORES, Element
from tilewright.emulator.access.gather import load, store
from tilewright.emulator.access.lds_dma import find_dma_element, send_to_lds
from tilewright.emulator.access.operands import (
    CACHE_POLICY,
    Scalars,
    check_modifiers,
    get_number,
    get_operands,
    get_scalar,
    get_scalar_offset,
    get_vector,
    needs_old_value,
)
from tilewright.emulator.access.private import compute_wave_offset, load_private, store_private
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import U32, Step, WaveGroup
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.memory import Index, Mask

BUFFER_MODIFIERS = CACHE_POLICY | {"offset", "offen", "idxen", "lds"}


@dataclass(frozen=True, slots=True)
class BufferAddress:
    """How an instruction addresses its buffer. Missing registers are None."""

    instruction: Instruction
    code: LoadedCode
    descriptor: int
    index: int | None
    offset: int | None
    immediate: int
    soffset: Scalars

    def compute_lane_offsets(self, group: WaveGroup) -> Index:
        """Return the offset of each lane without index and scalar offset."""
        if self.offset is None:
            return np.full((group.waves, group.lanes), self.immediate, np.int64)
        short: U32 = group.v[self.offset] + np.uint32(self.immediate)
        return short.astype(np.int64)

    def compute_private_offsets(self, group: WaveGroup) -> Index | None:
        """Return the offset of each lane in its private memory; None if the buffer is not private memory."""
        if not is_swizzled(group, self.descriptor, self.code):
            return None
        if self.index is not None:
            raise self.code.unknown("an index into a swizzled buffer", self.instruction)
        base = read_base(group, self.descriptor).view(np.int64)
        return self.compute_lane_offsets(group) + compute_wave_offset(
            group, base, self.soffset(group)[:, None], self.code, self.instruction
        )


@dataclass(frozen=True, slots=True)
class BufferAccess:
    """The addresses of an access for all lanes, and per dword the lanes that are inside the buffer."""

    address: np.ndarray[tuple[int, ...], np.dtype[np.uint64]]
    inside: tuple[Mask, ...] | None  # None: all lanes are active and inside


def _check_bounds(group: WaveGroup, where: BufferAddress, size: int) -> BufferAccess:
    buffer = read_raw_buffer(group, where.descriptor, where.instruction, where.code)
    own = where.compute_lane_offsets(group)
    soffset = where.soffset(group)[:, None]
    if where.index is not None and buffer.stride:
        return _check_strided_bounds(group, where, buffer, own + soffset, size)
    room = buffer.records - soffset
    address = (buffer.base + soffset.view(np.uint64)) + own.view(np.uint64)
    if group.full and int(own.max()) + size <= int(room.min()):
        return BufferAccess(address, None)
    step = min(size, 4)
    inside = tuple((own + (k + step) <= room) & group.exec_mask for k in range(0, size, step))
    return BufferAccess(address, inside)


def _check_strided_bounds(
    group: WaveGroup, where: BufferAddress, buffer: RawBuffer, offset: Index, size: int
) -> BufferAccess:
    """Check a buffer of records with a stride: only the index decides whether an access is inside."""
    index = group.v[where.index or 0].astype(np.int64)
    inside = (index < buffer.records) & group.exec_mask
    return BufferAccess(buffer.base + (index * buffer.stride + offset).view(np.uint64), (inside,) * max(size // 4, 1))


def _split_access(reach: BufferAccess, size: int) -> list[tuple[int, int, Mask | None]]:
    """Split the access into as few parts as the bounds allow: first byte, size, lanes."""
    if reach.inside is None:
        return [(0, size, None)]
    # Bounds are monotonic: a lane with the last dword has all. So if first and last agree, one mask is enough.
    if bool((reach.inside[0] == reach.inside[-1]).all()):
        return [(0, size, reach.inside[0])]
    return [(4 * k, 4, mask) for k, mask in enumerate(reach.inside)]


def _fetch(group: WaveGroup, where: BufferAddress, element: Element) -> list[U32]:
    """Read the values of a load, 0 past the end."""
    memory = group.batch.memory
    line_bytes = where.code.arch.memory.line_bytes
    reach = _check_bounds(group, where, element.size)
    values: list[U32] = []
    for first, size, mask in _split_access(reach, element.size):
        if mask is not None and not mask.any():
            values += [np.zeros((group.waves, group.lanes), np.uint32)] * max(size // 4, 1)
            continue
        index = memory.check_access(reach.address + np.uint64(first) if first else reach.address, size, mask)
        traffic.count_memory_read(group, index, size, mask, line_bytes)
        words = load(memory.views, index, size)
        values += words if mask is None else [np.where(mask, word, np.uint32(0)) for word in words]
    return element.extend_loaded(values)


def _load(where: BufferAddress, element: Element, register: int) -> Step:
    def execute(group: WaveGroup) -> None:
        private = where.compute_private_offsets(group)
        if private is not None:
            load_private(group, private, element, register)
            return
        values = _fetch(group, where, element)
        write_vectors(group, "load", Arrival(register, tuple(values), active_lanes(group), element.keep))

    return execute


def _load_to_lds(where: BufferAddress, element: Element) -> Step:
    def execute(group: WaveGroup) -> None:
        if where.compute_private_offsets(group) is not None:
            raise where.code.unknown("a copy from private memory to LDS", where.instruction)
        values = _fetch(group, where, element)
        if group.full or group.exec_mask.any():
            send_to_lds(group, values, element, where.immediate, where.code)
        else:
            reserve_counter(group, "load")

    return execute


def _store(where: BufferAddress, element: Element, register: int) -> Step:
    line_bytes = where.code.arch.memory.line_bytes

    def execute(group: WaveGroup) -> None:
        private = where.compute_private_offsets(group)
        if private is not None:
            store_private(group, private, element, register)
            return
        memory = group.batch.memory
        values = element.extract_stored(group.v[register : register + element.registers])
        reach = _check_bounds(group, where, element.size)
        for first, size, mask in _split_access(reach, element.size):
            if mask is None or mask.any():
                index = memory.check_access(reach.address + np.uint64(first) if first else reach.address, size, mask)
                traffic.count_memory_write(group, index, size, mask, line_bytes)
                store(memory.views, index, values[first // 4 :], size, mask)
        reserve_counter(group, "store")

    return execute


def _translate_atomic(where: BufferAddress, operation: AtomicOperation, register: int, old: bool) -> Step:
    def execute(group: WaveGroup) -> None:
        if where.compute_private_offsets(group) is not None:
            raise where.code.unknown("an atomic on private memory", where.instruction)
        reach = _check_bounds(group, where, operation.size)
        mask = None if reach.inside is None else reach.inside[-1]
        if mask is not None and not mask.any():
            zeros = np.zeros((group.waves, group.lanes), np.uint32)
            if old:
                values = (zeros,) * (operation.size // 4)
                write_vectors(group, "load", Arrival(register, values, active_lanes(group)))
            else:
                reserve_counter(group, "store")
            return
        index = group.batch.memory.check_access(reach.address, operation.size, mask)
        run_memory_atomic(group, operation, index, mask, register, register if old else None)

    return execute


def translate_buffer(name: str, instruction: Instruction, code: LoadedCode) -> Step:
    """Return the step of a buffer_… instruction."""
    check_modifiers(instruction, code, BUFFER_MODIFIERS)
    kind, _, rest = name.removeprefix("buffer_").partition("_")
    to_lds = rest.startswith("lds_") or bool(instruction.modifiers.get("lds"))
    if kind == "load" and to_lds:
        where = _read_address(instruction, code, get_operands(instruction, code, (3,)))
        return _load_to_lds(where, find_dma_element(rest.removeprefix("lds_"), instruction, code))
    if kind not in ("load", "store", "atomic") or to_lds:
        raise code.unknown(f"instruction {name}", instruction)
    data, *others = get_operands(instruction, code, (4,))
    where = _read_address(instruction, code, tuple(others))
    if kind == "atomic":
        operation = find_memory_atomic(rest, instruction, code)
        register = get_vector(instruction, code, data, operation.registers)
        return _translate_atomic(where, operation, register, needs_old_value(instruction, code))
    table = LOADS if kind == "load" else STORES
    if rest not in table:
        raise code.unknown(f"instruction {name}", instruction)
    register = get_vector(instruction, code, data, table[rest].registers)
    return (_load if kind == "load" else _store)(where, table[rest], register)


def _read_address(instruction: Instruction, code: LoadedCode, operands: tuple[Operand, ...]) -> BufferAddress:
    vaddr, descriptor, soffset = operands
    offen, idxen = bool(instruction.modifiers.get("offen")), bool(instruction.modifiers.get("idxen"))
    if not offen and not idxen and vaddr.kind != "none":
        raise code.unknown("a vector address without offen or idxen", instruction)
    first = get_vector(instruction, code, vaddr, int(offen) + int(idxen)) if offen or idxen else None
    return BufferAddress(
        instruction,
        code,
        get_scalar(instruction, code, descriptor, 4),
        index=first if idxen else None,
        offset=None if first is None or not offen else first + int(idxen),
        immediate=get_number(instruction, code, "offset"),
        soffset=get_scalar_offset(instruction, code, soffset, signed_literal=False),
    )
