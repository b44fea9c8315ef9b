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
from tilewright.emulator.group import U32, Group, Pending, Registers, Step
from tilewright.emulator.instruction import EXEC
from tilewright.emulator.lds import Lds
from tilewright.emulator.memory import Index, Mask
from tilewright.emulator.views import Views

Rows = NDArray[np.intp]
T = TypeVar("T")


class LdsChange(Protocol):
    """A pending LDS write. Call to apply; call `make_rollback` first to get a rollback."""

    def __call__(self, lds: Lds) -> None: ...
    def undo(self, lds: Lds) -> Callable[[], None]: ...


def active(group: Group) -> Mask | None:
    """Return the active lanes; None if all are active."""
    return None if group.full else group.exec_mask


def by_lanes(kind: str, act: Callable[[Group, Mask | None], None]) -> Step:
    """Make a step for the active lanes. Without active lanes it only occupies the counter of `kind`."""

    def step(group: Group) -> None:
        mask = active(group)
        if mask is None or mask.any():
            act(group, mask)
        else:
            occupy(group, kind)

    return step


@dataclass(frozen=True, slots=True)
class Arrival:
    """Values for vector registers from `register` on. `keep` are bits of the registers that do not change."""

    register: int
    values: tuple[U32, ...]
    mask: Mask | None
    keep: int = 0

    def commit(self, group: Group) -> None:
        for k, value in enumerate(self.values):
            register = group.v[self.register + k]
            if self.keep:
                value = (register & np.uint32(self.keep)) | value  # noqa: PLW2901 - the rest of the register
            if self.mask is None:
                register[...] = value
            else:
                np.putmask(register, self.mask, value)  # three times as fast as copyto; the shapes are equal

    def take(self, rows: Rows) -> Arrival:
        return Arrival(self.register, tuple(v[rows] for v in self.values), _rows(self.mask, rows), self.keep)

    def overtaken(self, group: Group, changed: Registers) -> Arrival:
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

    def commit(self, group: Group) -> None:
        for k, value in enumerate(self.values):
            group.s[self.register + k][...] = value
        if self.register + len(self.values) > EXEC:
            group.exec_changed()

    def take(self, rows: Rows) -> ScalarArrival:
        return ScalarArrival(self.register, tuple(v[rows] for v in self.values))

    def overtaken(self, group: Group, changed: Registers) -> ScalarArrival:
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

    def commit(self, group: Group) -> None:
        self(group.batch.lds)

    def take(self, rows: Rows) -> LdsWrite:
        return LdsWrite(self.index[rows], tuple(v[rows] for v in self.values), self.size, _rows(self.mask, rows))

    def undo(self, lds: Lds) -> Callable[[], None]:
        """Return a function that restores the bytes that a call will change."""
        return undo(lds, self.index, self.size, self.mask)


def undo(lds: Lds, index: Index, size: int, mask: Mask | None) -> Callable[[], None]:
    """Return a function that restores the current elements in the LDS."""
    places = index if mask is None else index[mask]
    before = load(lds.views, places, size)
    return lambda: store(lds.views, places, before, size, None)


def _rows(mask: Mask | None, rows: Rows) -> Mask | None:
    return None if mask is None else mask[rows]


def deliver(group: Group, kind: str, arrival: Arrival, in_order: bool = True) -> None:
    """Write values to vector registers, now or at a wait."""
    if group.batch.strict:
        group.later(kind, _pending_arrival(arrival, in_order, kind == "lds"))
    else:
        arrival.commit(group)


def _pending_arrival(arrival: Arrival, in_order: bool, lds_read: bool) -> Pending:
    registers = frozenset(("v", arrival.register + k) for k in range(len(arrival.values)))
    return Pending(
        arrival.commit,
        lambda rows: _pending_arrival(arrival.take(rows), in_order, lds_read),
        in_order,
        registers=registers,
        lds_read=lds_read,
        overtaken=lambda group, changed: _pending_arrival(arrival.overtaken(group, changed), in_order, lds_read),
    )


def deliver_scalar(group: Group, arrival: ScalarArrival) -> None:
    """Write values to scalar registers, now or at a wait. They may arrive in any order."""
    if group.batch.strict:
        group.later("scalar", _pending_scalar(arrival))
    else:
        arrival.commit(group)


def _pending_scalar(arrival: ScalarArrival) -> Pending:
    registers = frozenset(("s", arrival.register + k) for k in range(len(arrival.values)))
    return Pending(
        arrival.commit,
        lambda rows: _pending_scalar(arrival.take(rows)),
        in_order=False,
        registers=registers,
        overtaken=lambda group, changed: _pending_scalar(arrival.overtaken(group, changed)),
    )


def write_lds(group: Group, write: LdsWrite) -> None:
    """Write elements to the LDS. In strict mode the values must not be views of registers: see `copy_registers`."""
    if group.batch.strict:
        group.later("lds", _pending_write(write))
    else:
        write.commit(group)


def _pending_write(write: LdsWrite) -> Pending:
    return Pending(write.commit, lambda rows: _pending_write(write.take(rows)), lds_write=write)


def copy_to_lds(group: Group, write: LdsWrite) -> None:
    """Copy elements from memory to the LDS: LDS reads of the same wave may not see them before a wait for the load.

    They may arrive at any time up to the wait. In strict mode they arrive as late as possible, which exposes a missing
    wait; with `turned` as early as possible, which exposes reads of the bytes that they overwrite.
    """
    if group.batch.strict and not group.batch.turned:
        group.later("load", _pending_copy(write))
    else:
        write.commit(group)
        occupy(group, "load")


def _pending_copy(write: LdsWrite) -> Pending:
    return Pending(write.commit, lambda rows: _pending_copy(write.take(rows)))


def occupy(group: Group, kind: str, in_order: bool = True) -> None:
    """Occupy the counter without any effect: for a store, or a load without active lanes."""
    if group.batch.strict:
        group.later(kind, _nothing(in_order))


def _nothing(in_order: bool) -> Pending:
    return Pending(lambda _: None, lambda _: _nothing(in_order), in_order)


def held(group: Group, register: int, count: int) -> list[U32]:
    """Return the registers that an effect uses: copies if the effect is applied later."""
    values = group.v[register : register + count]
    return [value.copy() for value in values] if group.batch.strict else values


def read_lds(group: Group, read: Callable[[Views], T]) -> T:
    """Read the LDS as this group's waves see it: with their own pending writes, which others do not see yet."""
    lds = group.batch.lds
    pending = group.pending.get(group.batch.counter_of["lds"], ()) if group.batch.strict else ()
    undone = []
    for effect in pending:
        if effect.lds_write is None:
            continue
        write = cast(LdsChange, effect.lds_write)
        undone.append(write.undo(lds))
        write(lds)
    try:
        return read(lds.views)
    finally:
        for bring_back in reversed(undone):
            bring_back()
