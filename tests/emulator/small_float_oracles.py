"""Floats of 4, 6 and 8 bits as exact fractions: decoding, rounding to the nearest, and random rounding.

Random rounding is that of AMD's HIP (amd_hip_ocp_host.hpp, from_float_sr), which AMD's ISA manuals do not define.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np


@dataclass(frozen=True)
class Format:
    exponent_bits: int
    fraction_bits: int
    bias: int
    special: int  # codes at the end that are no numbers
    beyond: int  # what a number becomes that is too large
    nan: int

    @property
    def sign(self) -> int:
        return 1 << self.exponent_bits + self.fraction_bits

    def decode(self, code: int) -> float:
        """The number of a code; not of infinities and NaN."""
        exponent, part = code % self.sign >> self.fraction_bits, code & ((1 << self.fraction_bits) - 1)
        whole = part + (1 << self.fraction_bits if exponent else 0)
        size = math.ldexp(whole, max(exponent, 1) - self.bias - self.fraction_bits)
        return math.copysign(size, -1 if code & self.sign else 1)


@cache
def list_codes(kind: str) -> dict[float, int]:
    """The codes of all numbers that are not negative."""
    made = FORMATS[kind]
    return {made.decode(code): code for code in range(made.sign - made.special)}


FORMATS = {
    "fp8": Format(4, 3, 7, 1, 0x7F, 0x7F),
    "bf8": Format(5, 2, 15, 4, 0x7C, 0x7E),
    "fp6": Format(2, 3, 1, 0, 0x1F, 0x1F),
    "bf6": Format(3, 2, 3, 0, 0x1F, 0x1F),
    "fp4": Format(2, 1, 1, 0, 0x07, 0x07),
}
# Bits of the fraction of the numbers that are rounded.
SOURCE_BITS = {"f32": 23, "f16": 10, "bf16": 7}


def read_scale(bits: int) -> Fraction | None:
    """The scale in an f32: its exponent; None for infinity and NaN."""
    exponent = bits >> 23 & 0xFF
    return None if exponent == 0xFF else Fraction(2) ** (exponent - 127)


def find_exponent(size: Fraction) -> int:
    """The exponent of a number whose denominator is a power of two."""
    return size.numerator.bit_length() - size.denominator.bit_length()


def encode(value: float, scale: Fraction | None, kind: str, random: int | None = None, source: str = "f32") -> int:
    """The code of a number divided by a scale: the nearest one, or with a random number, rounded by it."""
    made = FORMATS[kind]
    sign = made.sign if math.copysign(1, value) < 0 else 0
    if math.isnan(value) or scale is None:
        return sign | made.nan
    if math.isinf(value):
        return sign | made.beyond
    size = abs(Fraction(value)) / scale
    if not size:
        return sign
    exponent = max(find_exponent(size), 1 - made.bias)
    unit = Fraction(2) ** (exponent - made.fraction_bits)
    if random is None:
        rounded = round(size / unit) * unit  # Python rounds to even
    else:
        bits = SOURCE_BITS[source]
        whole = math.floor(size / Fraction(2) ** (exponent - bits)) + (random >> (32 - bits + made.fraction_bits))
        rounded = (whole >> (bits - made.fraction_bits)) * unit
    codes = list_codes(kind)
    return sign | (codes[float(rounded)] if rounded <= max(codes) else made.beyond)


def next_random(seed: int) -> int:
    """What v_prng_b32 makes of a number."""
    return (seed << 1 ^ (197 if seed >> 31 else 0)) & 0xFFFFFFFF


def read_numbers(words: np.ndarray, source: str) -> np.ndarray:
    """Registers as numbers of a type, the lower half first, as f64: one column for each number."""
    words = np.ascontiguousarray(words, np.uint32)
    if source == "f32":
        return words.view(np.float32).astype(np.float64)[:, None]
    halves = words.view(np.uint16).reshape(-1, 2)
    if source == "f16":
        return halves.view(np.float16).astype(np.float64)
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def make_words(numbers: np.ndarray, source: str) -> np.ndarray:
    """Numbers as registers of a type: f32, or two halves; of the latter, the second dimension is the half."""
    singles = np.asarray(numbers, np.float32)
    if source == "f32":
        return singles.view(np.uint32)
    with np.errstate(over="ignore"):
        halves = singles.astype(np.float16).view(np.uint16)
    if source == "bf16":
        halves = (singles.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return np.ascontiguousarray(halves).view(np.uint32)[..., 0]
