"""Atomic operations on the LDS. In strict mode they run at the wait, in order with the wave's other accesses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.emulator.access import traffic
from tilewright.emulator.access.atomics import (
    AtomicOperation,
    Values,
    apply_atomic,
    check_alignment,
    find_atomic,
    read_operand_values,
    to_registers,
)
from tilewright.emulator.access.effects import Arrival, Rows, copy_registers, make_element_rollback, make_lane_step
from tilewright.emulator.access.lds_range import check_range, compute_lds_address
from tilewright.emulator.access.operands import get_number, get_operands, get_vector
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import U32, PendingEffect, Step, WaveGroup
from tilewright.emulator.instruction import Instruction
from tilewright.emulator.lds import Lds
from tilewright.emulator.memory import Index, Mask


@dataclass(frozen=True, slots=True)
class LdsAtomic:
    """An operation on LDS elements, with its operands. Call to change the LDS; nothing is returned."""

    operation: AtomicOperation
    index: Index
    values: tuple[U32, ...]
    mask: Mask | None
    destination: int | None

    def __call__(self, lds: Lds) -> None:
        self._run(lds, want_old=False)

    def _run(self, lds: Lds, want_old: bool) -> Values | None:
        places = self.index.reshape(-1) if self.mask is None else self.index[self.mask]
        if not places.size:
            return None
        operands = read_operand_values(self.operation, self.values, self.mask)
        return apply_atomic(self.operation, lds.views, places, operands, want_old)

    def commit(self, group: WaveGroup) -> None:
        old = self._run(group.batch.lds, self.destination is not None)
        if old is not None and self.destination is not None:
            registers = to_registers(self.operation, old, (group.waves, group.lanes), self.mask)
            Arrival(self.destination, tuple(registers), self.mask).commit(group)

    def take(self, rows: Rows) -> LdsAtomic:
        mask = None if self.mask is None else self.mask[rows]
        values = tuple(value[rows] for value in self.values)
        return LdsAtomic(self.operation, self.index[rows], values, mask, self.destination)

    def make_rollback(self, lds: Lds) -> Callable[[], None]:
        return make_element_rollback(lds, self.index, self.operation.size, self.mask)


def _make_pending(atomic: LdsAtomic) -> PendingEffect:
    return PendingEffect(atomic.commit, lambda rows: _make_pending(atomic.take(rows)), lds_write=atomic)


def translate_lds_atomic(rest: str, instruction: Instruction, code: LoadedCode) -> Step:
    """Return the step of ds_add_u32, ds_cmpst_rtn_b64 and so on, by the name after ds_."""
    old = "_rtn_" in rest
    operation = find_atomic(rest.replace("_rtn_", "_"), instruction, code)
    operands = get_operands(instruction, code, (1 + operation.operands + int(old),))
    words = operation.size // 4
    destination = get_vector(instruction, code, operands[0], words) if old else None
    address = get_vector(instruction, code, operands[int(old)], 1)
    data = [get_vector(instruction, code, operand, words) for operand in operands[int(old) + 1 :]]
    offset = get_number(instruction, code, "offset")
    banks = code.arch.lds.banks

    def execute(group: WaveGroup, mask: Mask | None) -> None:
        index = check_range(group, compute_lds_address(group, address, offset), operation.size, mask)
        check_alignment(index, operation.size, mask)
        group.batch.counters.atomics += traffic.count_lanes(group, mask)
        traffic.count_lds_write(group, operation.size, mask, banks, index)
        values = tuple(value for register in data for value in copy_registers(group, register, words))
        group.schedule_effect("lds", _make_pending(LdsAtomic(operation, index, values, mask, destination)))

    return make_lane_step("lds", execute)
