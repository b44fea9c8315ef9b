"""Helpers of correctly rounded division: scale the operands, undo the scaling, handle special cases.

A compiler divides n by d with v_div_scale of both, Newton steps on v_rcp, v_div_fmas (a fused multiply-add that also
undoes the scaling if v_div_scale set the mask), and v_div_fixup.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.emulator.isa.fused import exact_fma, fma_f64, odd_fma_f32
from tilewright.emulator.isa.operation import Array, to_bits


@dataclass(frozen=True, slots=True)
class _Format:
    kind: type[Any]
    fraction: int  # bits
    top: int  # the exponent of infinity, biased
    far: int  # exponent of the quotient from which on it is near the largest number
    scale: int  # power of two by which operands are scaled
    tiny: int  # biased exponent up to which the numerator is tiny
    least: int  # quotients below this power of two round to zero


_FORMATS = {
    "f16": _Format(np.float16, 10, 0x1F, 0, 0, 0, 0),
    "f32": _Format(np.float32, 23, 0xFF, 96, 64, 23, -150),
    "f64": _Format(np.float64, 52, 0x7FF, 768, 128, 53, -1075),
}


def _exponent(x: Array, f: _Format) -> Array:
    return np.asarray((to_bits(x) >> f.fraction) & f.top, np.int64)


def _is_subnormal(x: Array, f: _Format) -> Array:
    values: Array = (_exponent(x, f) == 0) & (x != 0)
    return values


def _list_cases(d: Array, n: Array, f: _Format) -> list[Array]:
    """Return the cases that v_div_scale distinguishes; the first that holds applies."""
    inverse, quotient = f.kind(1) / d, n / d
    return [
        (n == 0) | (d == 0),
        _exponent(n, f) - _exponent(d, f) >= f.far,
        _is_subnormal(d, f),
        _is_subnormal(inverse, f) & _is_subnormal(quotient, f),
        _is_subnormal(inverse, f),
        _is_subnormal(quotient, f),
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
    return np.select(_list_cases(d, n, f), [False, True, False, True, False, True, False], False)


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
