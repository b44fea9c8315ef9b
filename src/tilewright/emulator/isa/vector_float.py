"""Floating point of 32 and 64 bits in vector registers."""

from __future__ import annotations

from tilewright.emulator.isa.operation import Operation as Op

# v_exp and v_log are to the base 2; v_sin and v_cos take turns, not radians.
_ONE = ("floor", "ceil", "trunc", "rcp", "rsq", "sqrt", "frexp_mant", "fract")
_ONE_SHORT = ("exp", "log", "sin", "cos")  # not for f64


def build_float_operations(kind: str) -> dict[str, Op]:
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


def build_short_float_operations(kind: str) -> dict[str, Op]:
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
    "v_fma_legacy_f32": Op("f32", ("f32", "f32", "f32"), "select((a == 0) | (b == 0), f32(0) + c, fma_f32(a, b, c))"),
    "v_fmac_legacy_f32": Op(
        "f32", ("f32", "f32", "old f32"), "select((a == 0) | (b == 0), f32(0) + c, fma_f32(a, b, c))"
    ),
    "v_ldexp_f32": Op("f32", ("f32", "i32"), "ldexp_f32(a, b)"),
    "v_frexp_exp_i32_f32": Op("i32", ("f32",), "frexp_exp_f32(a)"),
    "v_div_scale_f32": Op("f32", ("f32", "f32", "f32"), "div_scale_f32(a, b, c)", second="div_scaled_f32(a, b, c)"),
    "v_div_fmas_f32": Op("f32", ("f32", "f32", "f32", "mask"), "div_fmas_f32(a, b, c, d)"),
}

_DOUBLE = {
    "v_ldexp_f64": Op("f64", ("f64", "i32"), "ldexp_f64(a, b)"),
    "v_frexp_exp_i32_f64": Op("i32", ("f64",), "frexp_exp_f64(a)"),
    "v_div_scale_f64": Op("f64", ("f64", "f64", "f64"), "div_scale_f64(a, b, c)", second="div_scaled_f64(a, b, c)"),
    "v_div_fmas_f64": Op("f64", ("f64", "f64", "f64", "mask"), "div_fmas_f64(a, b, c, d)"),
}

VECTOR_FLOAT: dict[str, Op] = {
    **build_float_operations("f32"),
    **build_short_float_operations("f32"),
    **build_float_operations("f64"),
    **_SINGLE,
    **_DOUBLE,
}
