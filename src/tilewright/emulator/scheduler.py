"""Choose the group of waves that runs next.

Fast mode: the group at the lowest address, so that waves that took different branches join again after them. Strict
mode: the waves of a work-group one after another (see `split_slots`), each as far as the next barrier. In both modes a
group that has waited long runs first: waves may spin until another one has done its work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.group import Mask, WaveGroup, WaveIndices


class Barriers:
    """One barrier per work-group of a batch."""

    def __init__(self, first_wave: int, blocks: int, waves_per_block: int) -> None:
        self._first_wave = first_wave
        self._per_block = waves_per_block
        self._alive = np.full(blocks, waves_per_block)  # waves that have not ended
        self._signals = np.zeros(blocks, np.int64)  # waves that have signalled
        self._over = np.zeros(blocks * waves_per_block, np.bool_)  # per wave: has not waited for a completed barrier
        self.waves = blocks * waves_per_block  # waves of all work-groups that have not ended

    def _wave_numbers(self, group: WaveGroup) -> NDArray[np.int64]:
        return group.places.wave - self._first_wave

    def signal(self, group: WaveGroup) -> Mask:
        """Signal the barrier for these waves. Returns which of them was the first of its work-group."""
        blocks = self._wave_numbers(group) // self._per_block
        fresh: Mask = self._signals[blocks] == 0
        first = np.zeros(group.waves, np.bool_)
        first[np.unique(blocks, return_index=True)[1]] = True
        np.add.at(self._signals, blocks, 1)
        self._finish_barriers()
        return fresh & first

    def release_waves(self, group: WaveGroup) -> Mask:
        """Return which of these waves may continue, and mark their wait as done."""
        numbers = self._wave_numbers(group)
        passing = self._over[numbers].copy()
        self._over[numbers] = False
        return passing

    def has_all_waves(self, group: WaveGroup) -> bool:
        """Whether these are all remaining waves, so that a barrier completes as soon as it is reached."""
        return group.waves == self.waves and not self._signals.any()

    def remove_waves(self, group: WaveGroup) -> None:
        """Remove waves that have ended: the others do not wait for them."""
        np.subtract.at(self._alive, self._wave_numbers(group) // self._per_block, 1)
        self.waves -= group.waves
        self._finish_barriers()

    def _finish_barriers(self) -> None:
        over = (self._signals >= self._alive) & (self._signals > 0)
        if over.any():
            self._over.reshape(-1, self._per_block)[over] = True
            self._signals[over] = 0


# Basic blocks that others may run while a group waits. Enough for the loops inside an `if`, after which waves should
# join; few enough that spinning costs little.
PATIENCE = 4096


@dataclass(slots=True)
class RunnableGroup:
    """A group that can continue, and its address."""

    group: WaveGroup
    address: int
    slot: int
    since: int = 0

    @property
    def key(self) -> tuple[int, int]:
        return self.slot, self.address


class GroupScheduler:
    """The groups that can run."""

    def __init__(self) -> None:
        self._ready: list[RunnableGroup] = []
        self._now = 0  # basic blocks run so far
        self._lowest = (0, 0)
        self._deadline = 0  # time at which the group that has waited longest must run
        self._mine_until = 0  # until then the running group is not interrupted

    def add(self, entry: RunnableGroup) -> None:
        entry.since = self._now
        self._ready.append(entry)
        self._update_limits()

    def _update_limits(self) -> None:
        if self._ready:
            self._lowest = min(entry.key for entry in self._ready)
            self._deadline = min(entry.since for entry in self._ready) + PATIENCE

    def take_next(self) -> RunnableGroup | None:
        """Return the group to run, joined with those at the same address; None if there is none."""
        if not self._ready:
            return None
        if self._now > self._deadline:
            chosen = min(self._ready, key=lambda entry: entry.since)
            self._mine_until = self._now + PATIENCE
        else:
            chosen = min(self._ready, key=lambda entry: (entry.key, entry.since))
        together = [entry for entry in self._ready if entry is chosen or _can_join(entry, chosen)]
        self._ready = [entry for entry in self._ready if not any(entry is other for other in together)]
        self._update_limits()
        if len(together) > 1:
            return RunnableGroup(join_groups([entry.group for entry in together]), chosen.address, chosen.slot)
        return chosen

    def needs_switch(self, address: int, slot: int) -> bool:
        """Whether another group must run before the running one continues at `address`. Counts basic blocks."""
        self._now += 1
        if not self._ready or self._now < self._mine_until:
            return False
        return self._lowest <= (slot, address) or self._now > self._deadline


def _can_join(one: RunnableGroup, other: RunnableGroup) -> bool:
    """Groups with pending effects are not joined: some effects would become visible too early."""
    return (
        one.key == other.key
        and not one.group.pending
        and not other.group.pending
        and one.group.float_mode == other.group.float_mode
    )


def join_groups(groups: Sequence[WaveGroup]) -> WaveGroup:
    """Join groups into one, its waves ordered by index. None may have pending effects."""
    places = WaveIndices.join([group.places for group in groups])
    order = np.argsort(places.wave, kind="stable")
    return WaveGroup(
        groups[0].batch,
        np.concatenate([group.vgprs for group in groups], axis=1)[:, order],
        np.concatenate([group.sgprs for group in groups])[order],
        np.concatenate([group.scc for group in groups])[order],
        places.take(order),
        groups[0].float_mode,
    )


def split_slots(group: WaveGroup, waves_per_block: int) -> Iterator[tuple[int, WaveGroup]]:
    """Separate the waves of each work-group, so that one runs after the other.

    Slot k has wave k of even work-groups and the k-th last wave of odd ones, or the reverse with `turned`: both orders
    occur.
    """
    block, number = np.divmod(group.places.wave, waves_per_block)
    upward = block % 2 == int(group.batch.turned)
    place = np.where(upward, number, waves_per_block - 1 - number)
    for slot in range(waves_per_block):
        yield slot, group.take(np.flatnonzero(place == slot))
