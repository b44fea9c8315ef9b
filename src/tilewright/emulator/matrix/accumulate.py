"""C and D of a matrix instruction: the product is added to C and written to D's registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.formats import FORMATS, U32, encode, flush_subnormal, unpack
from tilewright.emulator.matrix.arrange import Arrangement, arrange_output
from tilewright.emulator.matrix.modifiers import Modifiers
from tilewright.emulator.matrix.shapes import MatrixShape

Values = NDArray[Any]
# The product, flat; the registers of C, or its constant; the registers of D.
Accumulate = Callable[[Values, "U32 | Values", U32], None]


def accumulator(shape: MatrixShape, modifiers: Modifiers, flush: bool) -> Accumulate:
    """Return a function that adds the product of an instruction of that shape to C and writes D."""
    arrangement = arrange_output(shape)
    if shape.result == "i32":
        return _clamped(arrangement) if modifiers.clamp else _whole(arrangement)
    if shape.result == "f32":
        if flush:
            return _flushed(arrangement)
        changed = modifiers.c_negated or modifiers.c_absolute
        return _changed(arrangement, modifiers) if changed else _plain(arrangement)
    if shape.result == "f64":
        return _double(arrangement, modifiers)
    return (
        _halves(arrangement, shape, modifiers) if shape.layout == "wmma11" else _packed(arrangement, shape, modifiers)
    )


def _fitting(arrangement: Arrangement, c: U32 | Values, kind: Any) -> Values:
    """Return C as numbers in the layout of D; a constant is unchanged."""
    return arrangement.parts_of(c.view(kind)) if c.ndim else c


def _plain(arrangement: Arrangement) -> Accumulate:
    def add(values: Values, c: U32 | Values, d: U32) -> None:
        to = arrangement.parts_of(d.view(np.float32))
        # A scaled product is f64 and is rounded once, after adding C.
        np.add(arrangement.registers(values), _fitting(arrangement, c, np.float32), out=to, casting="same_kind")

    return add


def _flushed(arrangement: Arrangement) -> Accumulate:
    """Same as `_make_float_adder`, with subnormals of C and D flushed. No flushing instruction has signs for C."""
    plain = _plain(arrangement)

    def add(values: Values, c: U32 | Values, d: U32) -> None:
        plain(values, flush_subnormal(c.view(np.float32)), d)
        total = d.view(np.float32)
        flushed = flush_subnormal(total)
        if flushed is not total:
            total[...] = flushed

    return add


def _changed(arrangement: Arrangement, modifiers: Modifiers) -> Accumulate:
    def add(values: Values, c: U32 | Values, d: U32) -> None:
        addend = _with_sign(_fitting(arrangement, c, np.float32), modifiers)
        np.add(arrangement.registers(values), addend, out=arrangement.parts_of(d.view(np.float32)))

    return add


def _with_sign(values: Values, modifiers: Modifiers) -> Values:
    if modifiers.c_absolute:
        values = np.abs(values)
    return np.negative(values) if modifiers.c_negated else values


def _whole(arrangement: Arrangement) -> Accumulate:
    def add(values: Values, c: U32 | Values, d: U32) -> None:
        to = arrangement.parts_of(d.view(np.int32))
        np.add(arrangement.registers(values.astype(np.int32)), _fitting(arrangement, c, np.int32), out=to)

    return add


def _clamped(arrangement: Arrangement) -> Accumulate:
    limits = np.iinfo(np.int32)

    def add(values: Values, c: U32 | Values, d: U32) -> None:
        total = arrangement.registers(values.astype(np.int64)) + _fitting(arrangement, c, np.int32)
        arrangement.parts_of(d.view(np.int32))[...] = np.clip(total, limits.min, limits.max)

    return add


def _double(arrangement: Arrangement, modifiers: Modifiers) -> Accumulate:
    def add(values: Values, c: U32 | Values, d: U32) -> None:
        addend = unpack(c, FORMATS["f64"]).swapaxes(0, 1) if c.ndim else c
        total = _registers(arrangement, values) + _with_sign(addend, modifiers)
        words = total.view(np.uint32).reshape(*total.shape, 2)
        d[0::2], d[1::2] = words[..., 0], words[..., 1]

    return add


def _registers(arrangement: Arrangement, values: Values) -> Values:
    """Return a copy of the product as [elements, waves, lanes]."""
    elements, lanes = arrangement.shape
    return np.ascontiguousarray(arrangement.registers(values)).reshape(elements, values.shape[0], lanes)


def _packed(arrangement: Arrangement, shape: MatrixShape, modifiers: Modifiers) -> Accumulate:
    """Add 16-bit results, two in each register."""
    item = FORMATS[shape.result]

    def add(values: Values, c: U32 | Values, d: U32) -> None:
        addend = unpack(c, item).swapaxes(0, 1) if c.ndim else c
        codes = encode(_registers(arrangement, values) + _with_sign(addend, modifiers), item).astype(np.uint32)
        d[...] = codes[0::2] | codes[1::2] << np.uint32(16)

    return add


def _halves(arrangement: Arrangement, shape: MatrixShape, modifiers: Modifiers) -> Accumulate:
    """Add 16-bit results, each in one half of a register. The other half is kept."""
    item = FORMATS[shape.result]
    part = 1 if modifiers.high else 0

    def add(values: Values, c: U32 | Values, d: U32) -> None:
        addend = unpack(c, item)[:, part::2].swapaxes(0, 1) if c.ndim else c
        codes = encode(_registers(arrangement, values) + _with_sign(addend, modifiers), item)
        d.view(np.uint16).reshape((*d.shape, 2), copy=False)[..., part] = codes

    return add
