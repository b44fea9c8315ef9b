"""Comparisons: every condition for every type."""

from __future__ import annotations

from tilewright.emulator.isa.operation import Operation as Op

# A comparison of floats is false if an operand is NaN; the n… conditions are the negations of the others.
_INTEGER = {
    "lt": "a < b",
    "eq": "a == b",
    "le": "a <= b",
    "gt": "a > b",
    "ne": "a != b",
    "lg": "a != b",
    "ge": "a >= b",
}
_FLOAT = {
    "lt": "a < b",
    "eq": "a == b",
    "le": "a <= b",
    "gt": "a > b",
    "lg": "(a < b) | (a > b)",
    "ge": "a >= b",
    "o": "(a == a) & (b == b)",
    "u": "(a != a) | (b != b)",
    "nge": "negation(a >= b)",
    "nlg": "negation((a < b) | (a > b))",
    "ngt": "negation(a > b)",
    "nle": "negation(a <= b)",
    "neq": "a != b",
    "nlt": "negation(a < b)",
}
_ALWAYS = {"f": "(a != a) & (a == a)", "t": "(a == a) | (a != a)", "tru": "(a == a) | (a != a)"}
_INTEGERS = ("i16", "u16", "i32", "u32", "i64", "u64")
_FLOATS = ("f16", "f32", "f64")


def _build_vector_table() -> dict[str, Op]:
    table = {}
    for start in ("v_cmp", "v_cmpx"):
        for kind in _INTEGERS:
            for condition, expression in {**_INTEGER, **_ALWAYS}.items():
                table[f"{start}_{condition}_{kind}"] = Op("mask", (kind, kind), expression)
        for kind in _FLOATS:
            for condition, expression in {**_FLOAT, **_ALWAYS}.items():
                table[f"{start}_{condition}_{kind}"] = Op("mask", (kind, kind), expression)
            table[f"{start}_class_{kind}"] = Op("mask", (kind, "u32"), f"class_{kind}(a, b)")
    return table


def _build_scalar_table() -> dict[str, Op]:
    table = {}
    for condition in ("eq", "lg", "gt", "ge", "lt", "le"):
        test = _INTEGER[condition]
        table[f"s_cmp_{condition}_i32"] = Op("", ("i32", "i32"), "", scc=test)
        table[f"s_cmp_{condition}_u32"] = Op("", ("u32", "u32"), "", scc=test)
        table[f"s_cmpk_{condition}_i32"] = Op("", ("i32", "i16"), "", scc=test.replace("b", "i32(b)"))
        table[f"s_cmpk_{condition}_u32"] = Op("", ("u32", "u16"), "", scc=test.replace("b", "u32(b)"))
    for condition in ("eq", "lg"):
        table[f"s_cmp_{condition}_u64"] = Op("", ("u64", "u64"), "", scc=_INTEGER[condition])
    for kind in ("f16", "f32"):
        for condition, test in _FLOAT.items():
            table[f"s_cmp_{condition}_{kind}"] = Op("", (kind, kind), "", scc=test)
    return table


VECTOR_COMPARE: dict[str, Op] = _build_vector_table()
SCALAR_COMPARE: dict[str, Op] = _build_scalar_table()
