"""The operations of the scalar unit.

A source "scc" is the SCC bit as u32. A source "u16" or "i16" is the 16-bit constant of the instruction. In SAVE_EXEC
and WRITE_EXEC, b is exec and the result goes to exec; the destination gets the old exec (SAVE_EXEC) or the new one.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.emulator.isa.operation import Operation as Op

_NOT_ZERO = "r != 0"
_BOTH = {"b32": "u32", "b64": "u64"}

_LOGIC = {
    "and": "a & b",
    "or": "a | b",
    "xor": "a ^ b",
    "andn2": "a & ~b",
    "orn2": "a | ~b",
    "nand": "~(a & b)",
    "nor": "~(a | b)",
    "xnor": "~(a ^ b)",
}
_EXEC_LOGIC = {**_LOGIC, "andn1": "~a & b", "orn1": "~a | b"}

_ARITHMETIC = {
    "s_add_u32": Op("u32", ("u32", "u32"), "a + b", scc="r < a"),
    "s_add_i32": Op("u32", ("u32", "u32"), "a + b", scc="((~(a ^ b) & (a ^ r)) >> 31) != 0"),
    "s_sub_u32": Op("u32", ("u32", "u32"), "a - b", scc="a < b"),
    "s_sub_i32": Op("u32", ("u32", "u32"), "a - b", scc="(((a ^ b) & (a ^ r)) >> 31) != 0"),
    "s_addc_u32": Op("u32", ("u32", "u32", "scc"), "a + b + c", scc="(u64(a) + u64(b) + u64(c)) > 0xFFFFFFFF"),
    "s_subb_u32": Op("u32", ("u32", "u32", "scc"), "a - b - c", scc="u64(a) < (u64(b) + u64(c))"),
    "s_mul_i32": Op("u32", ("u32", "u32"), "a * b"),
    "s_mul_hi_u32": Op("u32", ("u32", "u32"), "(u64(a) * u64(b)) >> 32"),
    "s_mul_hi_i32": Op("i32", ("i32", "i32"), "(i64(a) * i64(b)) >> 32"),
    "s_mul_u64": Op("u64", ("u64", "u64"), "a * b"),
    "s_add_nc_u64": Op("u64", ("u64", "u64"), "a + b"),
    "s_sub_nc_u64": Op("u64", ("u64", "u64"), "a - b"),
    "s_min_i32": Op("i32", ("i32", "i32"), "minimum(a, b)", scc="a < b"),
    "s_max_i32": Op("i32", ("i32", "i32"), "maximum(a, b)", scc="a > b"),
    "s_min_u32": Op("u32", ("u32", "u32"), "minimum(a, b)", scc="a < b"),
    "s_max_u32": Op("u32", ("u32", "u32"), "maximum(a, b)", scc="a > b"),
    "s_absdiff_i32": Op("u32", ("i32", "i32"), "select(a > b, u32(a) - u32(b), u32(b) - u32(a))", scc=_NOT_ZERO),
    "s_abs_i32": Op("u32", ("u32",), "select((a >> 31) != 0, 0 - a, a)", scc=_NOT_ZERO),
    **{
        f"s_lshl{n}_add_u32": Op(
            "u32", ("u32", "u32"), f"(a << {n}) + b", scc=f"((u64(a) << {n}) + u64(b)) > 0xFFFFFFFF"
        )
        for n in (1, 2, 3, 4)
    },
    "s_addk_i32": Op("u32", ("old u32", "i16"), "a + u32(b)", scc="((~(a ^ u32(b)) & (a ^ r)) >> 31) != 0"),
    "s_mulk_i32": Op("u32", ("old u32", "i16"), "a * u32(b)"),
}

_BITS = {
    "s_lshl_b32": Op("u32", ("u32", "u32"), "a << (b & 31)", scc=_NOT_ZERO),
    "s_lshr_b32": Op("u32", ("u32", "u32"), "a >> (b & 31)", scc=_NOT_ZERO),
    "s_ashr_i32": Op("i32", ("i32", "u32"), "a >> i32(b & 31)", scc=_NOT_ZERO),
    "s_lshl_b64": Op("u64", ("u64", "u32"), "a << u64(b & 63)", scc=_NOT_ZERO),
    "s_lshr_b64": Op("u64", ("u64", "u32"), "a >> u64(b & 63)", scc=_NOT_ZERO),
    "s_ashr_i64": Op("i64", ("i64", "u32"), "a >> i64(b & 63)", scc=_NOT_ZERO),
    "s_bfe_u32": Op("u32", ("u32", "u32"), "bfe_u32(a, b & 31, (b >> 16) & 127)", scc=_NOT_ZERO),
    "s_bfe_i32": Op("i32", ("i32", "u32"), "bfe_i32(a, b & 31, (b >> 16) & 127)", scc=_NOT_ZERO),
    "s_bfe_u64": Op("u64", ("u64", "u32"), "bfe_u64(a, b & 63, (b >> 16) & 127)", scc=_NOT_ZERO),
    "s_bfe_i64": Op("i64", ("i64", "u32"), "bfe_i64(a, b & 63, (b >> 16) & 127)", scc=_NOT_ZERO),
    "s_bfm_b32": Op("u32", ("u32", "u32"), "((u32(1) << (a & 31)) - 1) << (b & 31)"),
    "s_bfm_b64": Op("u64", ("u32", "u32"), "((u64(1) << u64(a & 63)) - 1) << u64(b & 63)"),
    "s_not_b32": Op("u32", ("u32",), "~a", scc=_NOT_ZERO),
    "s_not_b64": Op("u64", ("u64",), "~a", scc=_NOT_ZERO),
    "s_brev_b32": Op("u32", ("u32",), "reverse32(a)"),
    "s_brev_b64": Op("u64", ("u64",), "reverse64(a)"),
    "s_bcnt0_i32_b32": Op("u32", ("u32",), "popcount32(~a)", scc=_NOT_ZERO),
    "s_bcnt0_i32_b64": Op("u32", ("u64",), "popcount64(~a)", scc=_NOT_ZERO),
    "s_bcnt1_i32_b32": Op("u32", ("u32",), "popcount32(a)", scc=_NOT_ZERO),
    "s_bcnt1_i32_b64": Op("u32", ("u64",), "popcount64(a)", scc=_NOT_ZERO),
    "s_ff0_i32_b32": Op("u32", ("u32",), "first_one32(~a)"),
    "s_ff0_i32_b64": Op("u32", ("u64",), "first_one64(~a)"),
    "s_ff1_i32_b32": Op("u32", ("u32",), "first_one32(a)"),
    "s_ff1_i32_b64": Op("u32", ("u64",), "first_one64(a)"),
    "s_flbit_i32_b32": Op("u32", ("u32",), "leading32(a)"),
    "s_flbit_i32_b64": Op("u32", ("u64",), "leading64(a)"),
    "s_flbit_i32": Op("u32", ("u32",), "leading_sign32(a)"),
    "s_flbit_i32_i64": Op("u32", ("u64",), "leading_sign64(a)"),
    "s_sext_i32_i8": Op("i32", ("u32",), "i32(i8(a))"),
    "s_sext_i32_i16": Op("i32", ("u32",), "i32(i16(a))"),
    "s_quadmask_b32": Op("u32", ("u32",), "quadmask32(a)", scc=_NOT_ZERO),
    "s_quadmask_b64": Op("u64", ("u64",), "quadmask64(a)", scc=_NOT_ZERO),
    "s_wqm_b32": Op("u32", ("u32",), "wqm32(a)", scc=_NOT_ZERO),
    "s_wqm_b64": Op("u64", ("u64",), "wqm64(a)", scc=_NOT_ZERO),
    "s_bitset0_b32": Op("u32", ("old u32", "u32"), "a & ~(u32(1) << (b & 31))"),
    "s_bitset1_b32": Op("u32", ("old u32", "u32"), "a | (u32(1) << (b & 31))"),
    "s_bitset0_b64": Op("u64", ("old u64", "u32"), "a & ~(u64(1) << u64(b & 63))"),
    "s_bitset1_b64": Op("u64", ("old u64", "u32"), "a | (u64(1) << u64(b & 63))"),
    "s_bitreplicate_b64_b32": Op("u64", ("u32",), "replicate_bits(a)"),
    "s_pack_ll_b32_b16": Op("u32", ("u32", "u32"), "(a & 0xFFFF) | (b << 16)"),
    "s_pack_lh_b32_b16": Op("u32", ("u32", "u32"), "(a & 0xFFFF) | (b & 0xFFFF0000)"),
    "s_pack_hh_b32_b16": Op("u32", ("u32", "u32"), "(a >> 16) | (b & 0xFFFF0000)"),
    "s_pack_hl_b32_b16": Op("u32", ("u32", "u32"), "(a >> 16) | (b << 16)"),
}

_MOVES = {
    "s_mov_b32": Op("u32", ("u32",), "a"),
    "s_mov_b64": Op("u64", ("u64",), "a"),
    "s_movk_i32": Op("u32", ("i16",), "u32(a)"),
    "s_cmovk_i32": Op("u32", ("old u32", "i16", "scc"), "select(c != 0, u32(b), a)"),
    "s_cmov_b32": Op("u32", ("old u32", "u32", "scc"), "select(c != 0, b, a)"),
    "s_cmov_b64": Op("u64", ("old u64", "u64", "scc"), "select(c != 0, b, a)"),
    "s_cselect_b32": Op("u32", ("u32", "u32", "scc"), "select(c != 0, a, b)"),
    "s_cselect_b64": Op("u64", ("u64", "u64", "scc"), "select(c != 0, a, b)"),
    **{
        f"s_bitcmp{bit}_b{n}": Op("", (f"u{n}", "u32"), "", scc=f"((a >> u{n}(b & {n - 1})) & 1) == {bit}")
        for bit in (0, 1)
        for n in (32, 64)
    },
}


def _build_logic() -> dict[str, Op]:
    return {
        f"s_{name}_{suffix}": Op(kind, (kind, kind), expression, scc=_NOT_ZERO)
        for name, expression in _LOGIC.items()
        for suffix, kind in _BOTH.items()
    }


def _build_exec_logic(ending: str, names: Mapping[str, str]) -> dict[str, Op]:
    return {
        f"s_{name}_{ending}_{suffix}": Op(kind, (kind, kind), expression, scc=_NOT_ZERO)
        for name, expression in names.items()
        for suffix, kind in _BOTH.items()
    }


def _build_floats(kind: str) -> dict[str, Op]:
    """Scalar floating point: gfx1150 and later."""
    one, two, three = (kind,), (kind, kind), (kind, kind, kind)
    return {
        f"s_add_{kind}": Op(kind, two, "a + b"),
        f"s_sub_{kind}": Op(kind, two, "a - b"),
        f"s_mul_{kind}": Op(kind, two, "a * b"),
        f"s_min_num_{kind}": Op(kind, two, f"min_num_{kind}(a, b)"),
        f"s_max_num_{kind}": Op(kind, two, f"max_num_{kind}(a, b)"),
        f"s_minimum_{kind}": Op(kind, two, f"minimum_{kind}(a, b)"),
        f"s_maximum_{kind}": Op(kind, two, f"maximum_{kind}(a, b)"),
        f"s_fmac_{kind}": Op(kind, (f"old {kind}", *two), f"fma_{kind}(b, c, a)"),
        f"s_fmaak_{kind}": Op(kind, three, f"fma_{kind}(a, b, c)"),
        f"s_fmamk_{kind}": Op(kind, three, f"fma_{kind}(a, b, c)"),
        f"s_ceil_{kind}": Op(kind, one, f"ceil_{kind}(a)"),
        f"s_floor_{kind}": Op(kind, one, f"floor_{kind}(a)"),
        f"s_trunc_{kind}": Op(kind, one, f"trunc_{kind}(a)"),
        f"s_rndne_{kind}": Op(kind, one, f"rint_{kind}(a)"),
        **{f"v_s_{name}_{kind}": Op(kind, one, f"{name}_{kind}(a)") for name in ("exp", "log", "rcp", "rsq", "sqrt")},
    }


_CONVERSIONS = {
    "s_cvt_f32_i32": Op("f32", ("i32",), "f32(a)"),
    "s_cvt_f32_u32": Op("f32", ("u32",), "f32(a)"),
    "s_cvt_i32_f32": Op("i32", ("f32",), "f64_to_i32(f64(a))"),
    "s_cvt_u32_f32": Op("u32", ("f32",), "f64_to_u32(f64(a))"),
    "s_cvt_f16_f32": Op("f16", ("f32",), "f16(a)"),
    "s_cvt_f32_f16": Op("f32", ("f16",), "f32(a)"),
    "s_cvt_hi_f32_f16": Op("f32", ("u32",), "f32(float16(u16(a >> 16)))"),
    "s_cvt_pk_rtz_f16_f32": Op("u32", ("f32", "f32"), "pack16(f16_toward_zero(a), f16_toward_zero(b))"),
}

SAVE_EXEC: dict[str, Op] = _build_exec_logic("saveexec", _EXEC_LOGIC)
WRITE_EXEC: dict[str, Op] = _build_exec_logic("wrexec", {name: _EXEC_LOGIC[name] for name in ("andn1", "andn2")})
SCALAR: dict[str, Op] = {
    **_ARITHMETIC, **_BITS, **_MOVES, **_build_logic(), **_build_floats("f32"), **_build_floats("f16"), **_CONVERSIONS,
}  # fmt: skip
