"""The operations of the vector unit: integers, floats and 16-bit numbers."""

from __future__ import annotations

from functools import cache

from tilewright.emulator.isa.operation import Operation as Op
from tilewright.emulator.isa.scaled import SCALED

_U, _UU, _UUU, _UUM = ("u32",), ("u32", "u32"), ("u32", "u32", "u32"), ("u32", "u32", "mask")
_II = ("i32", "i32")

_MOVES = {
    **{
        name: Op("u32", _U, "a")
        for name in ("v_mov_b32", "v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32")
    },
    "v_mov_b64": Op("u64", ("u64",), "a"),
    "v_cndmask_b32": Op("u32", _UUM, "select(c, b, a)"),
}

_SUMS = {
    "v_add_u32": Op("u32", _UU, "a + b"),
    "v_sub_u32": Op("u32", _UU, "a - b"),
    "v_subrev_u32": Op("u32", _UU, "b - a"),
    "v_add_i32": Op("u32", _UU, "a + b"),
    "v_sub_i32": Op("u32", _UU, "a - b"),
    "v_add3_u32": Op("u32", _UUU, "a + b + c"),
    "v_xad_u32": Op("u32", _UUU, "(a ^ b) + c"),
    "v_lshl_add_u32": Op("u32", _UUU, "(a << (b & 31)) + c"),
    "v_add_lshl_u32": Op("u32", _UUU, "(a + b) << (c & 31)"),
    "v_lshl_add_u64": Op("u64", ("u64", "u32", "u64"), "(a << u64(b & 7)) + c"),
    "v_add_co_u32": Op("u32", _UU, "a + b", second="r < a"),
    "v_sub_co_u32": Op("u32", _UU, "a - b", second="a < b"),
    "v_subrev_co_u32": Op("u32", _UU, "b - a", second="b < a"),
    "v_addc_co_u32": Op("u32", _UUM, "a + b + u32(c)", second="(u64(a) + u64(b) + u64(c)) > 0xFFFFFFFF"),
    "v_subb_co_u32": Op("u32", _UUM, "a - b - u32(c)", second="u64(a) < (u64(b) + u64(c))"),
    "v_subbrev_co_u32": Op("u32", _UUM, "b - a - u32(c)", second="u64(b) < (u64(a) + u64(c))"),
    "v_sad_u32": Op("u32", _UUU, "select(a > b, a - b, b - a) + c"),
    "v_sad_u16": Op("u32", _UUU, "sad_u16(a, b, c)"),
    "v_sad_u8": Op("u32", _UUU, "sad_u8(a, b, c)"),
    "v_msad_u8": Op("u32", _UUU, "msad_u8(a, b, c)"),
    "v_qsad_pk_u16_u8": Op("u64", ("u64", "u32", "u64"), "qsad_u8(a, b, c)"),
    "v_mqsad_pk_u16_u8": Op("u64", ("u64", "u32", "u64"), "mqsad_u8(a, b, c)"),
    "v_sad_hi_u8": Op("u32", _UUU, "(sad_u8(a, b, u32(0)) << 16) + c"),
    "v_bcnt_u32_b32": Op("u32", _UU, "popcount32(a) + b"),
}

_PRODUCTS = {
    "v_mul_lo_u32": Op("u32", _UU, "a * b"),
    "v_mul_lo_i32": Op("u32", _UU, "a * b"),
    "v_mul_hi_u32": Op("u32", _UU, "(u64(a) * u64(b)) >> 32"),
    "v_mul_hi_i32": Op("i32", _II, "(i64(a) * i64(b)) >> 32"),
    "v_mul_u32_u24": Op("u32", _UU, "(a & 0xFFFFFF) * (b & 0xFFFFFF)"),
    "v_mul_hi_u32_u24": Op("u32", _UU, "(u64(a & 0xFFFFFF) * u64(b & 0xFFFFFF)) >> 32"),
    "v_mul_i32_i24": Op("u32", _UU, "u32(signed24(a)) * u32(signed24(b))"),
    "v_mul_hi_i32_i24": Op("i32", _UU, "(i64(signed24(a)) * i64(signed24(b))) >> 32"),
    "v_mad_u32_u24": Op("u32", _UUU, "(a & 0xFFFFFF) * (b & 0xFFFFFF) + c"),
    "v_mad_i32_i24": Op("u32", _UUU, "u32(signed24(a)) * u32(signed24(b)) + c"),
    "v_mad_u64_u32": Op("u64", ("u32", "u32", "u64"), "u64(a) * u64(b) + c", second="r < c"),
    "v_mad_i64_i32": Op(
        "i64", ("i32", "i32", "i64"), "i64(a) * i64(b) + c", second="overflow_i64(i64(a) * i64(b), c, r)"
    ),
    "v_mad_u32_u16": Op("u32", ("u16", "u16", "u32"), "u32(a) * u32(b) + c"),
    "v_mad_i32_i16": Op("u32", ("i16", "i16", "u32"), "u32(i32(a) * i32(b)) + c"),
    "v_prng_b32": Op("u32", _U, "(a << 1) ^ select((a >> 31) != 0, u32(197), u32(0))"),
}

