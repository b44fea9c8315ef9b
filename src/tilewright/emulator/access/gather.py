"""Move elements of 1 to 16 bytes between registers and memory or LDS, for all lanes at once.

Addresses are byte indices into the views. Elements of 4 bytes or more are lists of dwords; smaller ones are one dword
each: a load zero-extends them, and a store uses the lower bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.group import U32
from tilewright.emulator.lds import MemoryViews
from tilewright.emulator.memory import Index, Mask

Item = TypeVar("Item", bound=np.generic)


def load(views: MemoryViews, index: Index, size: int) -> list[U32]:
    """Load the elements at `index` as new arrays."""
    low_bits = int(np.bitwise_or.reduce(index, axis=None))
    if size == 16 and not low_bits & 15:
        return _split_dwords(views.u128[index >> 4], 4)
    if size == 8 and not low_bits & 7:
        return _split_dwords(views.u64[index >> 3], 2)
    if size >= 4 and not low_bits & 3:
        first = index >> 2
        return [views.u32[first + k] if k else views.u32[first] for k in range(size // 4)]
    if size >= 4:
        return [_load_unaligned(views, index + 4 * k, 4) for k in range(size // 4)]
    if size == 2 and not low_bits & 1:
        return [views.u16[index >> 1].astype(np.uint32)]
    return [_load_unaligned(views, index, size)]


def _split_dwords(elements: NDArray[np.generic], count: int) -> list[U32]:
    words = elements.view(np.uint32).reshape(*elements.shape, count)
    return [words[..., k] for k in range(count)]


def _load_unaligned(views: MemoryViews, index: Index, size: int) -> U32:
    word = views.u8[index].astype(np.uint32)
    for k in range(1, size):
        word |= views.u8[index + k].astype(np.uint32) << np.uint32(8 * k)
    return word


def store(views: MemoryViews, index: Index, values: Sequence[U32], size: int, mask: Mask | None) -> None:
    """Store elements at `index` for the lanes in `mask` (None: all). For equal indices the last lane wins."""
    if mask is not None:
        lanes = np.flatnonzero(mask)
        index = select_lanes(index, lanes)
        values = [select_lanes(value, lanes) for value in values]
    if not index.size:
        return
    low_bits = int(np.bitwise_or.reduce(index, axis=None))
    if size == 16 and not low_bits & 15:
        views.u128[index >> 4] = _join_dwords(values).view(np.complex128)[..., 0]
    elif size == 8 and not low_bits & 7:
        views.u64[index >> 3] = _join_dwords(values).view(np.uint64)[..., 0]
    elif size >= 4 and not low_bits & 3:
        first = index >> 2
        for k in range(size // 4):
            views.u32[first + k] = values[k]
    elif size == 2 and not low_bits & 1:
        views.u16[index >> 1] = values[0].astype(np.uint16)
    else:
        for k in range(size):
            views.u8[index + k] = (values[k // 4] >> np.uint32(8 * (k % 4))).astype(np.uint8)


def select_lanes(values: NDArray[Item], lanes: NDArray[np.intp]) -> NDArray[Item]:
    """Return the values [waves, lanes, …] of lanes by their flat index over all waves: faster than a mask."""
    return values.reshape(-1, *values.shape[2:])[lanes]


def _join_dwords(values: Sequence[U32]) -> U32:
    words = np.empty((*values[0].shape, len(values)), np.uint32)
    for k, value in enumerate(values):
        words[..., k] = value
    return words
