"""The product of a matrix instruction: registers of A and B → A · B, for all waves at once.

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
from tilewright.emulator.formats import FORMATS, U32, NumberFormat, find_format, make_value_table, unpack
from tilewright.emulator.matrix.arrange import Arrangement, arrange_inputs
from tilewright.emulator.matrix.layout import SCALE_BLOCK, broadcast_block, find_scale, pattern_lane
from tilewright.emulator.matrix.modifiers import MatrixModifiers, Pair
from tilewright.emulator.matrix.shapes import MatrixShape

Values = NDArray[Any]


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
        _find_format(shape.a, modifiers.a_signed, arch),
        _find_format(shape.b, modifiers.b_signed, arch),
    )
    return (
        MatrixInput(a_format, a, flush, modifiers.a_negated, halved, None, blocks, reduced),
        MatrixInput(b_format, b, flush, modifiers.b_negated, halved, lanes, None, reduced),
    )


def _find_format(kind: str, signed: bool, arch: Arch) -> NumberFormat:
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


Multiply = Callable[[U32, U32], Values]


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
