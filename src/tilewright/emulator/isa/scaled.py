"""Conversions between small floats and f32, f16 or bf16 with a scale (v_cvt_scalef32_…, gfx950).

The exponent of an f32 is the scale: numbers are divided by it before they are rounded to a small float, and multiplied
by it when they are read. Names and operands are those of AMD's CDNA4 ISA manual. Of formats without NaN and infinities,
NaN becomes the largest number, as in HIP's amd_hip_ocp_host.hpp.
"""

from __future__ import annotations

from tilewright.emulator.isa.operation import Operation as Op

# A source as f32, by its type in names and the expression of its bits.
TO_SINGLE = {"f16": "f32(float16(u16({})))", "bf16": "f32_of_bf16(u16({}))"}
FRACTION_BITS = {"f16": 10, "bf16": 7}
_BYTES = ("fp8", "bf8")


def _pick_halves(kind: str, name: str = "a") -> tuple[str, str]:
    """Return the two numbers of a register as f32."""
    return TO_SINGLE[kind].format(name), TO_SINGLE[kind].format(f"{name} >> 16")


def _make(result: str, sources: tuple[str, ...], expression: str, limits: str = "") -> Op:
    """Make an operation; with MODE.FP16_OVFL its functions have the ending `_clamped` where `limits` names them."""
    limited = expression.replace(f"{limits}(", f"{limits}_clamped(") if limits else ""
    return Op(result, sources, expression, limited=limited)


def _build_encodings() -> dict[str, Op]:
    """Build conversions to 8-bit floats, two at a time or one with random rounding."""
    table: dict[str, Op] = {}
    for kind in _BYTES:
        put, random = f"{kind}_ocp_scaled", f"{kind}_ocp_scaled_random"
        table[f"v_cvt_scalef32_pk_{kind}_f32"] = _make(
            "u16", ("f32", "f32", "f32"), f"pack8({put}(a, c), {put}(b, c))", put
        )
        table[f"v_cvt_scalef32_sr_{kind}_f32"] = _make("u8", ("f32", "u32", "f32"), f"{random}(a, b, c, 23)", random)
        for source in TO_SINGLE:
            low, high = _pick_halves(source)
            table[f"v_cvt_scalef32_pk_{kind}_{source}"] = _make(
                "u16", ("u32", "f32"), f"pack8({put}({low}, b), {put}({high}, b))", put
            )
            table[f"v_cvt_scalef32_sr_{kind}_{source}"] = _make(
                "u8", ("u16", "u32", "f32"), f"{random}({low}, b, c, {FRACTION_BITS[source]})", random
            )
    return table


def _build_fp4_encodings() -> dict[str, Op]:
    """Build conversions to two fp4 in a byte. Random rounding of the second uses the next random number."""
    put, random = "fp4_ocp_scaled", "fp4_ocp_scaled_random"
    table = {
        "v_cvt_scalef32_pk_fp4_f32": Op("u8", ("f32", "f32", "f32"), f"{put}(a, c) | ({put}(b, c) << 4)"),
        "v_cvt_scalef32_sr_pk_fp4_f32": Op(
            "u8", ("u64", "u32", "f32"),
            f"{random}(float32(u32(a)), b, c, 23) | ({random}(float32(u32(a >> 32)), next_random(b), c, 23) << 4)",
        ),
    }  # fmt: skip
    for source, bits in FRACTION_BITS.items():
        low, high = _pick_halves(source)
        table[f"v_cvt_scalef32_pk_fp4_{source}"] = Op(
            "u8", ("u32", "f32"), f"{put}({low}, b) | ({put}({high}, b) << 4)"
        )
        table[f"v_cvt_scalef32_sr_pk_fp4_{source}"] = Op(
            "u8",
            ("u32", "u32", "f32"),
            f"{random}({low}, b, c, {bits}) | ({random}({high}, next_random(b), c, {bits}) << 4)",
        )
    return table


def _join(kind: str, low: str, high: str) -> tuple[str, str]:
    """Return result type and expression of two f64 as numbers of a type."""
    if kind == "f32":
        return "u64", f"u64(bits32(f32({low}))) | (u64(bits32(f32({high}))) << 32)"
    if kind == "f16":
        return "u32", f"pack16(bits16(f16({low})), bits16(f16({high})))"
    return "u32", f"pack16(bf16_of_f32(f32({low})), bf16_of_f32(f32({high})))"


def _build_decodings() -> dict[str, Op]:
    table: dict[str, Op] = {}
    for kind in _BYTES:
        get = f"f64_of_{kind}_ocp"
        for result in ("f32", "f16"):
            table[f"v_cvt_scalef32_{result}_{kind}"] = Op(result, ("u8", "f32"), f"{get}(a, b)")
        for result in ("f32", "f16", "bf16"):
            wide, expression = _join(result, f"{get}(u8(a), b)", f"{get}(u8(a >> 8), b)")
            table[f"v_cvt_scalef32_pk_{result}_{kind}"] = Op(wide, ("u16", "f32"), expression)
    for result in ("f32", "f16", "bf16"):
        wide, expression = _join(result, "f64_of_fp4_ocp(a & 15, b)", "f64_of_fp4_ocp(a >> 4, b)")
        table[f"v_cvt_scalef32_pk_{result}_fp4"] = Op(wide, ("u8", "f32"), expression)
    return table


SCALED: dict[str, Op] = {**_build_encodings(), **_build_fp4_encodings(), **_build_decodings()}
