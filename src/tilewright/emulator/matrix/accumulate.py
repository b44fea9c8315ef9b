"""C and D of a matrix instruction: the product is added to C and written to D's registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.formats import FORMATS, U32, encode, flush_subnormal, unpack
from tilewright.emulator.matrix.arrange import Arrangement, arrange_output
from tilewright.emulator.matrix.modifiers import MatrixModifiers
from tilewright.emulator.matrix.shapes import MatrixShape

Values = NDArray[Any]
# The product, flat; the registers of C, or its constant; the registers of D.
Accumulate = Callable[[Values, "U32 | Values", U32], None]


def make_accumulator(shape: MatrixShape, modifiers: MatrixModifiers, flush: bool) -> Accumulate:
    """Return a function that adds the product of an instruction of that shape to C and writes D."""
    arrangement = arrange_output(shape)
    if shape.result == "i32":
        return _make_clamping_adder(arrangement) if modifiers.clamp else _make_integer_adder(arrangement)
    if shape.result == "f32":
        if flush:
            return _make_flushing_adder(arrangement)
        changed = modifiers.c_negated or modifiers.c_absolute
        return _make_signed_adder(arrangement, modifiers) if changed else _make_float_adder(arrangement)
    if shape.result == "f64":
        return _make_double_adder(arrangement, modifiers)
    return (
        _make_halves_adder(arrangement, shape, modifiers)
        if shape.layout == "wmma11"
        else _make_packed_adder(arrangement, shape, modifiers)
    )


def _fit_addend(arrangement: Arrangement, c: U32 | Values, kind: Any) -> Values:
    """Return C as numbers in the layout of D; a constant is unchanged."""
    return arrangement.split_registers(c.view(kind)) if c.ndim else c


def _make_float_adder(arrangement: Arrangement) -> Accumulate:
    def add(values: Values, c: U32 | Values, d: U32) -> None:
        to = arrangement.split_registers(d.view(np.float32))
        # A scaled product is f64 and is rounded once, after adding C.
        np.add(arrangement.to_registers(values), _fit_addend(arrangement, c, np.float32), out=to, casting="same_kind")

    return add


def _make_flushing_adder(arrangement: Arrangement) -> Accumulate:
    """Same as `_make_float_adder`, with subnormals of C and D flushed. No flushing instruction has signs for C."""
    plain = _make_float_adder(arrangement)

    def add(values: Values, c: U32 | Values, d: U32) -> None:
        plain(values, flush_subnormal(c.view(np.float32)), d)
        total = d.view(np.float32)
        flushed = flush_subnormal(total)
        if flushed is not total:
            total[...] = flushed

    return add


def _make_signed_adder(arrangement: Arrangement, modifiers: MatrixModifiers) -> Accumulate:
    def add(values: Values, c: U32 | Values, d: U32) -> None:
        addend = _apply_sign(_fit_addend(arrangement, c, np.float32), modifiers)
        np.add(arrangement.to_registers(values), addend, out=arrangement.split_registers(d.view(np.float32)))

    return add


def _apply_sign(values: Values, modifiers: MatrixModifiers) -> Values:
    if modifiers.c_absolute:
        values = np.abs(values)
    return np.negative(values) if modifiers.c_negated else values


def _make_integer_adder(arrangement: Arrangement) -> Accumulate:
    def add(values: Values, c: U32 | Values, d: U32) -> None:
        to = arrangement.split_registers(d.view(np.int32))
        np.add(arrangement.to_registers(values.astype(np.int32)), _fit_addend(arrangement, c, np.int32), out=to)

    return add


def _make_clamping_adder(arrangement: Arrangement) -> Accumulate:
    limits = np.iinfo(np.int32)

    def add(values: Values, c: U32 | Values, d: U32) -> None:
        total = arrangement.to_registers(values.astype(np.int64)) + _fit_addend(arrangement, c, np.int32)
        arrangement.split_registers(d.view(np.int32))[...] = np.clip(total, limits.min, limits.max)

    return add


def _make_double_adder(arrangement: Arrangement, modifiers: MatrixModifiers) -> Accumulate:
    def add(values: Values, c: U32 | Values, d: U32) -> None:
        addend = unpack(c, FORMATS["f64"]).swapaxes(0, 1) if c.ndim else c
        total = _to_registers(arrangement, values) + _apply_sign(addend, modifiers)
        words = total.view(np.uint32).reshape(*total.shape, 2)
        d[0::2], d[1::2] = words[..., 0], words[..., 1]

    return add


def _to_registers(arrangement: Arrangement, values: Values) -> Values:
    """Return a copy of the product as [elements, waves, lanes]."""
    elements, lanes = arrangement.shape
    return np.ascontiguousarray(arrangement.to_registers(values)).reshape(elements, values.shape[0], lanes)


def _make_packed_adder(arrangement: Arrangement, shape: MatrixShape, modifiers: MatrixModifiers) -> Accumulate:
    """Add 16-bit results, two in each register."""
    item = FORMATS[shape.result]

    def add(values: Values, c: U32 | Values, d: U32) -> None:
        addend = unpack(c, item).swapaxes(0, 1) if c.ndim else c
        codes = encode(_to_registers(arrangement, values) + _apply_sign(addend, modifiers), item).astype(np.uint32)
        d[...] = codes[0::2] | codes[1::2] << np.uint32(16)

    return add


def _make_halves_adder(arrangement: Arrangement, shape: MatrixShape, modifiers: MatrixModifiers) -> Accumulate:
    """Add 16-bit results, each in one half of a register. The other half is kept."""
    item = FORMATS[shape.result]
    part = 1 if modifiers.high else 0

    def add(values: Values, c: U32 | Values, d: U32) -> None:
        addend = unpack(c, item)[:, part::2].swapaxes(0, 1) if c.ndim else c
        codes = encode(_to_registers(arrangement, values) + _apply_sign(addend, modifiers), item)
        d.view(np.uint16).reshape((*d.shape, 2), copy=False)[..., part] = codes

    return add
