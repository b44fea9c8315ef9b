"""The arithmetic of a matrix instruction, for all waves at once: multiply A and B, add C, write D.

Products of f16, bf16, 8-bit and narrower floats are exact in f32, and sums are rounded to f32; the GPU's own order and
rounding inside a sum are not documented. Integers are also multiplied as f32: sums of at most 64 products below 2^16
stay far below 2^24, so every sum is exact. f64 is multiplied as f64, and so are scaled operands, which need its range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.spec import Arch
from tilewright.emulator.formats import (
    FORMATS,
    U32,
    NumberFormat,
    encode,
    find_format,
    flush_subnormal,
    make_value_table,
    unpack,
)
from tilewright.emulator.matrix.layout import (
    SCALE_BLOCK,
    Arrangement,
    arrange_inputs,
    arrange_output,
    broadcast_block,
    find_scale,
    pattern_lane,
)
from tilewright.emulator.matrix.modifiers import MatrixModifiers, Pair
from tilewright.emulator.matrix.shapes import MatrixShape

Values = NDArray[Any]
Multiply = Callable[[U32, U32], Values]
# The product, flat; the registers of C, or its constant; the registers of D.
Accumulate = Callable[[Values, "U32 | Values", U32], None]


def is_flushing(shape: MatrixShape, arch: Arch) -> bool:
    """Whether the instruction flushes subnormal operands and results to zero on that GPU.

    It is an assumption that this applies to C as to A and B, and that the mode register has no effect on it.
    """
    return arch.numbers.halves_flushed and shape.a in ("f16", "bf16")


@dataclass(frozen=True, slots=True)
class MatrixInput:
    """The conversion of the registers of A or B to matrices [waves, block, k, row or column]."""

    format: NumberFormat
    arrangement: Arrangement
    flush: bool
    negated: Pair
    halved: bool  # lanes 16 to 31 repeat lanes 0 to 15
    lanes: NDArray[np.intp] | None  # lanes to read instead of 0, 1, 2, …
    blocks: NDArray[np.intp] | None  # blocks to use instead of 0, 1, 2, …
    reduced: bool  # xf32

    def to_matrices(self, registers: U32) -> Values:
        """Return the matrices in registers [registers, waves, lanes]."""
        if self.halved:
            registers = registers[:, :, :16]
        if self.lanes is not None:
            registers = registers.take(self.lanes, axis=2)
        values = unpack(registers, self.format, self.flush)
        for start, negated in enumerate(self.negated):
            if negated:
                np.negative(values[:, start::2], out=values[:, start::2])
        if self.reduced:
            values = _to_xf32(values)
        result = self.arrangement.to_matrices(values.reshape(values.shape[0], -1))
        return result if self.blocks is None else result[:, self.blocks]


def _to_xf32(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round f32 to 10 bits of mantissa, to nearest even. AMD does not document the rounding of xf32."""
    bits = values.view(np.uint32)
    rounded = bits + np.uint32(0x0FFF) + (bits >> np.uint32(13) & np.uint32(1)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(values), rounded, bits).view(np.float32)


def make_inputs(shape: MatrixShape, modifiers: MatrixModifiers, arch: Arch) -> tuple[MatrixInput, MatrixInput]:
    """Return the conversions of A and B."""
    a, b = arrange_inputs(shape)
    flush, reduced, halved = is_flushing(shape, arch), shape.a == "xf32", shape.layout == "wmma11"
    lanes = pattern_lane(modifiers.blgp, np.arange(shape.lanes)) if modifiers.blgp else None
    blocks = broadcast_block(modifiers.cbsz, modifiers.abid, np.arange(shape.blocks)) if modifiers.cbsz else None
    a_format, b_format = (
        choose_format(shape.a, modifiers.a_signed, arch),
        choose_format(shape.b, modifiers.b_signed, arch),
    )
    return (
        MatrixInput(a_format, a, flush, modifiers.a_negated, halved, None, blocks, reduced),
        MatrixInput(b_format, b, flush, modifiers.b_negated, halved, lanes, None, reduced),
    )


def choose_format(kind: str, signed: bool, arch: Arch) -> NumberFormat:
    """Return the number format of an element type. Only iu8 and iu4 depend on `signed`."""
    if kind in ("iu8", "iu4"):
        return FORMATS[f"{'i' if signed else 'u'}{kind[2:]}"]
    return find_format("f32" if kind == "xf32" else kind, arch)


def compute_product(a: Values, b: Values) -> Values:
    """Multiply [waves, block, k, row] and [waves, block, k, column]; the result is [waves, block · row · column]."""
    result: Values = np.matmul(a.swapaxes(2, 3), b)
    return result.reshape(a.shape[0], -1)


def apply_scales(matrices: Values, registers: U32, byte: int) -> Values:
    """Multiply matrices [waves, 1, k, row or column] by the scales in a byte of a register [1, waves, lanes]."""
    waves, _, k, outer = matrices.shape
    codes = registers[0] >> np.uint32(8 * byte) & np.uint32(0xFF)
    row, group = find_scale(outer, np.arange(codes.shape[1]))
    scales = np.empty((waves, k // SCALE_BLOCK, outer), dtype=np.float64)
    scales[:, group, row] = make_value_table("e8m0").take(codes)
    parts = matrices.astype(np.float64).reshape(waves, 1, k // SCALE_BLOCK, SCALE_BLOCK, outer)
    return (parts * scales[:, None, :, None, :]).reshape(matrices.shape)


def has_equal_halves(registers: U32) -> bool:
    """Whether lanes 16 to 31 repeat lanes 0 to 15, as A and B of RDNA 3 must."""
    return np.array_equal(registers[:, :, :16], registers[:, :, 16:])


def make_multiplier(shape: MatrixShape, modifiers: MatrixModifiers, arch: Arch) -> Multiply:
    """Return a function that computes the product from the registers of A and B."""
    left, right = make_inputs(shape, modifiers, arch)
    return lambda a, b: compute_product(left.to_matrices(a), right.to_matrices(b))


def make_scaled_multiplier(
    shape: MatrixShape, modifiers: MatrixModifiers, arch: Arch
) -> Callable[[U32, U32, U32, U32], NDArray[np.float64]]:
    """Return a function that computes the product from the registers of A, B and their scales."""
    left, right = make_inputs(shape, modifiers, arch)
    of_a, of_b = modifiers.scale_bytes

    def multiply(a: U32, b: U32, a_scales: U32, b_scales: U32) -> NDArray[np.float64]:
        return compute_product(
            apply_scales(left.to_matrices(a), a_scales, of_a), apply_scales(right.to_matrices(b), b_scales, of_b)
        )

    return multiply


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
