"""Integers of 32 and 64 bits in vector registers."""

from __future__ import annotations

from tilewright.emulator.isa.operation import Operation as Op

_U, _UU, _UUU, _UUM = ("u32",), ("u32", "u32"), ("u32", "u32", "u32"), ("u32", "u32", "mask")
_II, _III = ("i32", "i32"), ("i32", "i32", "i32")

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


def _build_min_max() -> dict[str, Op]:
    table: dict[str, Op] = {}
    for kind, two, three in (("u32", _UU, _UUU), ("i32", _II, _III)):
        table |= {
            f"v_min_{kind}": Op(kind, two, "minimum(a, b)"),
            f"v_max_{kind}": Op(kind, two, "maximum(a, b)"),
            f"v_min3_{kind}": Op(kind, three, "minimum(minimum(a, b), c)"),
            f"v_max3_{kind}": Op(kind, three, "maximum(maximum(a, b), c)"),
            f"v_med3_{kind}": Op(kind, three, "maximum(minimum(a, b), minimum(maximum(a, b), c))"),
            f"v_maxmin_{kind}": Op(kind, three, "minimum(maximum(a, b), c)"),
            f"v_minmax_{kind}": Op(kind, three, "maximum(minimum(a, b), c)"),
        }
    return table


VECTOR_INTEGER: dict[str, Op] = {**_MOVES, **_SUMS, **_PRODUCTS, **_BITS, **_build_min_max()}

# Integer operations with the modifier clamp: results out of range become the nearest limit of the type.
SATURATED_INTEGER: dict[str, Op] = {
    "v_add_u32": Op("u32", _UU, "saturate_u32(i64(a) + i64(b))"),
    "v_sub_u32": Op("u32", _UU, "saturate_u32(i64(a) - i64(b))"),
    "v_subrev_u32": Op("u32", _UU, "saturate_u32(i64(b) - i64(a))"),
    "v_add_i32": Op("i32", _II, "saturate_i32(i64(a) + i64(b))"),
    "v_sub_i32": Op("i32", _II, "saturate_i32(i64(a) - i64(b))"),
    "v_mad_u32_u24": Op("u32", _UUU, "saturate_u32(i64(a & 0xFFFFFF) * i64(b & 0xFFFFFF) + i64(c))"),
    "v_mad_i32_i24": Op("i32", _UUU, "saturate_i32(i64(signed24(a)) * i64(signed24(b)) + i64(i32(c)))"),
}
