"""Functions of floats: comparison, rounding and elementary functions, built for each type from one description; and the
conversions that are more than a cast: saturation and other rounding modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.emulator.isa.fma_and_division import fma_f32
from tilewright.emulator.isa.operation import Array, to_bits

Function = Callable[..., Array]
_SMALLEST_NORMAL = {2: np.float16(2.0**-14), 4: np.float32(2.0**-126), 8: np.float64(2.0**-1022)}  # by size in bytes

# The bit of a NaN that makes it quiet.
_QUIET = {"f16": np.uint16(0x0200), "f32": np.uint32(0x00400000), "f64": np.uint64(0x0008000000000000)}


def _make_quiet(result: Array, source: Array, kind: str) -> Array:
    """Replace the result by the quiet NaN where the source is a signalling NaN."""
    bits = to_bits(source)
    signalling = np.isnan(source) & ((bits & _QUIET[kind]) == 0)
    return np.where(signalling, (bits | _QUIET[kind]).view(source.dtype), result)


def _make_extreme(kind: str, least: bool, ieee: bool) -> Function:
    """v_min and v_max: NaN operands are ignored; -0 is less than +0. In IEEE mode, which the runtime sets, a
    signalling NaN is returned as a quiet NaN; the …_num instructions of gfx12 have no such mode."""
    ufunc = np.fmin if least else np.fmax

    def extreme(a: Array, b: Array) -> Array:
        if a is b:  # compilers use this to canonicalize a number
            values: Array = np.multiply(a, a.dtype.type(1))
            return values
        result = ufunc(a, b)
        if ((a < b) | (a > b)).all():
            return result
        both = to_bits(a) | to_bits(b) if least else to_bits(a) & to_bits(b)
        result = np.where(a == b, both.view(a.dtype), result)
        if ieee:
            return _make_quiet(_make_quiet(result, b, kind), a, kind)
        return _make_quiet(result, result, kind)

    return extreme


def _make_strict_extreme(least: bool) -> Function:
    """v_minimum and v_maximum: NaN if an operand is NaN; -0 is less than +0."""
    ufunc = np.minimum if least else np.maximum

    def extreme(a: Array, b: Array) -> Array:
        both = to_bits(a) | to_bits(b) if least else to_bits(a) & to_bits(b)
        return np.where(a == b, both.view(a.dtype), ufunc(a, b))

    return extreme


def _make_median(low: Function, high: Function) -> Function:
    def median(a: Array, b: Array, c: Array) -> Array:
        middle = np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))
        numbers = ~np.isnan(middle)  # false if an operand is NaN
        if (numbers & (middle != 0)).all():
            return middle
        return np.where(numbers, high(low(a, b), low(high(a, b), c)), low(low(a, b), c))

    return median


def _make_class_test(kind: str) -> Function:
    """Return a test whether the class of a number is in the mask (bits 0 to 9)."""
    size = {"f16": (5, 10), "f32": (8, 23), "f64": (11, 52)}[kind]

    def is_in_class(x: Array, mask: Array) -> Array:
        bits = to_bits(x)
        top = (1 << size[0]) - 1
        exponent, fraction = (bits >> size[1]) & top, bits & ((1 << size[1]) - 1)
        negative = (bits >> (size[0] + size[1])) != 0
        # Distance from zero: 0 zero, 1 subnormal, 2 normal, 3 infinite.
        kinds = np.where(exponent == 0, fraction != 0, np.where(exponent == top, 3, 2))
        number = np.where(negative, 5 - kinds, 6 + kinds)
        nan = (exponent == top) & (fraction != 0)
        bit = np.where(nan, (bits & _QUIET[kind]) != 0, number).astype(np.uint32)
        values: Array = np.not_equal((mask >> bit) & 1, 0)
        return values

    return is_in_class


def _ldexp(x: Array, exponent: Array) -> Array:
    # In f64 all steps except the last are exact.
    power = np.clip(exponent, -2200, 2200).astype(np.int32)
    return np.ldexp(x.astype(np.float64), power).astype(x.dtype)


def _frexp_exp(x: Array) -> Array:
    _, exponent = np.frexp(x)
    return np.where(np.isfinite(x), exponent, 0).astype(np.int16 if x.dtype == np.float16 else np.int32)


def _frexp_mant(x: Array) -> Array:
    fraction, _ = np.frexp(x)
    return np.where(np.isfinite(x), fraction, x).astype(x.dtype)


def _fract(x: Array) -> Array:
    """Return x - floor(x); always less than 1."""
    values: Array = np.minimum(x - np.floor(x), np.nextafter(x.dtype.type(1), x.dtype.type(0)))
    return values


def _round_once(function: Callable[[Array], Array]) -> Function:
    """Wrap a function: compute in f64 and round once."""

    def compute_rounded(x: Array) -> Array:
        return np.asarray(function(x.astype(np.float64)), x.dtype)

    return compute_rounded


def flush_subnormals(x: Array) -> Array:
    """Replace subnormal numbers by zero of the same sign."""
    size = np.abs(x)
    subnormal = size < _SMALLEST_NORMAL[x.dtype.itemsize]
    if not (subnormal & (size != 0)).any():
        return x
    return np.where(subnormal, np.copysign(x.dtype.type(0), x), x)


def _wrap_flush(function: Function) -> Function:
    """Wrap an elementary function of f32, which flushes subnormal operands and results (AMD's ISA manuals; LLVM's
    lowering scales operands for this reason)."""

    def compute_normal(x: Array) -> Array:
        return flush_subnormals(function(flush_subnormals(x)))

    return compute_normal


def _sin_turns(x: Array) -> Array:
    """Reduce to a quarter turn around 0, where multiples of a quarter turn give exact results."""
    part = x - np.rint(x)
    near = np.where(np.abs(part) > 0.25, np.copysign(0.5, part) - part, part)
    values: Array = np.sin(near * (2 * np.pi))
    return values


def _cos_turns(x: Array) -> Array:
    values: Array = np.sin((0.25 - np.abs(x - np.rint(x))) * (2 * np.pi))
    return values


_ELEMENTARY: dict[str, Callable[[Array], Array]] = {
    "rcp": lambda x: 1.0 / x,
    "rsq": lambda x: 1.0 / np.sqrt(x),
    "sqrt": np.sqrt,
    "exp": np.exp2,
    "log": np.log2,
    "sin": _sin_turns,
    "cos": _cos_turns,
}


def _build_typed_functions(kind: str) -> dict[str, Function]:
    names: dict[str, Function] = {
        "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "fract": _fract,
        "ldexp": _ldexp, "frexp_exp": _frexp_exp, "frexp_mant": _frexp_mant, "class": _make_class_test(kind),
        "minimum": _make_strict_extreme(True), "maximum": _make_strict_extreme(False),
    }  # fmt: skip
    for ending, ieee in (("", True), ("_num", False)):
        low, high = _make_extreme(kind, True, ieee), _make_extreme(kind, False, ieee)
        names |= {f"min{ending}": low, f"max{ending}": high, f"med3{ending}": _make_median(low, high)}
    for name, function in _ELEMENTARY.items():
        rounded = _round_once(function)
        names[name] = _wrap_flush(rounded) if kind == "f32" else rounded
    return {f"{name}_{kind}": function for name, function in names.items()}


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


def saturate_u8(x: Array) -> Array:
    """Whole numbers of floats as bytes: out of range becomes the nearest limit, NaN becomes 0."""
    return _to_integer(x, 0, 0xFF, np.uint8)


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


def f16_random(x: Array, random: Array) -> Array:
    """Return x as f16: random bits are added below the last bit that is kept, then the rest is cut off.

    AMD's text leaves this open; so does AMD's emulator (ROCm/rocm-systems, rocjitsu, f32_to_binary_float_sr).
    """
    x, random = np.broadcast_arrays(x, random)
    bits = np.ascontiguousarray(x).view(np.uint32)
    exponent = ((bits >> 23) & 0xFF).astype(np.int32) - 127
    below = np.minimum(np.maximum(-14 - exponent, 0), 31).astype(np.uint32)
    kept = ((((bits & 0x7FFFFF) | 0x800000) >> below) + (random >> 19)) >> 13
    code = ((np.maximum(exponent, -14) + 14).astype(np.uint32) << 10) + kept
    signed = np.minimum(code, 0x7C00) | ((bits >> 16) & 0x8000)
    return np.where(np.isfinite(x), signed.astype(np.uint16).view(np.float16), x.astype(np.float16))


def bf16_random(x: Array, random: Array) -> Array:
    """The same for bf16, which has the exponents of f32."""
    rounded = (x.view(np.uint32) + (random >> 16)) >> 16
    return np.where(np.isfinite(x), rounded, bf16_of_f32(x)).astype(np.uint16)


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


def limit_f16(x: Array, finite: Array) -> Array:
    """MODE.FP16_OVFL: what is too large for f16 becomes the largest number; true infinities stay."""
    return np.where(np.isinf(x) & finite, np.copysign(np.float16(65504), x), x)


def dot2_f16_f16(a: Array, b: Array, c: Array) -> Array:
    """AMD's pseudo-code adds one product after the other; that each step is a fused multiply-add is an assumption."""
    (a0, a1), (b0, b1) = _split_halves(a), _split_halves(b)
    first = _fma_half(a0.view(np.float16), b0.view(np.float16), c)
    return _fma_half(a1.view(np.float16), b1.view(np.float16), first)


