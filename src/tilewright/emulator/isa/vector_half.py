"""16-bit numbers in vector registers."""

from __future__ import annotations

from tilewright.emulator.isa.operation import Operation as Op
from tilewright.emulator.isa.vector_float import build_float_operations, build_short_float_operations

_UU, _UUU, _II, _III = ("u16", "u16"), ("u16", "u16", "u16"), ("i16", "i16"), ("i16", "i16", "i16")

_FLOAT = {
    "v_ldexp_f16": Op("f16", ("f16", "i16"), "ldexp_f16(a, b)"),
    "v_frexp_exp_i16_f16": Op("i16", ("f16",), "frexp_exp_f16(a)"),
    "v_pack_b32_f16": Op("u32", ("f16", "f16"), "pack16(bits16(a), bits16(b))"),
}

_INTEGER = {
    "v_mov_b16": Op("u16", ("u16",), "a"),
    "v_not_b16": Op("u16", ("u16",), "~a"),
    "v_and_b16": Op("u16", _UU, "a & b"),
    "v_or_b16": Op("u16", _UU, "a | b"),
    "v_xor_b16": Op("u16", _UU, "a ^ b"),
    "v_cndmask_b16": Op("u16", ("u16", "u16", "mask"), "select(c, b, a)"),
    "v_add_u16": Op("u16", _UU, "a + b"),
    "v_sub_u16": Op("u16", _UU, "a - b"),
    "v_subrev_u16": Op("u16", _UU, "b - a"),
    "v_add_i16": Op("u16", _UU, "a + b"),
    "v_sub_i16": Op("u16", _UU, "a - b"),
    "v_mul_lo_u16": Op("u16", _UU, "u32(a) * u32(b)"),
    **{
        name: Op("u16", _UUU, "u32(a) * u32(b) + u32(c)")
        for name in ("v_mad_u16", "v_mad_i16", "v_mad_legacy_u16", "v_mad_legacy_i16")
    },
    "v_lshlrev_b16": Op("u16", _UU, "b << (a & 15)"),
    "v_lshrrev_b16": Op("u16", _UU, "b >> (a & 15)"),
    "v_ashrrev_i16": Op("i16", ("u16", "i16"), "b >> i16(a & 15)"),
}


def _build_min_max() -> dict[str, Op]:
    table: dict[str, Op] = {}
    for kind, two, three in (("u16", _UU, _UUU), ("i16", _II, _III)):
        table |= {
            f"v_min_{kind}": Op(kind, two, "minimum(a, b)"),
            f"v_max_{kind}": Op(kind, two, "maximum(a, b)"),
            f"v_min3_{kind}": Op(kind, three, "minimum(minimum(a, b), c)"),
            f"v_max3_{kind}": Op(kind, three, "maximum(maximum(a, b), c)"),
            f"v_med3_{kind}": Op(kind, three, "maximum(minimum(a, b), minimum(maximum(a, b), c))"),
        }
    return table


VECTOR_HALF: dict[str, Op] = {
    **build_float_operations("f16"), **build_short_float_operations("f16"), **_FLOAT, **_INTEGER, **_build_min_max(),
}  # fmt: skip

SATURATED_HALF: dict[str, Op] = {
    "v_add_u16": Op("u16", _UU, "saturate_u16(i32(a) + i32(b))"),
    "v_sub_u16": Op("u16", _UU, "saturate_u16(i32(a) - i32(b))"),
    "v_subrev_u16": Op("u16", _UU, "saturate_u16(i32(b) - i32(a))"),
    "v_add_i16": Op("i16", _II, "saturate_i16(i32(a) + i32(b))"),
    "v_sub_i16": Op("i16", _II, "saturate_i16(i32(a) - i32(b))"),
    "v_mad_u16": Op("u16", _UUU, "saturate_u16(i64(a) * i64(b) + i64(c))"),
    "v_mad_i16": Op("i16", _III, "saturate_i16(i32(a) * i32(b) + i32(c))"),
}

# gfx9 clears the other half of the destination, except for these, which keep it; gfx10 and later always keep it
# (LLVM, GCNSubtarget::zeroesHigh16BitsOfDest).
KEEPS_OTHER_HALF = frozenset(
    {
        "v_mad_f16", "v_mac_f16", "v_madak_f16", "v_madmk_f16", "v_fma_f16", "v_fmac_f16", "v_fmaak_f16",
        "v_fmamk_f16", "v_div_fixup_f16", "v_mad_u16", "v_mad_i16",
        "v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16",
        "v_bitop3_b16",
    }
)  # fmt: skip
