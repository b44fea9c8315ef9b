"""Canonical names: gfx10 and later renamed many instructions without changing them."""

from __future__ import annotations

import re
from functools import cache

_VECTOR = {
    "v_add_nc_u32": "v_add_u32",
    "v_sub_nc_u32": "v_sub_u32",
    "v_subrev_nc_u32": "v_subrev_u32",
    "v_add_nc_i32": "v_add_i32",
    "v_sub_nc_i32": "v_sub_i32",
    "v_add_nc_u16": "v_add_u16",
    "v_sub_nc_u16": "v_sub_u16",
    "v_add_nc_i16": "v_add_i16",
    "v_sub_nc_i16": "v_sub_i16",
    "v_add_co_ci_u32": "v_addc_co_u32",
    "v_sub_co_ci_u32": "v_subb_co_u32",
    "v_subrev_co_ci_u32": "v_subbrev_co_u32",
    "v_mad_co_u64_u32": "v_mad_u64_u32",
    "v_mad_co_i64_i32": "v_mad_i64_i32",
    "v_ctz_i32_b32": "v_ffbl_b32",
    "v_clz_i32_u32": "v_ffbh_u32",
    "v_cls_i32": "v_ffbh_i32",
    "v_cvt_pk_rtz_f16_f32": "v_cvt_pkrtz_f16_f32",
    "v_cvt_pk_norm_i16_f32": "v_cvt_pknorm_i16_f32",
    "v_cvt_pk_norm_u16_f32": "v_cvt_pknorm_u16_f32",
    "v_cvt_pk_norm_i16_f16": "v_cvt_pknorm_i16_f16",
    "v_cvt_pk_norm_u16_f16": "v_cvt_pknorm_u16_f16",
    "v_cvt_floor_i32_f32": "v_cvt_flr_i32_f32",
    "v_cvt_nearest_i32_f32": "v_cvt_rpi_i32_f32",
    "v_mul_dx9_zero_f32": "v_mul_legacy_f32",
    "v_fma_dx9_zero_f32": "v_fma_legacy_f32",
    "v_fmac_dx9_zero_f32": "v_fmac_legacy_f32",
}

_SCALAR = {
    "s_add_co_i32": "s_add_i32",
    "s_sub_co_i32": "s_sub_i32",
    "s_add_co_u32": "s_add_u32",
    "s_sub_co_u32": "s_sub_u32",
    "s_add_co_ci_u32": "s_addc_u32",
    "s_sub_co_ci_u32": "s_subb_u32",
    "s_addk_co_i32": "s_addk_i32",
    "s_ctz_i32_b32": "s_ff1_i32_b32",
    "s_ctz_i32_b64": "s_ff1_i32_b64",
    "s_clz_i32_u32": "s_flbit_i32_b32",
    "s_clz_i32_u64": "s_flbit_i32_b64",
    "s_cls_i32": "s_flbit_i32",
    "s_cls_i32_i64": "s_flbit_i32_i64",
    # LLVM's assembler takes them for the renamed ones; gfx11.5 has instructions with these names.
    "s_min_f32": "s_min_num_f32",
    "s_max_f32": "s_max_num_f32",
    "s_min_f16": "s_min_num_f16",
    "s_max_f16": "s_max_num_f16",
}
_LOGIC = {"and_not1": "andn2", "or_not1": "orn2", "and_not0": "andn1", "or_not0": "orn1"}

# Widths of memory instructions.
_DWORDS = {"b32": "dword", "b64": "dwordx2", "b96": "dwordx3", "b128": "dwordx4", "b256": "dwordx8", "b512": "dwordx16"}
_LOADS = {
    **_DWORDS, "u8": "ubyte", "i8": "sbyte", "u16": "ushort", "i16": "sshort",
    "d16_b16": "short_d16", "d16_hi_b16": "short_d16_hi", "d16_u8": "ubyte_d16", "d16_hi_u8": "ubyte_d16_hi",
    "d16_i8": "sbyte_d16", "d16_hi_i8": "sbyte_d16_hi",
    "lds_b32": "lds_dword", "lds_u8": "lds_ubyte", "lds_u16": "lds_ushort", "dword_addtid": "addtid_b32",
}  # fmt: skip
_STORES = {
    **_DWORDS, "b8": "byte", "b16": "short", "d16_hi_b8": "byte_d16_hi", "d16_hi_b16": "short_d16_hi",
    "dword_addtid": "addtid_b32",
}  # fmt: skip
_ATOMICS = {
    f"{new}{size}": f"{old}{wide}"
    for new, old in {
        "add_u": "add", "sub_u": "sub", "min_i": "smin", "min_u": "umin", "max_i": "smax", "max_u": "umax",
        "and_b": "and", "or_b": "or", "xor_b": "xor", "inc_u": "inc", "dec_u": "dec",
        "swap_b": "swap", "cmpswap_b": "cmpswap",
    }.items()
    for size, wide in (("32", ""), ("64", "_x2"))
}  # fmt: skip
# LLVM's assembler also accepts the names of gfx10 on gfx11 and gfx12; its disassembler prints the others.
_ATOMICS |= {"fmin": "min_f32", "fmax": "max_f32", "fcmpswap": "cmpswap_f32", "csub": "csub_u32"}

_MEMORY = re.compile(r"(?P<space>global|flat|scratch|buffer|s|s_buffer)_(?P<kind>load|store|atomic)_(?P<what>\w+)")
_LDS = re.compile(r"ds_(?P<kind>load|store)_(?P<two>2addr_)?(?P<far>stride64_)?(?P<what>\w+)")
_EXCHANGE = re.compile(r"ds_storexchg_(?P<two>2addr_)?(?P<far>stride64_)?(?P<what>\w+)")
_KINDS = {"load": _LOADS, "store": _STORES, "atomic": _ATOMICS}


@cache
def normalize_name(mnemonic: str) -> str:
    """Return the name of an instruction in the tables: gfx9's name if later GPUs only renamed it."""
    known = _VECTOR.get(mnemonic) or _SCALAR.get(mnemonic)
    if known is not None:
        return known
    if mnemonic.startswith("s_"):
        for new, old in _LOGIC.items():
            if mnemonic.startswith(f"s_{new}_"):
                return mnemonic.replace(new, old)
    if found := _MEMORY.fullmatch(mnemonic):
        what = _KINDS[found["kind"]].get(found["what"], found["what"])
        # Scalar loads smaller than a dword are new in gfx12 and have no older name.
        small = found["space"] in ("s", "s_buffer") and found["what"] not in _DWORDS
        return mnemonic if small else f"{found['space']}_{found['kind']}_{what}"
    if found := _LDS.fullmatch(mnemonic):
        return _normalize_lds_name(found["kind"], bool(found["two"]), bool(found["far"]), found["what"])
    if found := _EXCHANGE.fullmatch(mnemonic):
        return f"ds_wrxchg{'2' if found['two'] else ''}{'st64' if found['far'] else ''}_{found['what']}"
    return mnemonic


def _normalize_lds_name(kind: str, two: bool, far: bool, what: str) -> str:
    old = "read" if kind == "load" else "write"
    return f"ds_{old}{'2' if two else ''}{'st64' if far else ''}_{what}"
