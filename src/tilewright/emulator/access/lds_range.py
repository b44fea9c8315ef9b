"""LDS addresses of lanes, and the check that they are inside the LDS of the work-group."""

from __future__ import annotations

import numpy as np

from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.faults import LdsFault
from tilewright.emulator.group import WaveGroup
from tilewright.emulator.memory import Index, Mask


def compute_lds_address(group: WaveGroup, register: int, offset: int) -> Index:
    """Add a register and an offset as the LDS hardware does: in 32 bits, so negative bases work."""
    total: Index = (group.v[register] + np.uint32(offset)).astype(np.int64)
    return total


def check_range(group: WaveGroup, offset: Index, size: int, mask: Mask | None) -> Index:
    """Return the index of `size` bytes at each lane's offset in the views of the LDS.

    Lanes that are not in `mask` get the index of one that is; there must be one.
    """
    available = group.batch.lds.size
    base = group.places.lds_base[:, None]
    if mask is not None:
        offset = np.where(mask, offset, offset.flat[int(mask.argmax())])
    if int(offset.min()) < 0 or int(offset.max()) > available - size:
        outside = (offset < 0) | (offset > available - size)
        row, lane = np.unravel_index(int((outside if mask is None else outside & mask).argmax()), outside.shape)
        what = f"{size} bytes at {int(offset[row, lane]):#x} of the LDS of the work-group, which has {available} bytes"
        raise LdsFault(what, CodePlace(wave=int(row), lane=int(lane)))
    return np.add(offset, base)
