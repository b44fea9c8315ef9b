"""Scalar stores and atomics (gfx9): one address per wave, from scalar registers. They reach memory at issue."""

from __future__ import annotations

import numpy as np

from tilewright.emulator.access.atomics import apply_atomic, check_alignment, find_memory_atomic
from tilewright.emulator.access.effects import ScalarArrival, reserve_counter, write_scalars
from tilewright.emulator.access.operands import get_scalar, read_pair
from tilewright.emulator.access.scalar import DWORDS, check_scalar_alignment, read_scalar_operands
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import Step, WaveGroup
from tilewright.emulator.instruction import Instruction

STORE, ATOMIC = "s_store_", "s_atomic_"
STORED = tuple(name for name in DWORDS if name in ("dword", "dwordx2", "dwordx4"))


def translate_scalar_write(name: str, instruction: Instruction, code: LoadedCode) -> Step | None:
    """Return the step of s_store_… and s_atomic_…; None for other instructions."""
    if name.startswith(ATOMIC):
        return _make_atomic(name.removeprefix(ATOMIC), instruction, code)
    kind = name.removeprefix(STORE)
    if kind == name:
        return None
    if kind not in STORED:
        raise code.unknown(f"instruction {name}", instruction)
    return _make_store(instruction, code, DWORDS[kind])


def _make_store(instruction: Instruction, code: LoadedCode, count: int) -> Step:
    register, base, offset = read_scalar_operands(instruction, code, count)
    pair = get_scalar(instruction, code, base, 2)

    def execute(group: WaveGroup) -> None:
        address = read_pair(group, pair) + offset(group).view(np.uint64)
        check_scalar_alignment(address, 4)
        memory = group.batch.memory
        index = memory.check_access(address, 4 * count, None)
        for k in range(count):
            memory.views.u32[(index >> 2) + k] = group.s[register + k]
        group.batch.counters.global_write_bytes += 4 * count * group.waves
        reserve_counter(group, "scalar", in_order=False)

    return execute


def _make_atomic(rest: str, instruction: Instruction, code: LoadedCode) -> Step:
    """Waves of a group run in their order."""
    operation = find_memory_atomic(rest, instruction, code)
    words = operation.size // 4
    register, base, offset = read_scalar_operands(instruction, code, words * operation.operands)
    pair = get_scalar(instruction, code, base, 2)
    returns = bool(instruction.modifiers.get("glc"))

    def execute(group: WaveGroup) -> None:
        address = read_pair(group, pair) + offset(group).view(np.uint64)
        memory = group.batch.memory
        index = memory.check_access(address, operation.size, None)
        check_alignment(index[:, None], operation.size, None)
        starts = range(register, register + words * operation.operands, words)
        given = [group.sgprs[:, start : start + words] for start in starts]
        operands = [np.ascontiguousarray(part).view(operation.dtype)[:, 0] for part in given]
        old = apply_atomic(operation, memory.views, index, operands, returns)
        counters = group.batch.counters
        counters.atomics += group.waves
        counters.global_write_bytes += operation.size * group.waves
        if old is None:
            reserve_counter(group, "scalar", in_order=False)
            return
        counters.global_read_bytes += operation.size * group.waves
        parts = old.view(np.uint32).reshape(group.waves, words)
        write_scalars(group, ScalarArrival(register, tuple(parts[:, k].copy() for k in range(words))))

    return execute
