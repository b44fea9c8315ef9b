"""Views of one piece of memory as elements of several sizes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class MemoryViews:
    """The same bytes as 1, 2, 4, 8 and 16 byte elements. The type of `u128` is only for moving 16 bytes at once."""

    __slots__ = ("u8", "u16", "u32", "u64", "u128")

    def __init__(self, octets: NDArray[np.uint8]) -> None:
        self.u8 = octets
        self.u16 = octets.view(np.uint16)
        self.u32 = octets.view(np.uint32)
        self.u64 = octets.view(np.uint64)
        self.u128 = octets.view(np.complex128)