_BITS = {
    "v_not_b32": Op("u32", _U, "~a"),
    "v_and_b32": Op("u32", _UU, "a & b"),
    "v_or_b32": Op("u32", _UU, "a | b"),
    "v_xor_b32": Op("u32", _UU, "a ^ b"),
    "v_xnor_b32": Op("u32", _UU, "~(a ^ b)"),
    "v_and_or_b32": Op("u32", _UUU, "(a & b) | c"),
    "v_or3_b32": Op("u32", _UUU, "a | b | c"),
    "v_xor3_b32": Op("u32", _UUU, "a ^ b ^ c"),
    "v_lshl_or_b32": Op("u32", _UUU, "(a << (b & 31)) | c"),
    "v_lshlrev_b32": Op("u32", _UU, "b << (a & 31)"),
    "v_lshrrev_b32": Op("u32", _UU, "b >> (a & 31)"),
    "v_ashrrev_i32": Op("i32", ("u32", "i32"), "b >> i32(a & 31)"),
    "v_lshlrev_b64": Op("u64", ("u32", "u64"), "b << u64(a & 63)"),
    "v_lshrrev_b64": Op("u64", ("u32", "u64"), "b >> u64(a & 63)"),
    "v_ashrrev_i64": Op("i64", ("u32", "i64"), "b >> i64(a & 63)"),
    "v_bfe_u32": Op("u32", _UUU, "(a >> (b & 31)) & ((u32(1) << (c & 31)) - 1)"),
    "v_bfe_i32": Op("i32", ("i32", "u32", "u32"), "bfe_i32(a, b & 31, c & 31)"),
    "v_bfi_b32": Op("u32", _UUU, "(a & b) | (~a & c)"),
    "v_bfm_b32": Op("u32", _UU, "((u32(1) << (a & 31)) - 1) << (b & 31)"),
    "v_bfrev_b32": Op("u32", _U, "reverse32(a)"),
    "v_ffbh_u32": Op("u32", _U, "leading32(a)"),
    "v_ffbh_i32": Op("u32", _U, "leading_sign32(a)"),
    "v_ffbl_b32": Op("u32", _U, "first_one32(a)"),
    "v_perm_b32": Op("u32", _UUU, "byte_permute(a, b, c)"),
    "v_alignbit_b32": Op("u32", _UUU, "((u64(a) << 32) | u64(b)) >> u64(c & 31)"),
    "v_alignbyte_b32": Op("u32", _UUU, "((u64(a) << 32) | u64(b)) >> u64((c & 3) * 8)"),
    "v_lerp_u8": Op("u32", _UUU, "lerp_u8(a, b, c)"),
}


def _build_min_max(kind: str) -> dict[str, Op]:
    two, three = (kind, kind), (kind, kind, kind)
    table = {
        f"v_min_{kind}": Op(kind, two, "minimum(a, b)"),
        f"v_max_{kind}": Op(kind, two, "maximum(a, b)"),
        f"v_min3_{kind}": Op(kind, three, "minimum(minimum(a, b), c)"),
        f"v_max3_{kind}": Op(kind, three, "maximum(maximum(a, b), c)"),
        f"v_med3_{kind}": Op(kind, three, "maximum(minimum(a, b), minimum(maximum(a, b), c))"),
    }
    if kind in ("u32", "i32"):  # 16-bit integers have no such instructions
        table |= {
            f"v_maxmin_{kind}": Op(kind, three, "minimum(maximum(a, b), c)"),
            f"v_minmax_{kind}": Op(kind, three, "maximum(minimum(a, b), c)"),
        }
    return table


