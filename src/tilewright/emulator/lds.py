"""The LDS of the work-groups that run together, and views of bytes as elements of each size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.base.lazy_module import LazyModule

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = LazyModule("numpy")


class MemoryViews:
    """The same bytes as 1, 2, 4, 8 and 16 byte elements. The type of `u128` is only for moving 16 bytes at once."""

    __slots__ = ("u8", "u16", "u32", "u64", "u128")

    def __init__(self, octets: NDArray[np.uint8]) -> None:
        self.u8 = octets
        self.u16 = octets.view(np.uint16)
        self.u32 = octets.view(np.uint32)
        self.u64 = octets.view(np.uint64)
        self.u128 = octets.view(np.complex128)


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
