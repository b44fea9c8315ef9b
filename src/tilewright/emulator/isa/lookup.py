"""Functions that look up constants. tables.h has the same in C."""

from __future__ import annotations

import numpy as np

from tilewright.emulator.isa.operation import Array

# The first 1201 bits of 2 / pi after the binary point.
_BITS = 1201
_TWO_OVER_PI = int(
    "145f306dc9c882a53f84eafa3ea69bb81b6c52b3278872083fca2c757bd778ac36e48dc74849ba5c00c925dd413a32439fc3"
    "bd63962534e7dd1046bea5d768909d338e04d68befc827323ac7306a673e93908bf177bf250763ff12fffbc0b301fde5e231"
    "6b414da3eda6cfd9e4f96136e9e8c7ecd3cbfd45aea4f758fd7cbe2f67a0e73ef14a525d4d7f6bf623f1aba10ac06608df8f"
    "6",
    16,
)


def trig_preop(x: Array, segment: Array) -> Array:
    """Return 53 bits of 2 / pi, from a bit on that the exponent of x and the number of the segment determine."""
    exponent = ((x.view(np.uint64) >> 52) & 0x7FF).astype(np.int64)
    shift = (segment & 31).astype(np.int64) * 53 + np.maximum(exponent - 1077, 0)
    shifts, where = np.unique(shift, return_inverse=True)
    parts = np.array([_get_part(int(each)) for each in shifts], np.float64)[where].reshape(shift.shape)
    return np.ldexp(parts, (np.where(exponent >= 1968, 128, 0) - 53 - shift).astype(np.int32))


def _get_part(shift: int) -> int:
    behind = _BITS - 53 - shift
    whole = _TWO_OVER_PI >> behind if behind >= 0 else _TWO_OVER_PI << -behind
    return whole & ((1 << 53) - 1)
