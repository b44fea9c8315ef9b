"""Barriers of the work-groups that run together.

A barrier completes for a work-group when all its waves that have not ended have signalled it.
(ISA manual for CDNA3, S_BARRIER: waves that have ended do not count. RDNA4 has separate instructions to signal and to
wait.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.group import Mask, WaveGroup


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