def _fma_half(a: Array, b: Array, c: Array) -> Array:
    return (np.multiply(a, b, dtype=np.float64) + c).astype(np.float16)


def dot2_bf16_bf16(a: Array, b: Array, c: Array) -> Array:
    """The same for bf16, whose products are exact in f32; sums are rounded to bf16."""
    (a0, a1), (b0, b1) = _split_halves(a), _split_halves(b)
    first = bf16_of_f32(fma_f32(f32_of_bf16(a0), f32_of_bf16(b0), f32_of_bf16(c)))
    return bf16_of_f32(fma_f32(f32_of_bf16(a1), f32_of_bf16(b1), f32_of_bf16(first)))


_CONVERSIONS = (
    f64_to_u32, f64_to_i32, f64_to_u16, f64_to_i16, saturate_u8, norm_f64, f16_toward_zero, bf16_of_f32, f32_of_bf16,
    f16_random, bf16_random, dot2_f32_f16, dot2_f32_bf16, dot2_f16_f16, dot2_bf16_bf16, limit_f16,
)  # fmt: skip

FLOAT_FUNCTIONS: dict[str, Function] = {
    **{name: function for kind in ("f16", "f32", "f64") for name, function in _build_typed_functions(kind).items()},
    **{function.__name__: function for function in _CONVERSIONS},
    "finite_f16": np.isfinite,
    "finite_f32": np.isfinite,
}