# Integers of 32 and 64 bits.
VECTOR_INTEGER: dict[str, Op] = {
    **_MOVES, **_SUMS, **_PRODUCTS, **_BITS, **_build_min_max("u32"), **_build_min_max("i32"),
}  # fmt: skip

# Integer operations with the modifier clamp: results out of range become the nearest limit of the type.
SATURATED_INTEGER: dict[str, Op] = {
    "v_add_u32": Op("u32", _UU, "saturate_u32(i64(a) + i64(b))"),
    "v_sub_u32": Op("u32", _UU, "saturate_u32(i64(a) - i64(b))"),
    "v_subrev_u32": Op("u32", _UU, "saturate_u32(i64(b) - i64(a))"),
    "v_add_i32": Op("i32", _II, "saturate_i32(i64(a) + i64(b))"),
    "v_sub_i32": Op("i32", _II, "saturate_i32(i64(a) - i64(b))"),
    "v_add_co_u32": Op("u32", _UU, "saturate_u32(i64(a) + i64(b))", second="(u64(a) + u64(b)) > 0xFFFFFFFF"),
    "v_sub_co_u32": Op("u32", _UU, "saturate_u32(i64(a) - i64(b))", second="a < b"),
    "v_subrev_co_u32": Op("u32", _UU, "saturate_u32(i64(b) - i64(a))", second="b < a"),
    "v_addc_co_u32": Op(
        "u32", _UUM, "saturate_u32(i64(a) + i64(b) + i64(c))", second="(u64(a) + u64(b) + u64(c)) > 0xFFFFFFFF"
    ),
    "v_subb_co_u32": Op("u32", _UUM, "saturate_u32(i64(a) - i64(b) - i64(c))", second="u64(a) < (u64(b) + u64(c))"),
    "v_subbrev_co_u32": Op("u32", _UUM, "saturate_u32(i64(b) - i64(a) - i64(c))", second="u64(b) < (u64(a) + u64(c))"),
    "v_mad_u32_u24": Op("u32", _UUU, "saturate_u32(i64(a & 0xFFFFFF) * i64(b & 0xFFFFFF) + i64(c))"),
    "v_mad_i32_i24": Op("i32", _UUU, "saturate_i32(i64(signed24(a)) * i64(signed24(b)) + i64(i32(c)))"),
}

# v_exp and v_log are to the base 2; v_sin and v_cos take turns, not radians.
_ONE = ("floor", "ceil", "trunc", "rcp", "rsq", "sqrt", "frexp_mant", "fract")
_ONE_SHORT = ("exp", "log", "sin", "cos")  # not for f64


def _build_float_operations(kind: str) -> dict[str, Op]:
    """Build the operations that every float type has."""
    one, two, three = (kind,), (kind, kind), (kind, kind, kind)
    table = {
        f"v_add_{kind}": Op(kind, two, "a + b"),
        f"v_mul_{kind}": Op(kind, two, "a * b"),
        f"v_fma_{kind}": Op(kind, three, f"fma_{kind}(a, b, c)"),
        f"v_fmac_{kind}": Op(kind, (*two, f"old {kind}"), f"fma_{kind}(a, b, c)"),
        f"v_min_{kind}": Op(kind, two, f"min_{kind}(a, b)"),
        f"v_max_{kind}": Op(kind, two, f"max_{kind}(a, b)"),
        f"v_min_num_{kind}": Op(kind, two, f"min_num_{kind}(a, b)"),
        f"v_max_num_{kind}": Op(kind, two, f"max_num_{kind}(a, b)"),
        f"v_minimum_{kind}": Op(kind, two, f"minimum_{kind}(a, b)"),
        f"v_maximum_{kind}": Op(kind, two, f"maximum_{kind}(a, b)"),
        f"v_rndne_{kind}": Op(kind, one, f"rint_{kind}(a)"),
        f"v_div_fixup_{kind}": Op(kind, three, f"div_fixup_{kind}(a, b, c)"),
    }
    names = _ONE if kind == "f64" else (*_ONE, *_ONE_SHORT)
    return table | {f"v_{name}_{kind}": Op(kind, one, f"{name}_{kind}(a)") for name in names}


