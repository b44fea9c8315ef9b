"""Effects of memory instructions on registers and LDS: at once, or in strict mode at a wait.

A `PendingEffect` holds the values that were read when the instruction was issued. Its `take` selects waves, so all
arrays have waves as their first axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.access.gather import load, store
from tilewright.emulator.group import U32, PendingEffect, Registers, Step, WaveGroup
from tilewright.emulator.instruction import EXEC
from tilewright.emulator.lds import Lds, MemoryViews
from tilewright.emulator.memory import Index, Mask

Rows = NDArray[np.intp]
T = TypeVar("T")


class LdsChange(Protocol):
    """A pending LDS write. Call to apply; call `make_rollback` first to get a rollback."""

    def __call__(self, lds: Lds) -> None: ...
    def make_rollback(self, lds: Lds) -> Callable[[], None]: ...


def active_lanes(group: WaveGroup) -> Mask | None:
    """Return the active lanes; None if all are active."""
    return None if group.full else group.exec_mask


def make_lane_step(kind: str, act: Callable[[WaveGroup, Mask | None], None]) -> Step:
    """Make a step for the active lanes. Without active lanes it only occupies the counter of `kind`."""

    def execute(group: WaveGroup) -> None:
        mask = active_lanes(group)
        if mask is None or mask.any():
            act(group, mask)
        else:
            reserve_counter(group, kind)

    return execute


@dataclass(frozen=True, slots=True)
class Arrival:
    """Values for vector registers from `register` on. `keep` are bits of the registers that do not change."""

    register: int
    values: tuple[U32, ...]
    mask: Mask | None
    keep: int = 0

    def commit(self, group: WaveGroup) -> None:
        for k, value in enumerate(self.values):
            register = group.v[self.register + k]
            if self.keep:
                value = (register & np.uint32(self.keep)) | value  # noqa: PLW2901 - the rest of the register
            if self.mask is None:
                register[...] = value
            else:
                np.putmask(register, self.mask, value)  # three times as fast as copyto; the shapes are equal

    def take(self, rows: Rows) -> Arrival:
        return Arrival(self.register, tuple(v[rows] for v in self.values), _select_rows(self.mask, rows), self.keep)

    def merge_current(self, group: WaveGroup, changed: Registers) -> Arrival:
        """Return the arrival with the current values of active lanes in the changed registers."""
        values = (
            np.where(group.exec_mask, group.v[register], value) if ("v", register) in changed else value
            for register, value in enumerate(self.values, self.register)
        )
        return Arrival(self.register, tuple(values), self.mask, self.keep)


@dataclass(frozen=True, slots=True)
class ScalarArrival:
    """Values for scalar registers from `register` on."""

    register: int
    values: tuple[U32, ...]

    def commit(self, group: WaveGroup) -> None:
        for k, value in enumerate(self.values):
            group.s[self.register + k][...] = value
        if self.register + len(self.values) > EXEC:
            group.update_exec_mask()

    def take(self, rows: Rows) -> ScalarArrival:
        return ScalarArrival(self.register, tuple(v[rows] for v in self.values))

    def merge_current(self, group: WaveGroup, changed: Registers) -> ScalarArrival:
        """Return the arrival with the current values of the changed registers."""
        values = (
            group.s[register].copy() if ("s", register) in changed else value
            for register, value in enumerate(self.values, self.register)
        )
        return ScalarArrival(self.register, tuple(values))


@dataclass(frozen=True, slots=True)
class LdsWrite:
    """Elements for the LDS, by their indices in its views. Call to write them."""

    index: Index
    values: tuple[U32, ...]
    size: int
    mask: Mask | None

    def __call__(self, lds: Lds) -> None:
        store(lds.views, self.index, self.values, self.size, self.mask)

    def commit(self, group: WaveGroup) -> None:
        self(group.batch.lds)

    def take(self, rows: Rows) -> LdsWrite:
        return LdsWrite(self.index[rows], tuple(v[rows] for v in self.values), self.size, _select_rows(self.mask, rows))

    def make_rollback(self, lds: Lds) -> Callable[[], None]:
        """Return a function that restores the bytes that a call will change."""
        return make_element_rollback(lds, self.index, self.size, self.mask)


def make_element_rollback(lds: Lds, index: Index, size: int, mask: Mask | None) -> Callable[[], None]:
    """Return a function that restores the current elements in the LDS."""
    places = index if mask is None else index[mask]
    before = load(lds.views, places, size)
    return lambda: store(lds.views, places, before, size, None)


def _select_rows(mask: Mask | None, rows: Rows) -> Mask | None:
    return None if mask is None else mask[rows]


def write_vectors(group: WaveGroup, kind: str, arrival: Arrival, in_order: bool = True) -> None:
    """Write values to vector registers, now or at a wait."""
    if group.batch.strict:
        group.schedule_effect(kind, _make_pending_vectors(arrival, in_order, kind == "lds"))
    else:
        arrival.commit(group)


def _make_pending_vectors(arrival: Arrival, in_order: bool, lds_read: bool) -> PendingEffect:
    registers = frozenset(("v", arrival.register + k) for k in range(len(arrival.values)))
    return PendingEffect(
        arrival.commit,
        lambda rows: _make_pending_vectors(arrival.take(rows), in_order, lds_read),
        in_order,
        registers=registers,
        lds_read=lds_read,
        overtaken=lambda group, changed: _make_pending_vectors(
            arrival.merge_current(group, changed), in_order, lds_read
        ),
    )


def write_scalars(group: WaveGroup, arrival: ScalarArrival) -> None:
    """Write values to scalar registers, now or at a wait. They may arrive in any order."""
    if group.batch.strict:
        group.schedule_effect("scalar", _make_pending_scalars(arrival))
    else:
        arrival.commit(group)


def _make_pending_scalars(arrival: ScalarArrival) -> PendingEffect:
    registers = frozenset(("s", arrival.register + k) for k in range(len(arrival.values)))
    return PendingEffect(
        arrival.commit,
        lambda rows: _make_pending_scalars(arrival.take(rows)),
        in_order=False,
        registers=registers,
        overtaken=lambda group, changed: _make_pending_scalars(arrival.merge_current(group, changed)),
    )


def write_lds(group: WaveGroup, write: LdsWrite) -> None:
    """Write elements to the LDS. In strict mode the values must not be views of registers: see `copy_registers`."""
    if group.batch.strict:
        group.schedule_effect("lds", _make_pending_write(write))
    else:
        write.commit(group)


def _make_pending_write(write: LdsWrite) -> PendingEffect:
    return PendingEffect(write.commit, lambda rows: _make_pending_write(write.take(rows)), lds_write=write)


def copy_to_lds(group: WaveGroup, write: LdsWrite) -> None:
    """Copy elements from memory to the LDS: LDS reads of the same wave may not see them before a wait for the load.

    They may arrive at any time up to the wait. In strict mode they arrive as late as possible, which exposes a missing
    wait; with `turned` as early as possible, which exposes reads of the bytes that they overwrite.
    """
    if group.batch.strict and not group.batch.turned:
        group.schedule_effect("load", _make_pending_copy(write))
    else:
        write.commit(group)
        reserve_counter(group, "load")


def _make_pending_copy(write: LdsWrite) -> PendingEffect:
    return PendingEffect(write.commit, lambda rows: _make_pending_copy(write.take(rows)))


def reserve_counter(group: WaveGroup, kind: str, in_order: bool = True) -> None:
    """Occupy the counter without any effect: for a store, or a load without active lanes."""
    if group.batch.strict:
        group.schedule_effect(kind, _make_no_effect(in_order))


def _make_no_effect(in_order: bool) -> PendingEffect:
    return PendingEffect(lambda _: None, lambda _: _make_no_effect(in_order), in_order)


def copy_registers(group: WaveGroup, register: int, count: int) -> list[U32]:
    """Return the registers that an effect uses: copies if the effect is applied later."""
    values = group.v[register : register + count]
    return [value.copy() for value in values] if group.batch.strict else values


def read_lds(group: WaveGroup, read: Callable[[MemoryViews], T]) -> T:
    """Read the LDS as this group's waves see it: with their own pending writes, which others do not see yet."""
    lds = group.batch.lds
    pending = group.pending.get(group.batch.counter_of["lds"], ()) if group.batch.strict else ()
    undone = []
    for effect in pending:
        if effect.lds_write is None:
            continue
        write = cast(LdsChange, effect.lds_write)
        undone.append(write.make_rollback(lds))
        write(lds)
    try:
        return read(lds.views)
    finally:
        for bring_back in reversed(undone):
            bring_back()
