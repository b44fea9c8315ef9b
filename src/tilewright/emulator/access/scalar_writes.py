"""Scalar stores and atomics (gfx9): one address per wave, from scalar registers. They reach memory at issue.

In buffers, dwords outside are not written (ISA manual of CDNA3, 8.4). What an atomic outside would return is not
documented, so one that returns the old value is refused there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.access.atomics import (
    AtomicOperation,
    apply_atomic,
    check_alignment,
    find_memory_atomic,
)
from tilewright.emulator.access.effects import ScalarArrival, reserve_counter, write_scalars
from tilewright.emulator.access.operands import Scalars, get_scalar, read_pair
from tilewright.emulator.access.scalar import (
    DWORDS,
    check_scalar_alignment,
    read_scalar_buffer,
    read_scalar_operands,
)
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import Step, WaveGroup
from tilewright.emulator.instruction import Instruction, Operand

STORE, SCRATCH_STORE, BUFFER_STORE = "s_store_", "s_scratch_store_", "s_buffer_store_"
ATOMIC, BUFFER_ATOMIC = "s_atomic_", "s_buffer_atomic_"
STORED = tuple(name for name in DWORDS if name in ("dword", "dwordx2", "dwordx4"))

# Addresses, and for dword k the waves that are inside (None: all).
_Place = tuple[NDArray[np.uint64], Callable[[int, int], NDArray[np.bool_] | None]]
_Places = Callable[[WaveGroup], _Place]


def translate_scalar_write(name: str, instruction: Instruction, code: LoadedCode) -> Step | None:
    """Return the step of a scalar store or atomic; None for other instructions."""
    for prefix in (ATOMIC, BUFFER_ATOMIC):
        if name.startswith(prefix):
            return _make_atomic(name.removeprefix(prefix), instruction, code, prefix == BUFFER_ATOMIC)
    for prefix in (STORE, SCRATCH_STORE, BUFFER_STORE):
        kind = name.removeprefix(prefix)
        if kind == name:
            continue
        if kind not in STORED:
            raise code.unknown(f"instruction {name}", instruction)
        return _make_store(instruction, code, DWORDS[kind], prefix == BUFFER_STORE)
    return None


def _make_places(instruction: Instruction, code: LoadedCode, base: Operand, offset: Scalars, buffer: bool) -> _Places:
    """Make a getter of the addresses of waves: from a base, or in a buffer."""
    if not buffer:
        pair = get_scalar(instruction, code, base, 2)
        return lambda group: (read_pair(group, pair) + offset(group).view(np.uint64), lambda _, __: None)
    quad = get_scalar(instruction, code, base, 4)

    def find_in_buffer(group: WaveGroup) -> _Place:
        found = read_scalar_buffer(group, quad, instruction, code)
        begin = np.broadcast_to(offset(group), (group.waves,))
        records = found.records[:, 0]
        address = found.base[:, 0] + begin.astype(np.int64).view(np.uint64)
        return address, lambda at, size: (begin + at >= 0) & (begin + (at + size) <= records)

    return find_in_buffer


def _make_store(instruction: Instruction, code: LoadedCode, count: int, buffer: bool) -> Step:
    register, base, offset = read_scalar_operands(instruction, code, count)
    places = _make_places(instruction, code, base, offset, buffer)

    def execute(group: WaveGroup) -> None:
        address, find_inside = places(group)
        memory = group.batch.memory
        if not buffer:
            check_scalar_alignment(address, 4)
            memory.check_access(address, 4 * count, None)
        for k in range(count):
            inside = find_inside(4 * k, 4)
            rows = np.arange(group.waves) if inside is None else np.flatnonzero(inside)
            if not len(rows):
                continue
            own = address + np.uint64(4 * k)
            check_scalar_alignment(own, 4)
            index = memory.check_access(own, 4, inside)
            memory.views.u32[index[rows] >> 2] = group.s[register + k][rows]
            group.batch.counters.global_write_bytes += 4 * len(rows)
        reserve_counter(group, "scalar", in_order=False)

    return execute


def _make_atomic(rest: str, instruction: Instruction, code: LoadedCode, buffer: bool) -> Step:
    """Waves of a group run in their order."""
    operation = find_memory_atomic(rest, instruction, code)
    words = operation.size // 4
    register, base, offset = read_scalar_operands(instruction, code, words * operation.operands)
    places = _make_places(instruction, code, base, offset, buffer)
    returns = bool(instruction.modifiers.get("glc"))

    def execute(group: WaveGroup) -> None:
        address, find_inside = places(group)
        inside = find_inside(0, operation.size)
        rows = np.arange(group.waves) if inside is None else np.flatnonzero(inside)
        if returns and len(rows) < group.waves:
            raise code.unknown("a scalar atomic that returns from outside of its buffer", instruction)
        old = _apply(group, operation, address, rows, register, returns) if len(rows) else None
        if old is None:
            reserve_counter(group, "scalar", in_order=False)
            return
        group.batch.counters.global_read_bytes += operation.size * group.waves
        parts = old.view(np.uint32).reshape(group.waves, words)
        write_scalars(group, ScalarArrival(register, tuple(parts[:, k].copy() for k in range(words))))

    return execute


def _apply(
    group: WaveGroup,
    operation: AtomicOperation,
    address: NDArray[np.uint64],
    rows: NDArray[np.intp],
    register: int,
    returns: bool,
) -> NDArray[np.generic] | None:
    """Run an atomic of some waves; the data begin at a register. Returns the old values if `returns` is set."""
    mask = np.isin(np.arange(group.waves), rows)
    words = operation.size // 4
    memory = group.batch.memory
    index = memory.check_access(address, operation.size, mask)
    check_alignment(index[:, None], operation.size, mask[:, None])
    starts = range(register, register + words * operation.operands, words)
    given = [group.sgprs[rows, start : start + words] for start in starts]
    operands = [np.ascontiguousarray(part).view(operation.dtype)[:, 0] for part in given]
    old = apply_atomic(operation, memory.views, index[rows], operands, returns)
    counters = group.batch.counters
    counters.atomics += len(rows)
    counters.global_write_bytes += operation.size * len(rows)
    return old