def _build_short_float_operations(kind: str) -> dict[str, Op]:
    """Build the operations that f32 and f16 have, but f64 does not."""
    two, three = (kind, kind), (kind, kind, kind)
    table = {
        f"v_sub_{kind}": Op(kind, two, "a - b"),
        f"v_subrev_{kind}": Op(kind, two, "b - a"),
        # Product and sum are rounded separately.
        f"v_mad_{kind}": Op(kind, three, f"{kind}(a * b) + c"),
        f"v_mac_{kind}": Op(kind, (*two, f"old {kind}"), f"{kind}(a * b) + c"),
        f"v_madak_{kind}": Op(kind, three, f"{kind}(a * b) + c"),
        f"v_madmk_{kind}": Op(kind, three, f"{kind}(a * b) + c"),
        f"v_fmaak_{kind}": Op(kind, three, f"fma_{kind}(a, b, c)"),
        f"v_fmamk_{kind}": Op(kind, three, f"fma_{kind}(a, b, c)"),
    }
    for ending in ("", "_num"):
        low, high, middle = f"min{ending}_{kind}", f"max{ending}_{kind}", f"med3{ending}_{kind}"
        table |= {
            f"v_min3{ending}_{kind}": Op(kind, three, f"{low}({low}(a, b), c)"),
            f"v_max3{ending}_{kind}": Op(kind, three, f"{high}({high}(a, b), c)"),
            f"v_med3{ending}_{kind}": Op(kind, three, f"{middle}(a, b, c)"),
            f"v_maxmin{ending}_{kind}": Op(kind, three, f"{low}({high}(a, b), c)"),
            f"v_minmax{ending}_{kind}": Op(kind, three, f"{high}({low}(a, b), c)"),
        }
    for name in ("minimum", "maximum"):
        table[f"v_{name}3_{kind}"] = Op(kind, three, f"{name}_{kind}({name}_{kind}(a, b), c)")
    table[f"v_minimummaximum_{kind}"] = Op(kind, three, f"maximum_{kind}(minimum_{kind}(a, b), c)")
    table[f"v_maximumminimum_{kind}"] = Op(kind, three, f"minimum_{kind}(maximum_{kind}(a, b), c)")
    return table


_SINGLE = {
    "v_rcp_iflag_f32": Op("f32", ("f32",), "rcp_f32(a)"),
    # Zero times anything is zero, also infinity and NaN.
    "v_mul_legacy_f32": Op("f32", ("f32", "f32"), "select((a == 0) | (b == 0), f32(0), a * b)"),
    "v_fma_legacy_f32": Op("f32", ("f32", "f32", "f32"), "select((a == 0) | (b == 0), c, fma_f32(a, b, c))"),
    "v_fmac_legacy_f32": Op("f32", ("f32", "f32", "old f32"), "select((a == 0) | (b == 0), c, fma_f32(a, b, c))"),
    # AMD's text: a·b + c, where zero times anything is zero. Unlike in fma_legacy, the sum makes -0 to +0.
    "v_mad_legacy_f32": Op("f32", ("f32", "f32", "f32"), "select((a == 0) | (b == 0), f32(0), f32(a * b)) + c"),
    # The older versions of gfx8: AMD's text has the formulas of v_exp_f32 and v_log_f32, "with legacy semantics".
    "v_exp_legacy_f32": Op("f32", ("f32",), "exp_f32(a)"),
    "v_log_legacy_f32": Op("f32", ("f32",), "log_f32(a)"),
    "v_mullit_f32": Op(
        "f32",
        ("f32", "f32", "f32"),
        "select((b > float32(u32(0xFF7FFFFF))) & (c > 0), a * b, float32(u32(0xFF7FFFFF)))",
    ),
    "v_ldexp_f32": Op("f32", ("f32", "i32"), "ldexp_f32(a, b)"),
    "v_frexp_exp_i32_f32": Op("i32", ("f32",), "frexp_exp_f32(a)"),
    "v_div_scale_f32": Op("f32", ("f32", "f32", "f32"), "div_scale_f32(a, b, c)", second="div_scaled_f32(a, b, c)"),
    "v_div_fmas_f32": Op("f32", ("f32", "f32", "f32", "mask"), "div_fmas_f32(a, b, c, d)"),
}

