"""Number formats of matrix instructions and conversions.

Floats below 32 bits and their scales are tables of f32, which represents all their values exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tilewright.arch.spec import Arch
from tilewright.base.errors import choose

U32 = NDArray[np.uint32]
F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """A number format. `dtype` is NumPy's type for it; None where there is none (4-bit integers)."""

    name: str
    bits: int
    dtype: Any
    integer: bool = False
    signed: bool = True


_ALL = (
    NumberFormat("f64", 64, np.float64),
    NumberFormat("f32", 32, np.float32),
    NumberFormat("f16", 16, np.float16),
    NumberFormat("bf16", 16, ml_dtypes.bfloat16),
    # fnuz: one NaN (0x80), no infinities, no negative zero, and a bias larger by one.
    NumberFormat("fp8_fnuz", 8, ml_dtypes.float8_e4m3fnuz),
    NumberFormat("bf8_fnuz", 8, ml_dtypes.float8_e5m2fnuz),
    # OCP 8-bit floating point specification: E4M3 has NaN but no infinities, E5M2 is like IEEE.
    NumberFormat("fp8_ocp", 8, ml_dtypes.float8_e4m3fn),
    NumberFormat("bf8_ocp", 8, ml_dtypes.float8_e5m2),
    # OCP microscaling formats: no NaN and no infinities below 8 bits.
    NumberFormat("fp6", 6, ml_dtypes.float6_e2m3fn),
    NumberFormat("bf6", 6, ml_dtypes.float6_e3m2fn),
    NumberFormat("fp4", 4, ml_dtypes.float4_e2m1fn),
    NumberFormat("e8m0", 8, ml_dtypes.float8_e8m0fnu),
    NumberFormat("i32", 32, np.int32, integer=True),
    NumberFormat("i8", 8, np.int8, integer=True),
    NumberFormat("u8", 8, np.uint8, integer=True, signed=False),
    NumberFormat("i4", 4, None, integer=True),
    NumberFormat("u4", 4, None, integer=True, signed=False),
)

FORMATS: Mapping[str, NumberFormat] = {item.name: item for item in _ALL}


def find_format(name: str, arch: Arch) -> NumberFormat:
    """Return the format with that name on a GPU: "fp8" and "bf8" depend on the GPU's encoding."""
    return FORMATS[choose("number format", arch.resolve_dtype(name), FORMATS)]


@cache
def make_value_table(name: str, flush: bool = False) -> F32:
    """Return the value of every bit pattern of a float format of at most 16 bits. `flush`: subnormals become zero."""
    item = FORMATS[name]
    codes = np.arange(1 << item.bits, dtype=np.uint16 if item.bits > 8 else np.uint8)
    with np.errstate(all="ignore"):
        values = codes.view(item.dtype).astype(np.float32)
    if flush:
        least = _get_limits(item).smallest_normal
        values = np.where(np.abs(values) < least, np.copysign(np.float32(0), values), values)
    values.flags.writeable = False
    return values  # type: ignore[no-any-return]


def _get_limits(item: NumberFormat) -> Any:
    return ml_dtypes.finfo(item.dtype)  # type: ignore[no-untyped-call]


def encode(values: NDArray[Any], item: NumberFormat, saturate: bool = False) -> NDArray[Any]:
    """Encode numbers as bit patterns, rounded to nearest even.

    Numbers that are too large become infinity, or NaN in formats without infinity; with `saturate` they become the
    largest number. Formats without NaN have no pattern for it: the caller must prevent that case.
    """
    if saturate:
        largest = float(_get_limits(item).max)
        # Only finite numbers saturate; infinities stay.
        values = np.where(np.isfinite(values), np.clip(values, -largest, largest), values)
    with np.errstate(all="ignore"):
        return values.astype(item.dtype).view(np.uint16 if item.bits > 8 else np.uint8)


def unpack(registers: U32, item: NumberFormat, flush: bool = False) -> NDArray[Any]:
    """Convert registers [registers, waves, lanes] to numbers [waves, elements, lanes], from the lowest bits up.

    Floats of at most 32 bits and integers of at most 8 bits become f32, which is exact; f64 and i32 keep their type.
    """
    count, waves, lanes = registers.shape
    elements = count * 32 // item.bits
    if item.bits == 64:
        pairs = np.ascontiguousarray(registers.transpose(1, 0, 2).reshape(waves, elements, 2, lanes).swapaxes(2, 3))
        return pairs.view(np.float64)[..., 0]
    if item.bits == 32:
        return np.ascontiguousarray(registers.transpose(1, 0, 2)).view(item.dtype)
    if item.name == "bf16" and not flush:
        return _expand_bf16(registers)
    if item.name == "i8":
        parts = np.ascontiguousarray(_split_parts(registers.view(np.int8), lanes)).astype(np.float32)
        return parts.reshape(waves, elements, lanes)
    codes = _extract_codes(registers, item.bits)
    values = _to_integers(codes, item) if item.integer else make_value_table(item.name, flush).take(codes)
    return values.reshape(waves, elements, lanes)


def _split_parts(narrow: NDArray[Any], lanes: int) -> NDArray[Any]:
    """View registers as narrower elements, reordered: [waves, registers, elements of a register, lanes]."""
    count, waves, _ = narrow.shape
    return narrow.reshape(count, waves, lanes, -1).transpose(1, 0, 3, 2)


def _expand_bf16(registers: U32) -> F32:
    """Convert bf16 to f32: bf16 is the upper half of an f32."""
    count, waves, lanes = registers.shape
    words = np.zeros((waves, 2 * count, lanes, 2), dtype=np.uint16)
    words.reshape(waves, count, 2, lanes, 2)[..., 1] = _split_parts(registers.view(np.uint16), lanes)
    return words.view(np.float32)[..., 0]


def _extract_codes(registers: U32, bits: int) -> NDArray[Any]:
    """Return the bit patterns of all elements: [waves, registers, elements of a register, lanes]; 6-bit ones flat."""
    count, _, lanes = registers.shape
    if bits in (8, 16):
        # take() converts indices to this type anyway; doing it here saves a copy.
        return _split_parts(registers.view(np.uint16 if bits == 16 else np.uint8), lanes).astype(np.intp)
    if bits == 4:
        shifts = np.arange(0, 32, 4, dtype=np.uint32)[:, None]
        return (registers.transpose(1, 0, 2)[:, :, None, :] >> shifts & np.uint32(15)).astype(np.intp)
    # 6-bit elements cross register boundaries.
    words = np.concatenate([registers, np.zeros_like(registers[:1])]).astype(np.uint64)
    starts = range(0, count * 32, bits)
    both = [(words[at // 32] | words[at // 32 + 1] << np.uint64(32)) >> np.uint64(at % 32) for at in starts]
    return (np.stack(both, axis=1) & np.uint64(63)).astype(np.intp)


def _to_integers(codes: NDArray[Any], item: NumberFormat) -> F32:
    if item.signed:
        half = 1 << (item.bits - 1)
        codes = (codes ^ half) - half
    return codes.astype(np.float32)


def flush_subnormal(values: F32) -> F32:
    """Replace subnormal numbers by zeros of the same sign. Returns the same array if it has none."""
    bits = values.view(np.uint32)
    # Without the sign and minus 1, subnormal numbers are the smallest values and zeros the largest.
    magnitudes = bits << np.uint32(1)
    magnitudes -= np.uint32(1)
    if magnitudes.min() >= np.uint32(0x00FFFFFF):
        return values
    kept = np.where(bits & np.uint32(0x7F800000), bits, bits & np.uint32(0x80000000))
    return kept.view(np.float32)
