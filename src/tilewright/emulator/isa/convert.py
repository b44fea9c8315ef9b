"""Conversions between number formats."""

from __future__ import annotations

from tilewright.emulator.isa.operation import Operation as Op

_PAIR = ("f32", "f32")
# A byte of c is replaced; rounding towards zero is that of OpenCL's amd_pack (cl_amd_media_ops).
_REPLACED_BYTE = "(c & ~(u32(255) << ((b & 3) * 8))) | (u32(saturate_u8(a)) << ((b & 3) * 8))"

# Conversions between number formats.
CONVERT: dict[str, Op] = {
    "v_cvt_f32_u32": Op("f32", ("u32",), "f32(a)"),
    "v_cvt_f32_i32": Op("f32", ("i32",), "f32(a)"),
    "v_cvt_u32_f32": Op("u32", ("f32",), "f64_to_u32(f64(a))"),
    "v_cvt_i32_f32": Op("i32", ("f32",), "f64_to_i32(f64(a))"),
    "v_cvt_rpi_i32_f32": Op("i32", ("f32",), "f64_to_i32(floor_f64(f64(a) + 0.5))"),
    "v_cvt_flr_i32_f32": Op("i32", ("f32",), "f64_to_i32(floor_f64(f64(a)))"),
    "v_cvt_f64_f32": Op("f64", ("f32",), "f64(a)"),
    "v_cvt_f32_f64": Op("f32", ("f64",), "f32(a)"),
    "v_cvt_f64_i32": Op("f64", ("i32",), "f64(a)"),
    "v_cvt_f64_u32": Op("f64", ("u32",), "f64(a)"),
    "v_cvt_i32_f64": Op("i32", ("f64",), "f64_to_i32(a)"),
    "v_cvt_u32_f64": Op("u32", ("f64",), "f64_to_u32(a)"),
    "v_cvt_f16_f32": Op("f16", ("f32",), "f16(a)"),
    "v_cvt_f32_f16": Op("f32", ("f16",), "f32(a)"),
    "v_cvt_f16_u16": Op("f16", ("u16",), "f16(f32(a))"),
    "v_cvt_f16_i16": Op("f16", ("i16",), "f16(f32(a))"),
    "v_cvt_norm_i16_f16": Op("i16", ("f16",), "f64_to_i16(norm_f64(f32(a), 32767.0))"),
    "v_cvt_norm_u16_f16": Op("u16", ("f16",), "f64_to_u16(norm_f64(f32(a), 65535.0))"),
    "v_cvt_u16_f16": Op("u16", ("f16",), "f64_to_u16(f64(a))"),
    "v_cvt_i16_f16": Op("i16", ("f16",), "f64_to_i16(f64(a))"),
    "v_cvt_i32_i16": Op("i32", ("i16",), "i32(a)"),
    "v_cvt_u32_u16": Op("u32", ("u16",), "u32(a)"),
    "v_cvt_f32_bf16": Op("f32", ("u16",), "f32_of_bf16(a)"),
    # Four bits as a signed number of sixteenths.
    "v_cvt_off_f32_i4": Op("f32", ("u32",), "f32(i32(a << 28) >> 28) * 0.0625"),
    "v_cvt_pk_u8_f32": Op("u32", ("f32", "u32", "u32"), _REPLACED_BYTE),
    "v_cvt_pkaccum_u8_f32": Op("u32", ("f32", "u32", "old u32"), _REPLACED_BYTE),
    "v_cvt_sr_f16_f32": Op("f16", ("f32", "u32"), "f16_random(a, b)"),
    "v_cvt_sr_bf16_f32": Op("u16", ("f32", "u32"), "bf16_random(a, b)"),
    **{f"v_cvt_f32_ubyte{k}": Op("f32", ("u32",), f"f32((a >> {8 * k}) & 255)") for k in range(4)},
    # Two results in one register, the first in the lower half.
    "v_cvt_pkrtz_f16_f32": Op("u32", _PAIR, "pack16(f16_toward_zero(a), f16_toward_zero(b))"),
    "v_cvt_pk_f16_f32": Op(
        "u32",
        _PAIR,
        "pack16(bits16(f16(a)), bits16(f16(b)))",
        limited="pack16(bits16(limit_f16(f16(a), finite_f32(a))), bits16(limit_f16(f16(b), finite_f32(b))))",
    ),
    "v_cvt_pk_bf16_f32": Op("u32", _PAIR, "pack16(bf16_of_f32(a), bf16_of_f32(b))"),
    "v_cvt_pk_u16_u32": Op("u32", ("u32", "u32"), "pack16(saturate_u16(i64(a)), saturate_u16(i64(b)))"),
    "v_cvt_pk_i16_i32": Op("u32", ("i32", "i32"), "pack16(u16(saturate_i16(i64(a))), u16(saturate_i16(i64(b))))"),
    "v_cvt_pk_u16_f32": Op("u32", _PAIR, "pack16(f64_to_u16(f64(a)), f64_to_u16(f64(b)))"),
    "v_cvt_pk_i16_f32": Op("u32", _PAIR, "pack16(u16(f64_to_i16(f64(a))), u16(f64_to_i16(f64(b))))"),
    "v_cvt_pknorm_i16_f32": Op(
        "u32", _PAIR, "pack16(u16(f64_to_i16(norm_f64(a, 32767.0))), u16(f64_to_i16(norm_f64(b, 32767.0))))"
    ),
    "v_cvt_pknorm_i16_f16": Op(
        "u32",
        ("f16", "f16"),
        "pack16(u16(f64_to_i16(norm_f64(f32(a), 32767.0))), u16(f64_to_i16(norm_f64(f32(b), 32767.0))))",
    ),
    "v_cvt_pknorm_u16_f16": Op(
        "u32",
        ("f16", "f16"),
        "pack16(f64_to_u16(norm_f64(f32(a), 65535.0)), f64_to_u16(norm_f64(f32(b), 65535.0)))",
    ),
    "v_cvt_pknorm_u16_f32": Op(
        "u32", _PAIR, "pack16(f64_to_u16(norm_f64(a, 65535.0)), f64_to_u16(norm_f64(b, 65535.0)))"
    ),
}