_DOUBLE = {
    "v_ldexp_f64": Op("f64", ("f64", "i32"), "ldexp_f64(a, b)"),
    "v_trig_preop_f64": Op("f64", ("f64", "u32"), "trig_preop(a, b)"),
    "v_frexp_exp_i32_f64": Op("i32", ("f64",), "frexp_exp_f64(a)"),
    "v_div_scale_f64": Op("f64", ("f64", "f64", "f64"), "div_scale_f64(a, b, c)", second="div_scaled_f64(a, b, c)"),
    "v_div_fmas_f64": Op("f64", ("f64", "f64", "f64", "mask"), "div_fmas_f64(a, b, c, d)"),
}

# Floats of 32 and 64 bits.
VECTOR_FLOAT: dict[str, Op] = {
    **_build_float_operations("f32"),
    **_build_short_float_operations("f32"),
    **_build_float_operations("f64"),
    **_SINGLE,
    **_DOUBLE,
}

_HALF_UU, _HALF_UUU, _HALF_II, _HALF_III = ("u16", "u16"), ("u16", "u16", "u16"), ("i16", "i16"), ("i16", "i16", "i16")


# Two signed halves as bytes, limited to 0 and 255.
_HALVES_TO_BYTES = ", ".join(f"u8(minimum(maximum(i16({half}), 0), 255))" for half in ("a", "a >> 16"))


def _shift_to_bytes(low: int, high: int) -> str:
    first, second = (f"u8(minimum(maximum({name} >> i32(c & 31), {low}), {high}))" for name in "ab")
    return f"pack8({first}, {second})"


_HALF_FLOAT = {
    "v_ldexp_f16": Op("f16", ("f16", "i16"), "ldexp_f16(a, b)"),
    "v_frexp_exp_i16_f16": Op("i16", ("f16",), "frexp_exp_f16(a)"),
    "v_pack_b32_f16": Op("u32", ("f16", "f16"), "pack16(bits16(a), bits16(b))"),
    "v_dot2_f16_f16": Op("f16", ("u32", "u32", "f16"), "dot2_f16_f16(a, b, c)"),
    "v_dot2_bf16_bf16": Op("u16", ("u32", "u32", "u16"), "dot2_bf16_bf16(a, b, c)"),
}

_HALF_INTEGER = {
    "v_mov_b16": Op("u16", ("u16",), "a"),
    "v_not_b16": Op("u16", ("u16",), "~a"),
    "v_and_b16": Op("u16", _HALF_UU, "a & b"),
    "v_or_b16": Op("u16", _HALF_UU, "a | b"),
    "v_xor_b16": Op("u16", _HALF_UU, "a ^ b"),
    "v_cndmask_b16": Op("u16", ("u16", "u16", "mask"), "select(c, b, a)"),
    "v_add_u16": Op("u16", _HALF_UU, "a + b"),
    "v_sub_u16": Op("u16", _HALF_UU, "a - b"),
    "v_subrev_u16": Op("u16", _HALF_UU, "b - a"),
    "v_add_i16": Op("u16", _HALF_UU, "a + b"),
    "v_sub_i16": Op("u16", _HALF_UU, "a - b"),
    "v_mul_lo_u16": Op("u16", _HALF_UU, "u32(a) * u32(b)"),
    **{
        name: Op("u16", _HALF_UUU, "u32(a) * u32(b) + u32(c)")
        for name in ("v_mad_u16", "v_mad_i16", "v_mad_legacy_u16", "v_mad_legacy_i16")
    },
    # Two numbers shifted and put into bytes, limited to their range (gfx950).
    "v_ashr_pk_i8_i32": Op("u16", ("i32", "i32", "u32"), _shift_to_bytes(-128, 127)),
    "v_ashr_pk_u8_i32": Op("u16", ("i32", "i32", "u32"), _shift_to_bytes(0, 255)),
    "v_sat_pk_u8_i16": Op("u16", ("u32",), f"pack8({_HALVES_TO_BYTES})"),
    "v_lshlrev_b16": Op("u16", _HALF_UU, "b << (a & 15)"),
    "v_lshrrev_b16": Op("u16", _HALF_UU, "b >> (a & 15)"),
    "v_ashrrev_i16": Op("i16", ("u16", "i16"), "b >> i16(a & 15)"),
}


