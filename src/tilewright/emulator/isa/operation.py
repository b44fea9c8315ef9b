"""An entry of the instruction table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operation:
    """The operation of an instruction, as an expression in its sources a, b, c, d.

    The expression has the same meaning in Python for NumPy arrays and in C for one lane: operators, comparisons,
    integers, conversions written as calls (`u64(a)`, `i32(a)`, `f32(a)`), and the functions of functions.py
    and functions.h, which have the same names. Types are u8 u16 u32 u64 i8 i16 i32 i64 f16 f32 f64. A source
    "mask" is one bit per lane, in scalar registers; "scc" is the SCC bit as u32; "old" before a type (`old f32`)
    is the old value of the destination. A source of type u16 or i16 of a scalar instruction is its 16-bit constant.

    `result` is the type of the first destination; "mask" for comparisons; "" for none. `scc` is, for scalar
    instructions, the new value of SCC, in a, b, c and the result r. `second` is the lane mask for a second
    destination, in a, b, c, d, r.
    """

    result: str
    sources: tuple[str, ...]
    expression: str
    scc: str = ""
    second: str = ""
