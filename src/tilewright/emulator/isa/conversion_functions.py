"""Conversions that are more than a cast: saturation, other rounding modes, small floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.emulator.isa.operation import Array


def _to_integer(x: Array, low: int, high: int, kind: type[Any]) -> Array:
    """Round towards zero; out of range becomes the nearest limit, NaN becomes 0."""
    inside = np.clip(np.trunc(x), low, high)
    return np.where(np.isnan(x), 0, inside).astype(np.int64).astype(kind)


def f64_to_u32(x: Array) -> Array:
    return _to_integer(x, 0, 0xFFFFFFFF, np.uint32)


def f64_to_i32(x: Array) -> Array:
    return _to_integer(x, -0x80000000, 0x7FFFFFFF, np.int32)


def f64_to_u16(x: Array) -> Array:
    return _to_integer(x, 0, 0xFFFF, np.uint16)


def f64_to_i16(x: Array) -> Array:
    return _to_integer(x, -0x8000, 0x7FFF, np.int16)


def norm_f64(x: Array, scale: float) -> Array:
    """Scale from -1 … 1 to -scale … scale."""
    return np.rint(np.clip(x.astype(np.float64), -1, 1) * scale)


def f16_toward_zero(x: Array) -> Array:
    """Return the bits of x as f16, rounded towards zero."""
    near = x.astype(np.float16)
    beyond = np.abs(near.astype(np.float32)) > np.abs(x)
    return near.view(np.uint16) - beyond.astype(np.uint16)


def bf16_of_f32(x: Array) -> Array:
    """Return the bits of the nearest bf16, ties to even."""
    bits = x.view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(x), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def f32_of_bf16(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _split_halves(x: Array) -> tuple[Array, Array]:
    return x.astype(np.uint16), (x >> 16).astype(np.uint16)


def dot2_f32_f16(a: Array, b: Array, c: Array) -> Array:
    """Both products are exact in f64, and so is their sum except for the last bits."""
    (a0, a1), (b0, b1) = _split_halves(a), _split_halves(b)
    first = a0.view(np.float16).astype(np.float64) * b0.view(np.float16)
    return (first + a1.view(np.float16).astype(np.float64) * b1.view(np.float16) + c).astype(np.float32)


def dot2_f32_bf16(a: Array, b: Array, c: Array) -> Array:
    (a0, a1), (b0, b1) = _split_halves(a), _split_halves(b)
    first = f32_of_bf16(a0).astype(np.float64) * f32_of_bf16(b0)
    return (first + f32_of_bf16(a1).astype(np.float64) * f32_of_bf16(b1) + c).astype(np.float32)


def _make_small_float(kind: type[Any], fraction: int) -> tuple[Callable[..., Array], ...]:
    """Return functions for an 8-bit float with that many fraction bits: encode (ties to even), decode, and encode with
    stochastic rounding. Too large numbers become infinity, or NaN if the format has no infinity: nothing saturates,
    because MODE.FP16_OVFL is not set."""
    table = np.arange(256, dtype=np.uint8).view(kind).astype(np.float32)
    dropped = 23 - fraction
    minus_zero = bool(table[0x80] == 0)
    largest = float(table[np.isfinite(table)].max())
    step = largest - float(np.nextafter(np.array(largest, kind), np.array(0, kind)))

    def encode(x: Array) -> Array:
        return np.asarray(np.ascontiguousarray(x, np.float32).astype(kind).view(np.uint8))

    def decode(code: Array) -> Array:
        return np.take(table, code)

    def encode_random(x: Array, random: Array) -> Array:
        """Add random bits below the last kept bit, then truncate."""
        x, random = np.broadcast_arrays(x, random)
        bits = np.ascontiguousarray(x).view(np.uint32)
        moved = np.where(np.isfinite(x), bits + (random >> (32 - dropped)), bits).view(np.float32)
        code = encode(np.where((np.abs(moved) > largest) & (np.abs(moved) < largest + step), largest, np.abs(moved)))
        code = code - (np.isfinite(table[code]) & (table[code] > np.abs(moved))).astype(np.uint8)
        values: Array = np.where(np.signbit(x) & ((code != 0) | minus_zero), code | 0x80, code)
        return values

    return encode, decode, encode_random


def _build_small_functions() -> dict[str, Callable[..., Array]]:
    kinds: dict[str, tuple[type[Any], int]] = {
        "fp8_fnuz": (ml_dtypes.float8_e4m3fnuz, 3),
        "bf8_fnuz": (ml_dtypes.float8_e5m2fnuz, 2),
        "fp8_ocp": (ml_dtypes.float8_e4m3fn, 3),
        "bf8_ocp": (ml_dtypes.float8_e5m2, 2),
    }
    functions: dict[str, Callable[..., Array]] = {}
    for name, (kind, fraction) in kinds.items():
        encode, decode, encode_random = _make_small_float(kind, fraction)
        functions |= {f"{name}_of_f32": encode, f"f32_of_{name}": decode, f"{name}_random": encode_random}
    return functions


SMALL_FUNCTIONS: dict[str, Callable[..., Array]] = _build_small_functions()