_HALF_FLOAT |= _build_float_operations("f16") | _build_short_float_operations("f16")
# Those of gfx8, which clear the other half of the destination.
_LEGACY = {f"v_{name}_legacy_f16": _HALF_FLOAT[f"v_{name}_f16"] for name in ("mad", "fma", "div_fixup")}

# Integers and floats of 16 bits.
VECTOR_HALF: dict[str, Op] = {
    **_HALF_FLOAT, **_LEGACY, **_HALF_INTEGER, **_build_min_max("u16"), **_build_min_max("i16"),
}  # fmt: skip

SATURATED_HALF: dict[str, Op] = {
    "v_add_u16": Op("u16", _HALF_UU, "saturate_u16(i32(a) + i32(b))"),
    "v_sub_u16": Op("u16", _HALF_UU, "saturate_u16(i32(a) - i32(b))"),
    "v_subrev_u16": Op("u16", _HALF_UU, "saturate_u16(i32(b) - i32(a))"),
    "v_add_i16": Op("i16", _HALF_II, "saturate_i16(i32(a) + i32(b))"),
    "v_sub_i16": Op("i16", _HALF_II, "saturate_i16(i32(a) - i32(b))"),
    "v_mad_u16": Op("u16", _HALF_UUU, "saturate_u16(i64(a) * i64(b) + i64(c))"),
    "v_mad_i16": Op("i16", _HALF_III, "saturate_i16(i32(a) * i32(b) + i32(c))"),
}

# gfx9 clears the other half of the destination, except for these, which keep it; gfx10 and later always keep it
# (LLVM, GCNSubtarget::zeroesHigh16BitsOfDest).
KEEPS_OTHER_HALF = frozenset(
    {
        "v_mad_f16", "v_mac_f16", "v_madak_f16", "v_madmk_f16", "v_fma_f16", "v_fmac_f16", "v_fmaak_f16",
        "v_fmamk_f16", "v_div_fixup_f16", "v_mad_u16", "v_mad_i16",
        "v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16",
        "v_bitop3_b16", "v_ashr_pk_i8_i32", "v_ashr_pk_u8_i32", "v_dot2_f16_f16", "v_dot2_bf16_bf16",
        "v_cvt_sr_f16_f32", "v_cvt_sr_bf16_f32", *SCALED,
    }
)  # fmt: skip

# Functions of a and b, indexed by their values for (a, b) = 00, 01, 10, 11, the first in bit 0.
_TWO = (
    "0", "~(a | b)", "~a & b", "~a", "a & ~b", "~b", "a ^ b", "~(a & b)",
    "a & b", "~(a ^ b)", "b", "~a | b", "a", "a | ~b", "a | b", "1",
)  # fmt: skip
_ZERO, _ONES = 0, 15


@cache
def bitop3(table: int, kind: str) -> Op:
    """Return v_bitop3, any function of three bits: bit 4·a + 2·b + c of the table is the result for bits a, b, c."""
    without = sum((table >> (2 * pair) & 1) << pair for pair in range(4))  # c is 0
    having = sum((table >> (2 * pair + 1) & 1) << pair for pair in range(4))
    return Op(kind, (kind, kind, kind), _join_forms(without, having))


def _join_forms(without: int, having: int) -> str:
    """Return a short expression for (c ? having : without)."""
    if without == having:
        constant = {_ZERO: "a ^ a", _ONES: "~(a ^ a)"}
        return constant.get(without, _TWO[without])
    if without == having ^ _ONES:
        return "c" if without == _ZERO else "~c" if having == _ZERO else f"({_TWO[without]}) ^ c"
    if _ZERO in (without, having):
        return f"({_TWO[having]}) & c" if without == _ZERO else f"({_TWO[without]}) & ~c"
    if _ONES in (without, having):
        return f"({_TWO[without]}) | c" if having == _ONES else f"({_TWO[having]}) | ~c"
    return f"(({_TWO[having]}) & c) | (({_TWO[without]}) & ~c)"
