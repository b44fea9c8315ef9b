"""What single instructions compute, in integers and fractions, after the pseudo-code of AMD's ISA manuals.

Operands and results are bits. Nothing here uses the emulator or NumPy's arithmetic, but for the logarithm and the
reciprocal square root, which AMD allows to be one unit in the last place apart.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction

WORD = 2**32
LONG = 2**64


def signed(value: int, bits: int = 32) -> int:
    """The number in two's complement."""
    half = 1 << bits - 1
    return (value & 2 * half - 1 ^ half) - half


def to_float(bits: int, code: str = "f") -> float:
    """A float from its bits; `code` is that of the struct module."""
    return struct.unpack(code, bits.to_bytes(struct.calcsize(code), "little"))[0]


def to_bits(value: float, code: str = "f") -> int:
    return int.from_bytes(struct.pack(code, value), "little")


def round_float(exact: Fraction, code: str = "f") -> float:
    """The nearest float, to even in the middle. (A sum that is exactly 0 has its sign from elsewhere.)"""
    mantissa, least, most = {"e": (11, -24, 65504), "f": (24, -149, (2**24 - 1) * 2**104)}[code]
    if not exact:
        return 0.0
    size = abs(exact)
    exponent = math.floor(math.log2(size.numerator)) - math.floor(math.log2(size.denominator)) - mantissa
    while size / Fraction(2) ** exponent >= 2**mantissa:
        exponent += 1
    exponent = max(exponent, least)
    rounded = round(size / Fraction(2) ** exponent) * Fraction(2) ** exponent  # Python rounds to even
    value = math.inf if rounded > most else float(rounded)
    return math.copysign(value, -1.0 if exact < 0 else 1.0)


def is_special(*values: float) -> bool:
    return any(math.isnan(value) or math.isinf(value) for value in values)


def fuse(a: float, b: float, c: float) -> float:
    """a·b + c, rounded once to f32."""
    if is_special(a, b, c):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not exact:  # -0 only if both are
        return a * b + c
    return round_float(exact)


def largest(a: float, b: float) -> float:
    return b if math.isnan(a) else a if math.isnan(b) else max(a, b)


def smallest(a: float, b: float) -> float:
    return b if math.isnan(a) else a if math.isnan(b) else min(a, b)


def order(a: float, b: float) -> str:
    return "u" if math.isnan(a) or math.isnan(b) else "<" if a < b else ">" if a > b else "="


def extract(value: int, field: int, bits: int) -> int:
    """A field with its sign: bits 0 to 5 (or 4) of `field` are its offset, bits 16 to 22 its width."""
    offset, width = field % bits, field >> 16 & 127
    part = signed(value, bits) >> offset
    return signed(part, width) if 0 < width < bits else part if width else 0


def compare_floats(orders: str) -> Callable[[int, int], bool]:
    return lambda a, b: order(to_float(a), to_float(b)) in orders


# Scalar instructions: source operands in s[20:21] and s[22:23], result in s[24:25], whose bits before are the third
# value. The expected result, and the carry (None: it does not change).
Scalar = Callable[[int, int, int], tuple[int, bool | None]]


def flag(value: int, bits: int = 32) -> tuple[int, bool]:
    """A result whose carry says that it is not 0."""
    value %= 1 << bits
    return value, value != 0


def low(function: Callable[[int, int], int]) -> Scalar:
    """A result of 32 bits from operands of 32 bits, without a carry."""
    return lambda a, b, d: (d & ~(WORD - 1) | function(a % WORD, b % WORD) % WORD, None)


def low_float(function: Callable[[float, float, float], float]) -> Scalar:
    def expect(a: int, b: int, d: int) -> tuple[int, None]:
        value = function(*(to_float(each % WORD) for each in (a, b, d)))
        return d & ~(WORD - 1) | to_bits(value), None

    return expect


def flagged_low(function: Callable[[int, int], tuple[int, bool]]) -> Scalar:
    def expect(a: int, b: int, d: int) -> tuple[int, bool]:
        value, carry = function(a % WORD, b % WORD)
        return d & ~(WORD - 1) | value % WORD, carry

    return expect


def convert_to_u32(value: float) -> int:
    return (
        0
        if math.isnan(value)
        else min(max(math.trunc(value), 0), WORD - 1)
        if not math.isinf(value)
        else (WORD - 1 if value > 0 else 0)
    )


def truncate(value: float) -> float:
    return value if is_special(value) else math.copysign(float(math.trunc(value)), value)


