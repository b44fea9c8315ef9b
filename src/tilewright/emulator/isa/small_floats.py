"""Floats of 4, 6 and 8 bits over arrays, also with a scale: numbers are divided by it when they are encoded, and
multiplied by it when they are decoded. small_floats.h has the same in C."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.emulator.isa.operation import Array

Function = Callable[..., Array]
_HUGE = 1e30  # larger than every number of these formats, so that the next steps do not overflow


# What becomes of numbers that are too large: infinity or NaN, the largest number, or the largest number also instead of
# infinity. MODE.FP16_OVFL selects one of the latter: RDNA4 keeps infinities, CDNA4 does not (Triton's tests of casts to
# 8-bit floats, which run on both, say so).
KEEP, LIMIT, LIMIT_ALL = range(3)


@dataclass(frozen=True, slots=True)
class SmallFloat:
    """A format. `beyond` and `nan` are the codes of what is too large, and of NaN."""

    fraction: int
    bias: int
    sign: int
    largest: int
    beyond: int
    nan: int
    minus_zero: bool = True

    def encode(self, x: Array, cut_off: bool = False, limit: int = KEEP) -> Array:
        """Return codes of f64: rounded to nearest even, or towards zero (`cut_off`). Numbers that are too large become
        `beyond`, or what `limit` says."""
        sign = np.where(np.signbit(x), self.sign, 0)
        marked = sign if self.minus_zero else np.zeros_like(sign)
        size = np.abs(x)
        limited = (limit == LIMIT_ALL) | (np.isfinite(size) & (limit == LIMIT))
        beyond = np.where(limited, self.largest | sign, self.beyond | marked)
        inside = np.where(size < _HUGE, size, 0.0)
        _, power = np.frexp(inside)
        exponent = np.where(inside == 0, 1 - self.bias, np.maximum(power - 1, 1 - self.bias))
        steps = np.ldexp(inside, self.fraction - exponent)
        rounded = np.floor(steps) if cut_off else np.rint(steps)
        code = ((exponent + self.bias - 1) << self.fraction) + rounded.astype(np.int64)
        signed = np.where((code != 0) | self.minus_zero, code | sign, 0)
        code = np.where((code > self.largest) | (size >= _HUGE), beyond, signed)
        return np.where(np.isnan(x), self.nan | marked, code).astype(np.uint8)

    def make_values(self) -> Array:
        """Return the number of every code, as f64."""
        codes = np.arange(2 * self.sign)
        size = codes & (self.sign - 1)
        exponent, part = size >> self.fraction, size & ((1 << self.fraction) - 1)
        whole = np.where(exponent > 0, part + (1 << self.fraction), part)
        values = np.ldexp(whole.astype(np.float64), np.maximum(exponent, 1) - self.bias - self.fraction)
        if self.minus_zero:
            above = np.where((size == self.beyond) & (self.beyond != self.nan), np.inf, np.nan)
            values = np.where(size > self.largest, above, values)
        else:
            values = np.where(codes == self.sign, np.nan, values)
        return np.where(codes >= self.sign, -values, values)

    def encode_random(self, x: Array, random: Array, limit: int = KEEP) -> Array:
        """Add random bits below the last kept bit of f32, then round towards zero."""
        x, random = np.broadcast_arrays(x, random)
        bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
        moved = np.where(np.isfinite(x), bits + (random >> (9 + self.fraction)), bits).astype(np.uint32)
        return self.encode(moved.view(np.float32).astype(np.float64), True, limit)


FORMATS = {
    "fp8_fnuz": SmallFloat(3, 8, 0x80, 0x7F, 0x80, 0x80, minus_zero=False),
    "bf8_fnuz": SmallFloat(2, 16, 0x80, 0x7F, 0x80, 0x80, minus_zero=False),
    "fp8_ocp": SmallFloat(3, 7, 0x80, 0x7E, 0x7F, 0x7F),
    "bf8_ocp": SmallFloat(2, 15, 0x80, 0x7B, 0x7C, 0x7E),
    # Without infinities and NaN: both become the largest number, which is an assumption for NaN.
    "fp6_ocp": SmallFloat(3, 1, 0x20, 0x1F, 0x1F, 0x1F),
    "bf6_ocp": SmallFloat(2, 3, 0x20, 0x1F, 0x1F, 0x1F),
    "fp4_ocp": SmallFloat(1, 1, 0x08, 0x07, 0x07, 0x07),
}


def scale_of(x: Array) -> Array:
    """The exponent of an f32 is the scale; that of infinity and NaN makes everything NaN."""
    exponent = ((x.view(np.uint32) >> 23) & 0xFF).astype(np.int32)
    return np.where(exponent == 0xFF, np.nan, np.ldexp(1.0, exponent - 127))


def next_random(x: Array) -> Array:
    """v_prng_b32: the next number of a shift register."""
    return (x << 1) ^ ((x >> 31) * np.uint32(197))


def _build_functions(name: str, item: SmallFloat) -> dict[str, Function]:
    table = item.make_values()

    def decode(code: Array) -> Array:
        return table[code].astype(np.float32)

    def decode_scaled(code: Array, scale: Array) -> Array:
        factor = scale_of(scale)
        return np.where(np.isnan(factor), np.nan, table[code] * factor)

    functions: dict[str, Function] = {f"f32_of_{name}": decode, f"f64_of_{name}": decode_scaled}
    for ending, limit in (("", KEEP), ("_limited", LIMIT), ("_clamped", LIMIT_ALL)):
        functions |= {
            f"{name}{ending or '_of_f32'}": lambda x, limit=limit: item.encode(x.astype(np.float64), limit=limit),
            f"{name}_random{ending}": lambda x, random, limit=limit: item.encode_random(x, random, limit),
            f"{name}_scaled{ending}": lambda x, scale, limit=limit: item.encode(
                x.astype(np.float64) / scale_of(scale), limit=limit
            ),
            f"{name}_scaled_random{ending}": lambda x, random, scale, limit=limit: item.encode_random(
                (x.astype(np.float64) / scale_of(scale)).astype(np.float32), random, limit
            ),
        }
    return functions


SMALL_FUNCTIONS: dict[str, Function] = {
    "scale_of": scale_of,
    "next_random": next_random,
    **{name: function for kind, item in FORMATS.items() for name, function in _build_functions(kind, item).items()},
}
