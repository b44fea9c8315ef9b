"""Products and sums that are rounded once."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from tilewright.emulator.isa.operation import Array

_SPLITTER = 134217729.0  # 2**27 + 1: splits the 53 bits of a double in half (Dekker)
# Beyond these magnitudes a part of a product may overflow or lose bits; such lanes are computed one by one.
_LARGE, _SMALL = 2.0**480, 2.0**-480
_SINGLE_TAIL = np.uint64(0x1FFFFFFF)  # the bits of a double that f32 does not have
_SINGLE_TIE = np.uint64(0x10000000)  # half a step of f32
_SINGLE_SUBNORMAL = np.uint32(0x00FFFFFF)  # twice the bits of a subnormal f32, less one, are smaller


def fma_f32(a: Array, b: Array, c: Array) -> Array:
    """The product is exact in f64; the sum is not always. Ties between two f32 and subnormal results, which have fewer
    bits, then need correct rounding."""
    total = np.multiply(a, b, dtype=np.float64)
    total = np.add(total, c, out=total if total.shape == np.shape(c) else None)
    result = total.astype(np.float32)
    tails = total.view(np.uint64)
    tails &= _SINGLE_TAIL
    sizes = result.view(np.uint32) << 1
    sizes -= 1  # 0 becomes the largest number
    if (tails == _SINGLE_TIE).any() or (sizes < _SINGLE_SUBNORMAL).any():
        return odd_fma_f32(a, b, c).astype(np.float32)
    return result


def odd_fma_f32(a: Array, b: Array, c: Array) -> Array:
    """Return the sum in f64, rounded to odd: rounding it again to fewer bits gives the same as rounding once."""
    product = np.multiply(a, b, dtype=np.float64)
    wide = np.asarray(c, np.float64)
    return _sum_to_odd(product, wide, product + wide)


def fma_f16(a: Array, b: Array, c: Array) -> Array:
    """In f64 neither product nor sum loses a bit that affects f16."""
    return (np.multiply(a, b, dtype=np.float64) + c).astype(np.float16)


def fma_f64(a: Array, b: Array, c: Array) -> Array:
    a, b, c = np.broadcast_arrays(a, b, c)
    product, lost = _two_product(a, b)
    # Boldo and Melquiond: adding the parts with rounding to odd makes the last rounding correct.
    inner, inner_lost = _two_sum(c, lost)
    outer, outer_lost = _two_sum(product, inner)
    result = np.asarray(outer + _to_odd(inner_lost, outer_lost))
    extreme = ~(_is_ordinary(a) & _is_ordinary(b) & (_is_ordinary(c) | (c == 0)) & _is_ordinary(result))
    if extreme.any():
        result = result.copy()
        result[extreme] = [exact_fma(*lane) for lane in zip(a[extreme], b[extreme], c[extreme], strict=True)]
    return result


def _is_ordinary(x: Array) -> Array:
    size = np.abs(x)
    return (size < _LARGE) & (size > _SMALL)


def exact_fma(a: float, b: float, c: float, factor: float = 1.0) -> float:
    """Return (a·b + c)·factor of one lane, rounded once."""
    a, b, c = float(a), float(b), float(c)
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        # Only infinities and NaNs matter: the finite operands must not overflow in between.
        if math.isfinite(a) and math.isfinite(b):
            return c
        return a * b + c
    exact = (Fraction(a) * Fraction(b) + Fraction(c)) * Fraction(factor)
    if exact == 0:
        # Zeros keep their sign; cancellation gives +0.
        return math.copysign(0.0, a) * math.copysign(1.0, b) + c if a == 0 or b == 0 else 0.0
    sign = 1.0 if exact > 0 else -1.0
    try:
        return sign * abs(float(exact))
    except OverflowError:
        return sign * math.inf


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the sum and its rounding error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the product and its rounding error (Dekker)."""
    total = a * b
    high_a, high_b = a * _SPLITTER, b * _SPLITTER
    high_a, high_b = high_a - (high_a - a), high_b - (high_b - b)
    low_a, low_b = a - high_a, b - high_b
    return total, ((high_a * high_b - total) + high_a * low_b + low_a * high_b) + low_a * low_b


def _to_odd(a: Array, b: Array) -> Array:
    total, lost = _two_sum(a, b)
    return _round_to_odd(total, lost)


def _sum_to_odd(a: Array, b: Array, total: Array) -> Array:
    """Return a + b rounded to odd: the neighbour of an inexact sum whose last bit is set."""
    part = total - a
    return _round_to_odd(total, (a - (total - part)) + (b - part))


def _round_to_odd(total: Array, lost: Array) -> Array:
    """Move an even inexact sum one step towards the rounding error."""
    bits = total.view(np.int64)
    away = np.where((lost > 0) == (total > 0), 1, -1)
    change = (lost != 0) & ((bits & 1) == 0) & np.isfinite(total) & np.isfinite(lost) & (total != 0)
    return np.where(change, bits + away, bits).view(np.float64)