def multiply(a: float, b: float) -> float:
    return a * b if is_special(a, b) or not a or not b else round_float(Fraction(a) * Fraction(b))


SCALAR: dict[str, Scalar] = {
    "s_bfe_i64 s[24:25], s[20:21], s22": lambda a, b, _: flag(extract(a, b % WORD, 64), 64),
    "s_bfe_i32 s24, s20, s22": flagged_low(lambda a, b: flag(extract(a, b, 32))),
    "s_ashr_i64 s[24:25], s[20:21], s22": lambda a, b, _: flag(signed(a, 64) >> b % 64, 64),
    "s_lshr_b64 s[24:25], s[20:21], s22": lambda a, b, _: flag(a >> b % 64, 64),
    "s_cmp_lg_u64 s[20:21], s[22:23]": lambda a, b, d: (d, a != b),
    "s_min_u32 s24, s20, s22": flagged_low(lambda a, b: (min(a, b), a < b)),
    "s_lshl3_add_u32 s24, s20, s22": flagged_low(lambda a, b: (8 * a + b, 8 * a + b >= WORD)),
    "s_lshl4_add_u32 s24, s20, s22": flagged_low(lambda a, b: (16 * a + b, 16 * a + b >= WORD)),
    "s_sext_i32_i16 s24, s20": low(lambda a, _: signed(a, 16)),
}
OLD_SCALAR: dict[str, Scalar] = {  # gfx9 and gfx11
    "s_cmpk_gt_u32 s20, 0x8765": lambda a, _, d: (d, a % WORD > 0x8765),
}
GFX9_SCALAR: dict[str, Scalar] = {
    "s_orn2_b64 s[24:25], s[20:21], s[22:23]": lambda a, b, _: flag(a | ~b, 64),
    "s_orn2_b32 s24, s20, s22": flagged_low(lambda a, b: flag(a | ~b)),
}
RDNA_SCALAR: dict[str, Scalar] = {
    "s_or_not1_b64 s[24:25], s[20:21], s[22:23]": lambda a, b, _: flag(a | ~b, 64),
}
GFX12_SCALAR: dict[str, Scalar] = {
    "s_mul_u64 s[24:25], s[20:21], s[22:23]": lambda a, b, _: (a * b % LONG, None),
    "s_sub_nc_u64 s[24:25], s[20:21], s[22:23]": lambda a, b, _: ((a - b) % LONG, None),
    "s_cvt_f32_u32 s24, s20": low(lambda a, _: to_bits(round_float(Fraction(a)))),
    "s_cvt_u32_f32 s24, s20": low(lambda a, _: convert_to_u32(to_float(a))),
    "s_mul_f32 s24, s20, s22": low_float(lambda a, b, _: multiply(a, b)),
    "s_fmac_f32 s24, s20, s22": low_float(fuse),
    "s_trunc_f32 s24, s20": low_float(lambda a, *_: truncate(a)),
}


# Vector instructions: source operands in v[2:3], v[4:5] and v[6:7], result in v[10:11], whose bits before are the
# fourth value. The expected result, and how many of its bits are compared.
Vector = tuple[Callable[[int, int, int, int], int], int]
NARROW, SINGLE, DOUBLE = 16, 32, 64


def add_differences(a: int, b: int, c: int) -> int:
    return c + abs((a & 0xFFFF) - (b & 0xFFFF)) + abs((a >> 16 & 0xFFFF) - (b >> 16 & 0xFFFF))


def shift_halves(amount: int, value: int) -> int:
    return (value & 0xFFFF) >> (amount & 15) | (value >> 16 & 0xFFFF) >> (amount >> 16 & 15) << 16


def mix(a: int, b: int, c: int) -> int:
    """The lower halves of a and b as f16, c as f32; the sum is rounded to f32, and then to f16."""
    x, y, z = to_float(a & 0xFFFF, "e"), to_float(b & 0xFFFF, "e"), to_float(c)
    value = fuse(x, y, z)
    return to_bits(value if is_special(value) or not value else round_float(Fraction(value), "e"), "e")


def add_product(a: float, b: float, c: float) -> float:
    """a·b + c, rounded after the product and after the sum."""
    product = multiply(a, b)
    exact = Fraction(product) + Fraction(c)
    return round_float(exact) if exact else product + c


