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
        inside, exponent = self._take_apart(x)
        steps = np.ldexp(inside, self.fraction - np.maximum(exponent, 1 - self.bias))
        return self._finish(x, exponent, np.floor(steps) if cut_off else np.rint(steps), limit)

    def _take_apart(self, x: Array) -> tuple[Array, Array]:
        """Return sizes, where they are not huge, and their exponents."""
        size = np.abs(x)
        inside = np.where(size < _HUGE, size, 0.0)
        _, power = np.frexp(inside)
        return inside, np.where(inside == 0, 1 - self.bias, power - 1)

    def _finish(self, x: Array, exponent: Array, steps: Array, limit: int) -> Array:
        """Return codes of f64 from their exponents and how many steps of the format they are rounded to."""
        sign = np.where(np.signbit(x), self.sign, 0)
        marked = sign if self.minus_zero else np.zeros_like(sign)
        limited = (limit == LIMIT_ALL) | (np.isfinite(x) & (limit == LIMIT))
        beyond = np.where(limited, self.largest | sign, self.beyond | marked)
        least = np.maximum(exponent, 1 - self.bias)
        code = ((least + self.bias - 1) << self.fraction) + steps.astype(np.int64)
        signed = np.where((code != 0) | self.minus_zero, code | sign, 0)
        code = np.where((code > self.largest) | (np.abs(x) >= _HUGE), beyond, signed)
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

    def encode_scaled_random(self, x: Array, random: Array, bits: int, limit: int = KEEP) -> Array:
        """Add random bits below the last kept bit of numbers with so many fraction bits, then round towards zero.

        AMD's text does not define it; this is from_float_sr in HIP's amd_hip_ocp_host.hpp. In contrast to
        `encode_random`, fractions of subnormal results are shifted, and lose bits, before random ones are added.
        """
        inside, exponent = self._take_apart(x)
        below = np.minimum(np.maximum(1 - self.bias - exponent, 0), 31)
        fraction = np.floor(np.ldexp(inside, bits - exponent)).astype(np.int64) >> below
        total = fraction + (random >> (32 - bits + self.fraction))
        return self._finish(x, exponent, total >> (bits - self.fraction), limit)


FORMATS = {
    "fp8_fnuz": SmallFloat(3, 8, 0x80, 0x7F, 0x80, 0x80, minus_zero=False),
    "bf8_fnuz": SmallFloat(2, 16, 0x80, 0x7F, 0x80, 0x80, minus_zero=False),
    "fp8_ocp": SmallFloat(3, 7, 0x80, 0x7E, 0x7F, 0x7F),
    "bf8_ocp": SmallFloat(2, 15, 0x80, 0x7B, 0x7C, 0x7E),
    # Without infinities and NaN: both become the largest number (HIP, amd_hip_ocp_host.hpp).
    "fp6_ocp": SmallFloat(3, 1, 0x20, 0x1F, 0x1F, 0x1F),
    "bf6_ocp": SmallFloat(2, 3, 0x20, 0x1F, 0x1F, 0x1F),
    "fp4_ocp": SmallFloat(1, 1, 0x08, 0x07, 0x07, 0x07),
}


def scale_of(x: Array) -> Array:
    """The exponent of an f32 is the scale; that of infinity and NaN makes everything NaN."""
    exponent = ((x.view(np.uint32) >> 23) & 0xFF).astype(np.int32)
    return np.where(exponent == 0xFF, np.nan, np.ldexp(1.0, exponent - 127))


def _divide(x: Array, scale: Array) -> Array:
    """Divide f32 by their scales. A NaN has the sign of x, too."""
    return np.copysign(x.astype(np.float64) / scale_of(scale), x)


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
            f"{name}_scaled{ending}": lambda x, scale, limit=limit: item.encode(_divide(x, scale), limit=limit),
            f"{name}_scaled_random{ending}": lambda x, random, scale, bits, limit=limit: item.encode_scaled_random(
                _divide(x, scale), random, bits, limit
            ),
        }
    return functions


def _make_dot(first: str, second: str) -> Function:
    left, right = (FORMATS[f"{kind}_ocp"].make_values().astype(np.float32) for kind in (first, second))

    def dot4(a: Array, b: Array, c: Array) -> Array:
        """Four products of bytes, which are exact, added one after the other, as AMD's pseudo-code does."""
        for place in (0, 8, 16, 24):
            c = c + left[(a >> place) & 0xFF] * right[(b >> place) & 0xFF]
        return c

    return dot4


SMALL_FUNCTIONS: dict[str, Function] = {
    "scale_of": scale_of,
    "next_random": next_random,
    **{f"dot4_f32_{a}_{b}": _make_dot(a, b) for a in ("fp8", "bf8") for b in ("fp8", "bf8")},
    **{name: function for kind, item in FORMATS.items() for name, function in _build_functions(kind, item).items()},
}
