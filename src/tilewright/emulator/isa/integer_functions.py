"""Integers: bit fields, counts, saturation. The arrays have the source types of the table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.emulator.isa.operation import Array

_NONE = np.uint32(0xFFFFFFFF)  # result of bit searches that find none


def popcount32(x: Array) -> Array:
    return np.bitwise_count(x).astype(np.uint32)


popcount64 = popcount32


def _swap_bits(x: Array, shift: int, mask: int) -> Array:
    return ((x >> shift) & mask) | ((x & mask) << shift)


def reverse32(x: Array) -> Array:
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F)):
        x = _swap_bits(x, shift, mask)
    return np.asarray(x).byteswap()


def reverse64(x: Array) -> Array:
    for shift, mask in ((1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F)):
        x = _swap_bits(x, shift, mask)
    return np.asarray(x).byteswap()


def first_one32(x: Array) -> Array:
    """Return the index of the lowest set bit."""
    return np.where(x == 0, _NONE, popcount32(~x & (x - 1)))


first_one64 = first_one32


def leading32(x: Array) -> Array:
    """Return the number of leading zeros."""
    size = 8 * x.dtype.itemsize
    for shift in (1, 2, 4, 8, 16, 32)[: 5 if size == 32 else 6]:
        x = x | (x >> shift)
    return np.where(x == 0, _NONE, size - popcount32(x))


leading64 = leading32


def leading_sign32(x: Array) -> Array:
    """Return the number of leading bits that are equal to the sign."""
    sign = x.dtype.type(8 * x.dtype.itemsize - 1)
    return leading32(x ^ (0 - (x >> sign)))


leading_sign64 = leading_sign32


def bfe_u32(x: Array, offset: Array, width: Array) -> Array:
    """Extract `width` bits from bit `offset` on."""
    mask = (np.uint64(1) << np.minimum(width, 32).astype(np.uint64)) - 1
    return ((x >> offset) & mask).astype(np.uint32)


def bfe_i32(x: Array, offset: Array, width: Array) -> Array:
    return _extend_sign(x.astype(np.int64) >> offset.astype(np.int64), width).astype(np.int32)


def bfe_u64(x: Array, offset: Array, width: Array) -> Array:
    count = width.astype(np.uint64)
    shifted = x >> offset.astype(np.uint64)
    return np.where(count >= 64, shifted, shifted & ((np.uint64(1) << np.minimum(count, 63)) - 1))


def bfe_i64(x: Array, offset: Array, width: Array) -> Array:
    return _extend_sign(x >> offset.astype(np.int64), width)


def _extend_sign(x: Array, width: Array) -> Array:
    """Return the lowest `width` bits as a signed number."""
    shift = 64 - np.clip(width, 1, 64).astype(np.int64)
    return np.where(width == 0, 0, (x << shift) >> shift)


def signed24(x: Array) -> Array:
    return (x << 8).view(np.int32) >> 8


def _any_of_four(x: Array) -> Array:
    """Return the lowest bit of each group of four bits, set if one of the group is."""
    values: Array = (x | (x >> 1) | (x >> 2) | (x >> 3)) & np.uint64(0x1111111111111111)
    return values


def quadmask64(x: Array) -> Array:
    groups = _any_of_four(x)
    result: Array = np.zeros_like(groups)
    for k in range(16):
        result |= ((groups >> (4 * k)) & 1) << k
    return result


def quadmask32(x: Array) -> Array:
    return quadmask64(x.astype(np.uint64)).astype(np.uint32)


def wqm64(x: Array) -> Array:
    return _any_of_four(x) * np.uint64(15)


def wqm32(x: Array) -> Array:
    return wqm64(x.astype(np.uint64)).astype(np.uint32)


def replicate_bits(x: Array) -> Array:
    """Repeat every bit."""
    wide: Array = x.astype(np.uint64)
    for shift, mask in (
        (16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F), (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):  # fmt: skip
        wide = (wide | (wide << shift)) & mask
    values: Array = wide | (wide << 1)
    return values


def byte_permute(a: Array, b: Array, selector: Array) -> Array:
    """Each byte of the selector selects a byte of a:b (b is the lower half), a sign, zero or all ones."""
    both = (a.astype(np.uint64) << 32) | b
    result = np.zeros(np.broadcast_shapes(a.shape, b.shape, selector.shape), np.uint32)
    for place in (0, 8, 16, 24):
        pick = (selector >> place) & 0xFF
        byte = ((both >> (np.minimum(pick, 7).astype(np.uint64) * 8)) & 0xFF).astype(np.uint32)
        if (pick > 7).any():
            # 8 to 11: the sign of the halves of b and a; 12: zero; larger: all ones.
            sign = (both >> (np.clip(pick, 8, 11).astype(np.uint64) * 16 - 113)) & 1
            byte = np.where(pick < 8, byte, np.where(pick < 12, sign.astype(np.uint32) * 255, (pick > 12) * 255))
        result |= byte.astype(np.uint32) << place
    return result


def pack16(low: Array, high: Array) -> Array:
    return low.astype(np.uint32) | (high.astype(np.uint32) << 16)


def pack8(low: Array, high: Array) -> Array:
    return low.astype(np.uint16) | (high.astype(np.uint16) << 8)


def saturate_u32(x: Array) -> Array:
    return np.clip(x, 0, 0xFFFFFFFF).astype(np.uint32)


def saturate_i32(x: Array) -> Array:
    return np.clip(x, -0x80000000, 0x7FFFFFFF).astype(np.int32)


def saturate_u16(x: Array) -> Array:
    return np.clip(x, 0, 0xFFFF).astype(np.uint16)


def saturate_i16(x: Array) -> Array:
    return np.clip(x, -0x8000, 0x7FFF).astype(np.int16)


def overflow_i64(a: Array, b: Array, total: Array) -> Array:
    """Whether the sum of a and b has the wrong sign."""
    return np.less(~(a ^ b) & (a ^ total), 0)


def sad_u16(a: Array, b: Array, c: Array) -> Array:
    return c + _compute_difference(a, b, 0, 0xFFFF) + _compute_difference(a, b, 16, 0xFFFF)


def sad_u8(a: Array, b: Array, c: Array) -> Array:
    """Return the sum of c and the absolute differences of the four bytes."""
    return c + sum(_compute_difference(a, b, place, 0xFF) for place in (0, 8, 16, 24))


def msad_u8(a: Array, b: Array, c: Array) -> Array:
    """Same as `sad_u8`, but only where the byte of b is not 0."""
    parts = [
        np.where((b >> place) & 0xFF, _compute_difference(a, b, place, 0xFF), np.uint32(0)) for place in (0, 8, 16, 24)
    ]
    return c + sum(parts)


def qsad_u8(a: Array, b: Array, c: Array) -> Array:
    return _sum_four(sad_u8, a, b, c)


def mqsad_u8(a: Array, b: Array, c: Array) -> Array:
    return _sum_four(msad_u8, a, b, c)


def _sum_four(function: Callable[[Array, Array, Array], Array], a: Array, b: Array, c: Array) -> Array:
    """Return four sums of 16 bits, each for four bytes of a, one byte further on."""
    result: Array = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.uint64)
    for k in range(4):
        part = function((a >> (8 * k)).astype(np.uint32), b, ((c >> (16 * k)) & 0xFFFF).astype(np.uint32))
        result |= (part & 0xFFFF).astype(np.uint64) << (16 * k)
    return result


def _compute_difference(a: Array, b: Array, place: int, mask: int) -> Array:
    x, y = (a >> place) & mask, (b >> place) & mask
    values: Array = np.maximum(x, y) - np.minimum(x, y)
    return values


def lerp_u8(a: Array, b: Array, c: Array) -> Array:
    """Return the mean of each pair of bytes, rounded up where the byte of c is odd."""
    total = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.uint32)
    for place in (0, 8, 16, 24):
        mean = (((a >> place) & 0xFF) + ((b >> place) & 0xFF) + ((c >> place) & 1)) >> 1
        total |= mean << place
    return total


def _dot(a: Array, b: Array, size: int, signs: str) -> Array:
    total: Array = np.zeros(np.broadcast_shapes(a.shape, b.shape), np.int64)
    for place in range(0, 32, size):
        total = total + _extract_element(a, place, size, signs[0]) * _extract_element(b, place, size, signs[1])
    return total


def _extract_element(x: Array, place: int, size: int, sign: str) -> Array:
    element = ((x >> place) & ((1 << size) - 1)).astype(np.int64)
    half = 1 << (size - 1)
    return (element ^ half) - half if sign == "i" else element


def dot_i8(a: Array, b: Array, c: Array) -> Array:
    return (_dot(a, b, 8, "ii") + c).astype(np.int32)


def dot_u8(a: Array, b: Array, c: Array) -> Array:
    return (_dot(a, b, 8, "uu") + c).astype(np.uint32)


def dot_i4(a: Array, b: Array, c: Array) -> Array:
    return (_dot(a, b, 4, "ii") + c).astype(np.int32)


def dot_u4(a: Array, b: Array, c: Array) -> Array:
    return (_dot(a, b, 4, "uu") + c).astype(np.uint32)


def dot_ii8(a: Array, b: Array, c: Array) -> Array:
    return (_dot(a, b, 8, "ii") + c).astype(np.int32)


def dot_iu8(a: Array, b: Array, c: Array) -> Array:
    return (_dot(a, b, 8, "iu") + c).astype(np.int32)


def dot_ui8(a: Array, b: Array, c: Array) -> Array:
    return (_dot(a, b, 8, "ui") + c).astype(np.int32)


def dot_uu8(a: Array, b: Array, c: Array) -> Array:
    return (_dot(a, b, 8, "uu") + c).astype(np.int32)


def dot_ii4(a: Array, b: Array, c: Array) -> Array:
    return (_dot(a, b, 4, "ii") + c).astype(np.int32)


def dot_iu4(a: Array, b: Array, c: Array) -> Array:
    return (_dot(a, b, 4, "iu") + c).astype(np.int32)


def dot_ui4(a: Array, b: Array, c: Array) -> Array:
    return (_dot(a, b, 4, "ui") + c).astype(np.int32)


def dot_uu4(a: Array, b: Array, c: Array) -> Array:
    return (_dot(a, b, 4, "uu") + c).astype(np.int32)


def dot2_i32_i16(a: Array, b: Array, c: Array) -> Array:
    return (_dot(a, b, 16, "ii") + c).astype(np.int32)


def dot2_u32_u16(a: Array, b: Array, c: Array) -> Array:
    return (_dot(a, b, 16, "uu") + c).astype(np.uint32)