def decode_octet(code: int, bias: int, finite: bool) -> int:
    """An 8-bit float with 3 bits of mantissa as bits of f32. `finite`: the only NaN is that of -0."""
    field, sign = code & 127, -1.0 if code & 128 else 1.0
    if code == 128 if finite else field == 127:
        return to_bits(math.nan)
    exponent, fraction = field >> 3, field & 7
    size = Fraction(8 + fraction if exponent else fraction, 8) * Fraction(2) ** (max(exponent, 1) - bias)
    return to_bits(math.copysign(float(size), sign))


def floats(function: Callable[[float, float, float, float], float]) -> Vector:
    return lambda *values: to_bits(function(*(to_float(each % WORD) for each in values))), SINGLE


VECTOR: dict[str, Vector] = {
    "v_mad_i64_i32 v[10:11], MASK, v2, v4, v[6:7]": (
        lambda a, b, c, _: signed(a % WORD) * signed(b % WORD) + signed(c, 64),
        DOUBLE,
    ),
    "v_pk_lshrrev_b16 v10, v2, v4": (lambda a, b, *_: shift_halves(a, b), SINGLE),
    "v_sad_u16 v10, v2, v4, v6": (lambda a, b, c, _: add_differences(a, b, c % WORD), SINGLE),
    "v_fma_mixlo_f16 v10, v2, v4, v6 op_sel_hi:[1,1,0]": (lambda a, b, c, _: mix(a, b, c % WORD), NARROW),
}
GFX9_VECTOR: dict[str, Vector] = {
    "v_lshrrev_b16 v10, v2, v4": (lambda a, b, *_: (b & 0xFFFF) >> (a & 15), NARROW),
    "v_ashrrev_i16 v10, v2, v4": (lambda a, b, *_: signed(b, 16) >> (a & 15), NARROW),
}
GFX90A_VECTOR: dict[str, Vector] = {
    "v_mac_f32 v10, v2, v4": floats(lambda a, b, _, d: add_product(a, b, d)),
    "v_madmk_f32 v10, v2, 0x40490fdb, v4": floats(lambda a, b, *_: add_product(a, to_float(0x40490FDB), b)),
}
FNUZ_VECTOR: dict[str, Vector] = {
    "v_cvt_f32_fp8 v10, v2": (lambda a, *_: decode_octet(a & 255, 8, True), SINGLE),
}
OCP_VECTOR: dict[str, Vector] = {
    "v_cvt_f32_fp8 v10, v2": (lambda a, *_: decode_octet(a & 255, 7, False), SINGLE),
}
GFX12_VECTOR: dict[str, Vector] = {
    "v_maxmin_num_f32 v10, v2, v4, v6": floats(lambda a, b, c, _: smallest(largest(a, b), c)),
    "v_max3_num_f32 v10, v2, v4, v6": floats(lambda a, b, c, _: largest(largest(a, b), c)),
}
# Comparisons of v[2:3] and v[4:5]: the width of the operands, and whether it is true.
COMPARE: dict[str, tuple[int, Callable[[int, int], bool]]] = {
    "ge_u16": (16, lambda a, b: a >= b),
    "lt_u16": (16, lambda a, b: a < b),
    "eq_u16": (16, lambda a, b: a == b),
    "gt_i32": (32, lambda a, b: signed(a) > signed(b)),
    "le_u32": (32, lambda a, b: a <= b),
    "ge_u64": (64, lambda a, b: a >= b),
    "gt_u64": (64, lambda a, b: a > b),
    "gt_i64": (64, lambda a, b: signed(a, 64) > signed(b, 64)),
    "ge_i64": (64, lambda a, b: signed(a, 64) >= signed(b, 64)),
    "le_i64": (64, lambda a, b: signed(a, 64) <= signed(b, 64)),
    "nle_f32": (32, compare_floats(">u")),
    "nlg_f32": (32, compare_floats("=u")),
    "ngt_f32": (32, compare_floats("<=u")),
    "neq_f32": (32, compare_floats("<>u")),
}
# Functions that may be one unit in the last place apart, in f64.
CLOSE: dict[str, Callable[[float], float]] = {
    "v_log_f32": lambda a: math.nan if math.isnan(a) or a < 0 else -math.inf if a == 0 else math.log2(a),
    "v_rsq_f32": lambda a: math.nan if math.isnan(a) or a < 0 else math.inf if a == 0 else 1 / math.sqrt(a),
}
CLOSE_SCALAR: dict[str, Callable[[float], float]] = {
    "v_s_rcp_f32": lambda a: math.copysign(math.inf, a) if a == 0 else 1 / a,
}
