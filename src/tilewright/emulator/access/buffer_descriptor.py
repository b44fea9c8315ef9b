"""The four scalar registers that describe a buffer (V#).

Raw buffers are supported: a base, a length in bytes, no stride and no swizzle. gfx9 may have a stride, which matters
for instructions with an index. Unsupported bits that would change an access raise a fault.

    word 0          base, low
    word 1   0-15   base, high       16-29 stride     30 cache swizzle (gfx9)   31 swizzle
    word 2          number of records: bytes, for buffers without a swizzle
    word 3   0-11   component selection, 12-18 format: both are for typed accesses and images only
             21-22  index stride     23 add the lane index to the index: both are for swizzled buffers only
             24     set by CK Tile for gfx11 and gfx12 (its resource level on gfx10); nothing depends on it
             28-29  gfx11 and later: bounds check: 3 by bytes, 2 none (but every access to an empty buffer is outside)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.access.operands import read_pair
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.group import WaveGroup
from tilewright.emulator.hardware import generation
from tilewright.emulator.instruction import Instruction

_SWIZZLE_GFX9 = np.uint32(0x80000000)
# Bits that must be 0 in words 1 and 3. Stride and bounds check get a second check.
_LAYOUT = np.uint32(0xFFFF0000)
_LAYOUT_BUT_STRIDE = np.uint32(0xC0000000)
_FLAGS_GFX9 = np.uint32(0xFFF80000)
_FLAGS_GFX11 = np.uint32(0xFEFC0000)
_BOUNDS = np.uint32(0x30000000)
_BY_BYTES = np.uint32(0x30000000)
_UNBOUNDED = np.uint32(0x20000000)
_NO_BOUND = 1 << 40  # more than any offset
_BASE = np.uint64(0xFFFF_FFFF_FFFF)


@dataclass(frozen=True, slots=True)
class RawBuffer:
    """A buffer of each wave, as columns [waves, 1]."""

    base: NDArray[np.uint64]
    records: NDArray[np.int64]  # length in bytes
    stride: int


def is_gfx9(code: LoadedCode) -> bool:
    return generation(code.arch.name) == "gfx9"


def is_swizzled(group: WaveGroup, register: int, code: LoadedCode) -> bool:
    """Whether this is the buffer through which gfx90a accesses private memory."""
    return is_gfx9(code) and bool(group.s[register + 1][0] & _SWIZZLE_GFX9)


def read_base(group: WaveGroup, register: int) -> NDArray[np.uint64]:
    """Return the base of each wave's buffer, as a column."""
    return (read_pair(group, register) & _BASE)[:, None]


def read_raw_buffer(group: WaveGroup, register: int, instruction: Instruction, code: LoadedCode) -> RawBuffer:
    """Read the raw buffer in four scalar registers."""
    layout, flags = group.s[register + 1], group.s[register + 3]
    records = group.sc[register + 2].astype(np.int64)
    odd = flags & _FLAGS_GFX9 if is_gfx9(code) else (flags & _FLAGS_GFX11) ^ _BY_BYTES
    stride = 0
    if ((layout & _LAYOUT) | odd).any():
        _reject_unknown(group, register, instruction, code)
        stride = int(layout[0] >> np.uint32(16))
        if not is_gfx9(code):
            unbounded = ((flags & _BOUNDS) == _UNBOUNDED)[:, None]
            records = np.where(unbounded & (records > 0), _NO_BOUND, records)
    return RawBuffer(read_base(group, register), records, stride)


def _reject_unknown(group: WaveGroup, register: int, instruction: Instruction, code: LoadedCode) -> None:
    """Raise for unsupported bits, or a stride that is not the same in all waves."""
    layout, flags = group.s[register + 1], group.s[register + 3]
    if is_gfx9(code):
        bad = (layout & _LAYOUT_BUT_STRIDE) | (flags & _FLAGS_GFX9)
    else:
        bounds = flags & _BOUNDS
        wrong_bounds = (bounds != _BY_BYTES) & (bounds != _UNBOUNDED)
        bad = (layout & _LAYOUT) | (flags & (_FLAGS_GFX11 & ~_BOUNDS)) | wrong_bounds
    if bad.any():
        row = int((bad != 0).argmax())
        words = ", ".join(f"{int(group.s[register + k][row]):#010x}" for k in range(4))
        raise code.unknown(f"the buffer descriptor {words} (wave {row} of the group)", instruction)
    if ((layout ^ layout[0]) & _LAYOUT).any():
        raise code.unknown("a buffer whose stride differs from wave to wave", instruction)
