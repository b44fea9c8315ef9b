"""Count the memory and LDS traffic that a kernel requests.

Bytes are counted for active lanes, without accesses outside the bounds of a buffer. With `Batch.detailed`, also:

* Cache lines: the number of distinct lines that the lanes of a wave touch in one instruction. Perfectly coalesced
  accesses of 4 bytes by 64 lanes touch 2 lines of 128 bytes.
* Bank conflicts: a model of the LDS with `banks` banks of 4 bytes. An instruction runs in passes of lanes in order: 32
  lanes for elements up to 4 bytes, 16 for 8 bytes, 8 for 12 and 16 bytes. A pass takes as many cycles as the busiest
  bank has distinct dwords (lanes with the same dword share it). Cycles beyond one per pass are counted. Atomics count
  as writes of their size.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.group import WaveGroup
from tilewright.emulator.memory import Index, Mask


def count_lanes(group: WaveGroup, mask: Mask | None) -> int:
    """Return the number of lanes in the mask."""
    return group.waves * group.lanes if mask is None else int(np.count_nonzero(mask))


def count_memory_read(group: WaveGroup, index: Index, size: int, mask: Mask | None, line_bytes: int) -> None:
    """Count a load of `size` bytes per lane of `mask`."""
    group.batch.counters.global_read_bytes += size * count_lanes(group, mask)
    if group.batch.detailed:
        group.batch.counters.cache_lines += count_cache_lines(index, size, mask, line_bytes)


def count_memory_write(group: WaveGroup, index: Index, size: int, mask: Mask | None, line_bytes: int) -> None:
    """Count a store of `size` bytes per lane of `mask`."""
    group.batch.counters.global_write_bytes += size * count_lanes(group, mask)
    if group.batch.detailed:
        group.batch.counters.cache_lines += count_cache_lines(index, size, mask, line_bytes)


def count_cache_lines(index: Index, size: int, mask: Mask | None, line_bytes: int) -> int:
    """Return the sum over waves of distinct lines that each touches."""
    ends = np.concatenate([index // line_bytes, (index + (size - 1)) // line_bytes], axis=1)
    if mask is not None:
        ends = np.where(np.concatenate([mask, mask], axis=1), ends, -1)
    return _count_distinct(ends)


def _count_distinct(values: NDArray[np.int64]) -> int:
    """Return the sum over rows of distinct values; -1 is ignored."""
    ordered = np.sort(values, axis=1)
    new = ordered[:, 1:] != ordered[:, :-1]
    return int(np.count_nonzero(new & (ordered[:, 1:] >= 0)) + np.count_nonzero(ordered[:, 0] >= 0))


def count_lds_read(group: WaveGroup, size: int, mask: Mask | None, banks: int, *index: Index) -> None:
    """Count an LDS read of `size` bytes at each index; an instruction may have several indices per lane."""
    group.batch.counters.lds_read_bytes += size * len(index) * count_lanes(group, mask)
    _count_conflicts(group, size, mask, banks, index)


def count_lds_write(group: WaveGroup, size: int, mask: Mask | None, banks: int, *index: Index) -> None:
    """Count an LDS write of `size` bytes at each index; an instruction may have several indices per lane."""
    group.batch.counters.lds_write_bytes += size * len(index) * count_lanes(group, mask)
    _count_conflicts(group, size, mask, banks, index)


def _count_conflicts(group: WaveGroup, size: int, mask: Mask | None, banks: int, index: tuple[Index, ...]) -> None:
    if group.batch.detailed:
        places = index[0] if len(index) == 1 else np.stack(index, axis=-1)
        group.batch.counters.bank_conflict_cycles += count_conflict_cycles(places, size, mask, banks)


def count_conflict_cycles(index: Index, size: int, mask: Mask | None, banks: int) -> int:
    """Return the cycles beyond one per pass, over all waves. Several indices per lane are a third axis."""
    waves, lane_count = index.shape[:2]
    dwords = _list_dwords(index, size)
    if mask is not None:
        dwords = np.where(mask[:, :, None], dwords, -1)
    per_pass = _lanes_per_pass(size * (index.shape[2] if index.ndim == 3 else 1))
    passes = np.sort(dwords.reshape(waves * lane_count // per_pass, -1), axis=1)
    new = passes >= 0
    new[:, 1:] &= passes[:, 1:] != passes[:, :-1]
    rows = np.broadcast_to(np.arange(passes.shape[0])[:, None], passes.shape)
    busy = np.bincount((rows * banks + passes % banks)[new], minlength=passes.shape[0] * banks)
    cycles = busy.reshape(-1, banks).max(axis=1)
    return int(np.maximum(cycles - 1, 0).sum())


def _list_dwords(index: Index, size: int) -> NDArray[np.int64]:
    """Return the dwords that each lane touches, as [waves, lanes, dwords]. A misaligned dword counts once."""
    first = (index >> 2).reshape(*index.shape[:2], -1, 1)
    return (first + np.arange(max(size // 4, 1))).reshape(*index.shape[:2], -1)


def _lanes_per_pass(size: int) -> int:
    if size <= 4:
        return 32
    return 16 if size <= 8 else 8
