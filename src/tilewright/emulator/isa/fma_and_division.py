"""Fused multiply-add and correctly rounded division, whose helpers scale the operands, undo the scaling and handle
special cases.

A compiler divides n by d with v_div_scale of both, Newton steps on v_rcp, v_div_fmas (a fused multiply-add that also
undoes the scaling if v_div_scale set the mask), and v_div_fixup.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tilewright.emulator.isa.operation import Array, to_bits

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


@dataclass(frozen=True, slots=True)
class _Format:
    kind: type[Any]
    fraction: int  # bits
    top: int  # the exponent of infinity, biased
    far: int  # exponent of the quotient from which on it is near the largest number
    scale: int  # power of two by which operands are scaled
    tiny: int  # biased exponent up to which the numerator is tiny
    least: int  # quotients below this power of two round to zero
    small: int  # difference of exponents up to which a quotient may be subnormal


_FORMATS = {
    "f16": _Format(np.float16, 10, 0x1F, 0, 0, 0, 0, 0),
    "f32": _Format(np.float32, 23, 0xFF, 96, 64, 23, -150, -126),
    "f64": _Format(np.float64, 52, 0x7FF, 768, 128, 53, -1075, -1022),
}


def _exponent(x: Array, f: _Format) -> Array:
    return np.asarray((to_bits(x) >> f.fraction) & f.top, np.int64)


def _is_subnormal(x: Array, f: _Format) -> Array:
    values: Array = (_exponent(x, f) == 0) & (x != 0)
    return values


def _list_cases(d: Array, n: Array, f: _Format) -> list[Array]:
    """Return the cases that v_div_scale distinguishes; the first that holds applies.

    They are those of AMD's pseudo-code, but for what gfx1100 does instead: it sets the mask also for zero operands, and
    takes a quotient as subnormal that may be so by the exponents alone.
    """
    inverse, quotient = f.kind(1) / d, n / d
    return [
        (n == 0) | (d == 0),
        _exponent(n, f) - _exponent(d, f) >= f.far,
        _is_subnormal(d, f),
        _is_subnormal(inverse, f) & _is_subnormal(quotient, f),
        _is_subnormal(inverse, f),
        _is_subnormal(quotient, f) | (_exponent(n, f) - _exponent(d, f) <= f.small),
        _exponent(n, f) <= f.tiny,
    ]


def _scale(x: Array, d: Array, n: Array, f: _Format) -> Array:
    x, d, n = np.broadcast_arrays(x, d, n)
    up, down = x * f.kind(2.0**f.scale), x * f.kind(2.0**-f.scale)
    is_d, is_n = x == d, x == n
    values = [
        np.full(x.shape, np.nan, x.dtype),
        np.where(is_d, up, x),
        up,
        np.where(is_d, down, x),
        down,
        np.where(is_n, up, x),
        up,
    ]
    return np.select(_list_cases(d, n, f), values, x)


def _needs_scaling(d: Array, n: Array, f: _Format) -> Array:
    """Whether v_div_fmas has to scale the quotient."""
    d, n = np.broadcast_arrays(d, n)
    return np.select(_list_cases(d, n, f), [True, True, False, True, False, True, False], False)


def div_scale_f32(x: Array, d: Array, n: Array) -> Array:
    return _scale(x, d, n, _FORMATS["f32"])


def div_scale_f64(x: Array, d: Array, n: Array) -> Array:
    return _scale(x, d, n, _FORMATS["f64"])


def div_scaled_f32(_x: Array, d: Array, n: Array) -> Array:
    return _needs_scaling(d, n, _FORMATS["f32"])


def div_scaled_f64(_x: Array, d: Array, n: Array) -> Array:
    return _needs_scaling(d, n, _FORMATS["f64"])


def div_fmas_f32(a: Array, b: Array, c: Array, scaled: Array) -> Array:
    """Sum and scaling are rounded once, also to a subnormal number: the sum in f64 is rounded to odd, so it can be
    scaled and rounded as if it were exact."""
    factor = np.where(_exponent(c, _FORMATS["f32"]) > 127, 2.0**64, 2.0**-64)
    return (odd_fma_f32(a, b, c) * np.where(scaled, factor, 1.0)).astype(np.float32)


def div_fmas_f64(a: Array, b: Array, c: Array, scaled: Array) -> Array:
    a, b, c, scaled = np.broadcast_arrays(a, b, c, scaled)
    factor = np.where(_exponent(c, _FORMATS["f64"]) > 1023, 2.0**128, 2.0**-128)
    total = fma_f64(a, b, c)
    result = np.where(scaled, total * factor, total)
    # These would be rounded twice (subnormal results), or are out of range in between.
    twice = scaled & ((np.abs(result) < 2.0**-1021) | np.isinf(total))
    if twice.any():
        lanes = zip(a[twice], b[twice], c[twice], factor[twice], strict=True)
        result[twice] = [exact_fma(*map(float, lane)) for lane in lanes]
    return result


def _fixup(q: Array, d: Array, n: Array, f: _Format) -> Array:
    """Return the quotient q of n by d with the correct sign, and the results for zero, infinity and NaN."""
    q, d, n = np.broadcast_arrays(q, d, n)
    sign = np.where(np.signbit(d) ^ np.signbit(n), f.kind(-1), f.kind(1))
    endless = sign * f.kind(np.inf)
    nothing = sign * f.kind(0)
    cases = [
        (np.isnan(n), n),
        (np.isnan(d), d),
        (((d == 0) & (n == 0)) | (np.isinf(d) & np.isinf(n)), np.full(q.shape, np.nan, q.dtype)),
        ((d == 0) | np.isinf(n), endless),
        (np.isinf(d) | (n == 0), nothing),
    ]
    if f.least:
        cases += [(_exponent(n, f) - _exponent(d, f) < f.least, nothing), (np.isnan(q), endless)]
    return np.select([case for case, _ in cases], [value for _, value in cases], sign * np.abs(q))


def div_fixup_f16(q: Array, d: Array, n: Array) -> Array:
    return _fixup(q, d, n, _FORMATS["f16"])


def div_fixup_f32(q: Array, d: Array, n: Array) -> Array:
    return _fixup(q, d, n, _FORMATS["f32"])


def div_fixup_f64(q: Array, d: Array, n: Array) -> Array:
    return _fixup(q, d, n, _FORMATS["f64"])
