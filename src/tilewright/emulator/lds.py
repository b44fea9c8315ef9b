"""The LDS of the work-groups that run together."""

from __future__ import annotations

import numpy as np

from tilewright.emulator.views import MemoryViews

_ALIGNMENT = 256  # the LDS of every work-group begins at a multiple of this, so that aligned offsets stay aligned


class Lds:
    """`blocks` work-groups with `size` bytes each. The bytes of work-group b begin at index b · stride of the views."""

    __slots__ = ("blocks", "size", "stride", "views")

    def __init__(self, blocks: int, size: int, poison: int | None = None) -> None:
        self.blocks = blocks
        self.size = size
        self.stride = max(-(-size // _ALIGNMENT) * _ALIGNMENT, _ALIGNMENT)
        # Complex numbers, because their arrays are aligned to 16 bytes.
        words = np.zeros(blocks * self.stride // 16, np.complex128)
        self.views = MemoryViews(words.view(np.uint8))
        if poison is not None:
            self.views.u32[...] = poison

    def base(self, block: int) -> int:
        """Return the start of a work-group's LDS in the views."""
        return block * self.stride
