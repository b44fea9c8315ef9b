"""All operations by name, and the comparisons among them; `names.normalize_name` returns the name of an instruction."""

from __future__ import annotations

from functools import cache

from tilewright.arch.spec import Arch
from tilewright.emulator.isa import scalar
from tilewright.emulator.isa.convert import CONVERT, CONVERT_SMALL
from tilewright.emulator.isa.operation import Operation
from tilewright.emulator.isa.packed import DOT, PACKED, SATURATED_PACKED
from tilewright.emulator.isa.scaled import SCALED
from tilewright.emulator.isa.vector import (
    KEEPS_OTHER_HALF,
    SATURATED_HALF,
    SATURATED_INTEGER,
    VECTOR_FLOAT,
    VECTOR_HALF,
    VECTOR_INTEGER,
)
from tilewright.emulator.isa.wide import WIDE

# A comparison of floats is false if an operand is NaN; the n… conditions are the negations of the others.
_INTEGER_CONDITIONS = {
    "lt": "a < b",
    "eq": "a == b",
    "le": "a <= b",
    "gt": "a > b",
    "ne": "a != b",
    "lg": "a != b",
    "ge": "a >= b",
}
_FLOAT_CONDITIONS = {
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
_CONSTANT_CONDITIONS = {"f": "(a != a) & (a == a)", "t": "(a == a) | (a != a)", "tru": "(a == a) | (a != a)"}
_INTEGERS = ("i16", "u16", "i32", "u32", "i64", "u64")
_FLOATS = ("f16", "f32", "f64")


def _build_vector_comparisons() -> dict[str, Operation]:
    table = {}
    for start in ("v_cmp", "v_cmpx"):
        for kind in _INTEGERS:
            for condition, expression in {**_INTEGER_CONDITIONS, **_CONSTANT_CONDITIONS}.items():
                table[f"{start}_{condition}_{kind}"] = Operation("mask", (kind, kind), expression)
        for kind in _FLOATS:
            for condition, expression in {**_FLOAT_CONDITIONS, **_CONSTANT_CONDITIONS}.items():
                table[f"{start}_{condition}_{kind}"] = Operation("mask", (kind, kind), expression)
            table[f"{start}_class_{kind}"] = Operation("mask", (kind, "u32"), f"class_{kind}(a, b)")
    return table


def _build_scalar_comparisons() -> dict[str, Operation]:
    table = {}
    for condition in ("eq", "lg", "gt", "ge", "lt", "le"):
        test = _INTEGER_CONDITIONS[condition]
        table[f"s_cmp_{condition}_i32"] = Operation("", ("i32", "i32"), "", scc=test)
        table[f"s_cmp_{condition}_u32"] = Operation("", ("u32", "u32"), "", scc=test)
        table[f"s_cmpk_{condition}_i32"] = Operation("", ("i32", "i16"), "", scc=test.replace("b", "i32(b)"))
        table[f"s_cmpk_{condition}_u32"] = Operation("", ("u32", "u16"), "", scc=test.replace("b", "u32(b)"))
    for condition in ("eq", "lg"):
        table[f"s_cmp_{condition}_u64"] = Operation("", ("u64", "u64"), "", scc=_INTEGER_CONDITIONS[condition])
    for kind in ("f16", "f32"):
        for condition, test in _FLOAT_CONDITIONS.items():
            table[f"s_cmp_{condition}_{kind}"] = Operation("", (kind, kind), "", scc=test)
    return table


SCALAR: dict[str, Operation] = {**scalar.SCALAR, **_build_scalar_comparisons()}
COMPARE: dict[str, Operation] = _build_vector_comparisons()
VECTOR: dict[str, Operation] = {**VECTOR_INTEGER, **VECTOR_FLOAT, **VECTOR_HALF, **CONVERT, **SCALED}
SATURATED: dict[str, Operation] = {**SATURATED_INTEGER, **SATURATED_HALF}


@cache
def vector_operations(encoding: str, family: str) -> dict[str, Operation]:
    """Return VECTOR and the conversions of 8-bit floats in an encoding (`Arch.numbers.fp8`) on a family of GPUs."""
    return {**VECTOR, **CONVERT_SMALL[encoding, encoding == "ocp" and family.startswith("cdna")]}


def keeps_other_half(name: str, arch: Arch) -> bool:
    """Whether an operation with a 16-bit result keeps the other half of its destination."""
    return not arch.family.startswith("cdna") or name in KEEPS_OTHER_HALF


def all_operations() -> dict[str, Operation]:
    """Return all entries of all tables, for tests and generators."""
    parts = {
        "": {**SCALAR, **scalar.SAVE_EXEC, **scalar.WRITE_EXEC, **COMPARE, **VECTOR, **DOT},
        "fnuz ": CONVERT_SMALL["fnuz", False],
        "ocp ": CONVERT_SMALL["ocp", False],
        "ocp, limited ": CONVERT_SMALL["ocp", True],
        "packed ": PACKED,
        "element of ": {name: wide.element for name, wide in WIDE.items()},
        "saturated ": SATURATED,
        "saturated packed ": SATURATED_PACKED,
    }
    return {start + name: operation for start, table in parts.items() for name, operation in table.items()}
