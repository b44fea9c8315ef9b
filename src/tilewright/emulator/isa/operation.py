"""An entry of the instruction table, and the array types that its functions compute with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

TYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(kind)
    for name, kind in {
        "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
        "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
        "f16": np.float16, "f32": np.float32, "f64": np.float64,
    }.items()
}  # fmt: skip
BITS = {"f16": np.dtype(np.uint16), "f32": np.dtype(np.uint32), "f64": np.dtype(np.uint64)}


def view(values: Array, kind: np.dtype[Any]) -> Array:
    """View the bits as another type of the same size; also for strided and broadcast arrays."""
    if values.dtype == kind:
        return values
    return values.view(kind)


def to_bits(values: Array) -> Array:
    """Return the bits of floats."""
    return values.view(f"u{values.dtype.itemsize}")


@dataclass(frozen=True, slots=True)
class Operation:
    """The operation of an instruction, as an expression in its sources a, b, c, d.

    The expression has the same meaning in Python for NumPy arrays and in C for one lane: operators, comparisons,
    integers, conversions written as calls (`u64(a)`, `i32(a)`, `f32(a)`), and the functions of numpy_form.py
    and functions.h, which have the same names. Types are u8 u16 u32 u64 i8 i16 i32 i64 f16 f32 f64. A source
    "mask" is one bit per lane, in scalar registers; "scc" is the SCC bit as u32; "old" before a type (`old f32`)
    is the old value of the destination. A source of type u16 or i16 of a scalar instruction is its 16-bit constant.

    `result` is the type of the first destination; "mask" for comparisons; "" for none. `scc` is, for scalar
    instructions, the new value of SCC, in a, b, c and the result r. `second` is the lane mask for a second
    destination, in a, b, c, d, r. `limited` is the expression while MODE.FP16_OVFL is set, if it is not the one that
    `choose_expression` derives.
    """

    result: str
    sources: tuple[str, ...]
    expression: str
    scc: str = ""
    second: str = ""
    limited: str = ""


# Functions whose infinities are exact results, not overflow; comparisons return a source.
_EXACT = re.compile(r"\b(rcp|rsq|log|min|max|minimum|maximum|med3|select|floor|ceil|trunc|rint|fract|frexp)\w*\(")


def choose_expression(operation: Operation, limits: bool) -> str:
    """Return the expression of an operation. If MODE.FP16_OVFL `limits` overflow, an f16 that is infinite although all
    sources are finite becomes the largest number."""
    if not limits:
        return operation.expression
    if operation.limited:
        return operation.limited
    kinds = [kind.removeprefix("old ") for kind in operation.sources]
    finite = [f"finite_{kind}({name})" for name, kind in zip("abcd", kinds, strict=False) if kind in ("f16", "f32")]
    if operation.result != "f16" or not finite or _EXACT.search(operation.expression):
        return operation.expression
    return f"limit_f16(f16({operation.expression}), {' & '.join(finite)})"
