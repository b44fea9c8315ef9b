"""ds_… instructions that change elements of the LDS: atomic operations, exchanges at two places, ds_append.

In strict mode they run at the wait, in order with the wave's other accesses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.access import traffic
from tilewright.emulator.access.atomics import (
    OPERATIONS,
    AtomicOperation,
    Values,
    apply_atomic,
    check_alignment,
    choose_for_mode,
    find_atomic,
    read_operand_values,
    to_registers,
)
from tilewright.emulator.access.effects import (
    Arrival,
    Rows,
    copy_registers,
    make_element_rollback,
    make_lane_step,
    reserve_counter,
)
from tilewright.emulator.access.lds_range import check_range, compute_lds_address
from tilewright.emulator.access.operands import check_modifiers, get_number, get_operands, get_vector
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import U32, PendingEffect, Step, WaveGroup
from tilewright.emulator.instruction import M0, Instruction
from tilewright.emulator.lds import Lds
from tilewright.emulator.memory import Index, Mask

EXCHANGE_PAIR = re.compile(r"wrxchg2(st64)?_rtn_(b32|b64)")
# ds_append and ds_consume, by their operation.
COUNTS = {"append": "add", "consume": "sub"}
NOTHING = "nop"  # LLVM's wait counting counts it like other accesses to the LDS
# AMD's pseudo-code of DS_CONDXCHG32_RTN_B64 clears the lowest bits of the address; others must be aligned.
ALIGNED = "condxchg32"


@dataclass(frozen=True, slots=True)
class _LdsAtomic:
    """An operation on LDS elements, with its operands. Call to change the LDS; nothing is returned.

    With two places per lane, these are a third axis of `index` and of `values`.
    """

    operation: AtomicOperation
    index: Index
    values: tuple[U32, ...]
    mask: Mask | None
    destination: int | None

    def __call__(self, lds: Lds) -> None:
        self._run(lds, want_old=False)

    def _run(self, lds: Lds, want_old: bool) -> Values | None:
        places = (self.index if self.mask is None else self.index[self.mask]).reshape(-1)
        if not places.size:
            return None
        operands = read_operand_values(self.operation, self.values, self.mask)
        return apply_atomic(self.operation, lds.views, places, operands, want_old)

    def commit(self, group: WaveGroup) -> None:
        old = self._run(group.batch.lds, self.destination is not None)
        if old is not None and self.destination is not None:
            places = self.index.shape[2] if self.index.ndim == 3 else 1
            registers = to_registers(self.operation, old, (group.waves, group.lanes), self.mask, places)
            Arrival(self.destination, tuple(registers), self.mask).commit(group)

    def take(self, rows: Rows) -> _LdsAtomic:
        mask = None if self.mask is None else self.mask[rows]
        return replace(self, index=self.index[rows], values=tuple(value[rows] for value in self.values), mask=mask)

    def make_rollback(self, lds: Lds) -> Callable[[], None]:
        return make_element_rollback(lds, self.index, self.operation.size, self.mask)


@dataclass(frozen=True, slots=True)
class _LdsCount:
    """One addition per wave, of its active lanes, which all get the old value. Waves without active lanes add 0."""

    operation: AtomicOperation
    index: NDArray[np.int64]  # of each wave
    mask: Mask
    destination: int

    def __call__(self, lds: Lds) -> None:
        self._run(lds)

    def _run(self, lds: Lds) -> Values:
        counts = self.mask.sum(axis=1).astype(np.uint32)
        old = apply_atomic(self.operation, lds.views, self.index, [counts], True)
        assert old is not None
        return old

    def commit(self, group: WaveGroup) -> None:
        old = np.repeat(self._run(group.batch.lds)[:, None], group.lanes, axis=1)
        Arrival(self.destination, (old,), self.mask).commit(group)

    def take(self, rows: Rows) -> _LdsCount:
        return replace(self, index=self.index[rows], mask=self.mask[rows])

    def make_rollback(self, lds: Lds) -> Callable[[], None]:
        return make_element_rollback(lds, self.index, self.operation.size, None)


def _schedule(group: WaveGroup, change: _LdsAtomic | _LdsCount) -> None:
    group.schedule_effect("lds", _make_pending(change))


def _make_pending(change: _LdsAtomic | _LdsCount) -> PendingEffect:
    return PendingEffect(change.commit, lambda rows: _make_pending(change.take(rows)), lds_write=change)


def translate_lds_change(rest: str, instruction: Instruction, code: LoadedCode) -> Step:
    """Return the step of an instruction that changes elements, by the name after ds_."""
    if exchange := EXCHANGE_PAIR.fullmatch(rest):
        return _translate_exchange(bool(exchange[1]), exchange[2], instruction, code)
    check_modifiers(instruction, code, ("offset",))
    if rest in COUNTS:
        return _translate_count(rest, instruction, code)
    if rest == NOTHING:
        get_operands(instruction, code, (0,))
        return lambda group: reserve_counter(group, "lds")
    return _translate_atomic(rest, instruction, code)


def _translate_atomic(rest: str, instruction: Instruction, code: LoadedCode) -> Step:
    """Return the step of ds_add_u32, ds_cmpst_rtn_b64 and so on."""
    old = "_rtn_" in rest
    named = find_atomic(rest.replace("_rtn_", "_"), instruction, code)
    operands = get_operands(instruction, code, (1 + named.operands + int(old),))
    words = named.size // 4
    destination = get_vector(instruction, code, operands[0], words) if old else None
    address = get_vector(instruction, code, operands[int(old)], 1)
    data = [get_vector(instruction, code, operand, words) for operand in operands[int(old) + 1 :]]
    offset = get_number(instruction, code, "offset")
    kept = ~np.int64(named.size - 1 if rest.startswith(ALIGNED) else 0)
    banks = code.arch.lds.banks

    def execute(group: WaveGroup, mask: Mask | None) -> None:
        operation = choose_for_mode(named, group)
        index = check_range(group, compute_lds_address(group, address, offset) & kept, operation.size, mask)
        check_alignment(index, operation.size, mask)
        group.batch.counters.atomics += traffic.count_lanes(group, mask)
        traffic.count_lds_write(group, operation.size, mask, banks, index)
        values = tuple(value for register in data for value in copy_registers(group, register, words))
        _schedule(group, _LdsAtomic(operation, index, values, mask, destination))

    return make_lane_step("lds", execute)


def read_exchange_places(instruction: Instruction, code: LoadedCode, unit: int) -> tuple[int, int]:
    """Return both offsets of an exchange. One place twice is refused: what it leaves there is not documented."""
    check_modifiers(instruction, code, ("offset0", "offset1"))
    first, second = (get_number(instruction, code, name) * unit for name in ("offset0", "offset1"))
    if first == second:
        raise code.unknown("an exchange of the same element twice", instruction)
    return first, second


def _translate_exchange(far: bool, element: str, instruction: Instruction, code: LoadedCode) -> Step:
    """Return the step of ds_wrxchg2…: each lane exchanges two elements (AMD's pseudo-code, DS_WRXCHG2_RTN_B32)."""
    operation = OPERATIONS["swap", element]
    words = operation.size // 4
    destination, place, *data = get_operands(instruction, code, (4,))
    target = get_vector(instruction, code, destination, 2 * words)
    address = get_vector(instruction, code, place, 1)
    given = [get_vector(instruction, code, operand, words) for operand in data]
    offsets = read_exchange_places(instruction, code, operation.size * (64 if far else 1))
    banks = code.arch.lds.banks

    def execute(group: WaveGroup, mask: Mask | None) -> None:
        both = [check_range(group, compute_lds_address(group, address, at), operation.size, mask) for at in offsets]
        for index in both:
            check_alignment(index, operation.size, mask)
        group.batch.counters.atomics += traffic.count_lanes(group, mask)
        traffic.count_lds_write(group, operation.size, mask, banks, *both)
        first, second = (group.v[register : register + words] for register in given)
        values = tuple(np.stack(pair, axis=-1) for pair in zip(first, second, strict=True))
        _schedule(group, _LdsAtomic(operation, np.stack(both, axis=-1), values, mask, target))

    return make_lane_step("lds", execute)


def read_count_target(instruction: Instruction, code: LoadedCode) -> int:
    """Return the register of ds_append or ds_consume. gfx11 and gfx12 run 64 lanes in halves, which may be apart."""
    if code.lanes != code.arch.wave_size:
        raise code.unknown(f"{instruction.mnemonic} in waves of {code.lanes} lanes", instruction)
    (destination,) = get_operands(instruction, code, (1,))
    return get_vector(instruction, code, destination, 1)


def _translate_count(rest: str, instruction: Instruction, code: LoadedCode) -> Step:
    """Return the step of ds_append or ds_consume: the first active lane adds or subtracts the number of active lanes.

    The address is the instruction's offset (ISA manuals; Mesa's ACO, `visit_shared_append`, leaves M0 as it is). But
    LLVM puts the address into M0 (AMDGPUISelDAGToDAG.cpp, `SelectDSAppendConsume`), so M0 must be 0: then both agree.
    """
    operation = OPERATIONS[COUNTS[rest], "u32"]
    target = read_count_target(instruction, code)
    offset = get_number(instruction, code, "offset")
    banks = code.arch.lds.banks

    def execute(group: WaveGroup, _: Mask | None) -> None:
        active = group.exec_mask
        counted = active.any(axis=1)
        if (group.s[M0][counted] != 0).any():
            raise code.unknown(f"{instruction.mnemonic} with M0 that is not 0", instruction)
        first = np.zeros_like(active)
        first[counted, active.argmax(axis=1)[counted]] = True
        index = check_range(group, np.full(active.shape, offset, np.int64), operation.size, first)
        check_alignment(index, operation.size, first)
        group.batch.counters.atomics += int(np.count_nonzero(counted))
        traffic.count_lds_write(group, operation.size, first, banks, index)
        _schedule(group, _LdsCount(operation, group.places.lds_base + offset, active.copy(), target))

    return make_lane_step("lds", execute)