def _build_small_conversions(encoding: str, limited: str = "limited") -> dict[str, Op]:
    """Build conversions of 8-bit floats: fp8 has 4 exponent bits, bf8 has 5. `encoding` is "fnuz" or "ocp".

    `limited` is the ending of functions while MODE.FP16_OVFL is set.
    """
    table: dict[str, Op] = {}
    for kind in ("fp8", "bf8"):
        name, get = f"{kind}_{encoding}", f"f32_of_{kind}_{encoding}"
        table |= {
            f"v_cvt_pk_{kind}_f32": Op(
                "u16",
                _PAIR,
                f"pack8({name}_of_f32(a), {name}_of_f32(b))",
                limited=f"pack8({name}_{limited}(a), {name}_{limited}(b))",
            ),
            f"v_cvt_sr_{kind}_f32": Op(
                "u8", ("f32", "u32"), f"{name}_random(a, b)", limited=f"{name}_random_{limited}(a, b)"
            ),
            f"v_cvt_f32_{kind}": Op("f32", ("u8",), f"{get}(a)"),
            f"v_cvt_pk_f32_{kind}": Op(
                "u64", ("u16",), f"u64(bits32({get}(u8(a)))) | (u64(bits32({get}(u8(a >> 8)))) << 32)"
            ),
        }
    return table


# By the GPU's encoding of 8-bit floats, and whether MODE.FP16_OVFL limits infinities, too.
CONVERT_SMALL: dict[tuple[str, bool], dict[str, Op]] = {
    ("fnuz", False): _build_small_conversions("fnuz"),
    ("ocp", False): _build_small_conversions("ocp"),
    ("ocp", True): _build_small_conversions("ocp", "clamped"),
}
