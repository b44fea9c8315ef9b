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
from tilewright.emulator.formats import FORMATS, U32, Format, format_of, table, unpack
from tilewright.emulator.matrix.arrange import Arrangement, arrange_inputs
from tilewright.emulator.matrix.layout import SCALE_BLOCK, broadcast_block, pattern_lane, scale_place
from tilewright.emulator.matrix.modifiers import Modifiers, Pair
from tilewright.emulator.matrix.shapes import MatrixShape

Values = NDArray[Any]


def flushes(shape: MatrixShape, arch: Arch) -> bool:
    """Whether the instruction flushes subnormal operands and results to zero on that GPU.

    It is an assumption that this applies to C as to A and B, and that the mode register has no effect on it.
    """
    return arch.numbers.halves_flushed and shape.a in ("f16", "bf16")


@dataclass(frozen=True, slots=True)
class Input:
    """The conversion of the registers of A or B to matrices [waves, block, k, row or column]."""

    format: Format
    arrangement: Arrangement
    flush: bool
    negated: Pair
    halved: bool  # lanes 16 to 31 repeat lanes 0 to 15
    lanes: NDArray[np.intp] | None  # lanes to read instead of 0, 1, 2, …
    blocks: NDArray[np.intp] | None  # blocks to use instead of 0, 1, 2, …
    reduced: bool  # xf32

    def matrices(self, registers: U32) -> Values:
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
            values = _as_xf32(values)
        result = self.arrangement.matrices(values.reshape(values.shape[0], -1))
        return result if self.blocks is None else result[:, self.blocks]


def _as_xf32(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round f32 to 10 bits of mantissa, to nearest even. AMD does not document the rounding of xf32."""
    bits = values.view(np.uint32)
    rounded = bits + np.uint32(0x0FFF) + (bits >> np.uint32(13) & np.uint32(1)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(values), rounded, bits).view(np.float32)


def inputs(shape: MatrixShape, modifiers: Modifiers, arch: Arch) -> tuple[Input, Input]:
    """Return the conversions of A and B."""
    a, b = arrange_inputs(shape)
    flush, reduced, halved = flushes(shape, arch), shape.a == "xf32", shape.layout == "wmma11"
    lanes = pattern_lane(modifiers.blgp, np.arange(shape.lanes)) if modifiers.blgp else None
    blocks = broadcast_block(modifiers.cbsz, modifiers.abid, np.arange(shape.blocks)) if modifiers.cbsz else None
    a_format, b_format = _format(shape.a, modifiers.a_signed, arch), _format(shape.b, modifiers.b_signed, arch)
    return (
        Input(a_format, a, flush, modifiers.a_negated, halved, None, blocks, reduced),
        Input(b_format, b, flush, modifiers.b_negated, halved, lanes, None, reduced),
    )


def _format(kind: str, signed: bool, arch: Arch) -> Format:
    if kind in ("iu8", "iu4"):
        return FORMATS[f"{'i' if signed else 'u'}{kind[2:]}"]
    return format_of("f32" if kind == "xf32" else kind, arch)


def product(a: Values, b: Values) -> Values:
    """Multiply [waves, block, k, row] and [waves, block, k, column]; the result is [waves, block · row · column]."""
    result: Values = np.matmul(a.swapaxes(2, 3), b)
    return result.reshape(a.shape[0], -1)


def scaled(matrices: Values, registers: U32, byte: int) -> Values:
    """Multiply matrices [waves, 1, k, row or column] by the scales in a byte of a register [1, waves, lanes]."""
    waves, _, k, outer = matrices.shape
    codes = registers[0] >> np.uint32(8 * byte) & np.uint32(0xFF)
    row, group = scale_place(outer, np.arange(codes.shape[1]))
    scales = np.empty((waves, k // SCALE_BLOCK, outer), dtype=np.float64)
    scales[:, group, row] = table("e8m0").take(codes)
    parts = matrices.astype(np.float64).reshape(waves, 1, k // SCALE_BLOCK, SCALE_BLOCK, outer)
    return (parts * scales[:, None, :, None, :]).reshape(matrices.shape)


def halves_agree(registers: U32) -> bool:
    """Whether lanes 16 to 31 repeat lanes 0 to 15, as A and B of RDNA 3 must."""
    return np.array_equal(registers[:, :, :16], registers[:, :, 16:])


Multiply = Callable[[U32, U32], Values]


def multiplier(shape: MatrixShape, modifiers: Modifiers, arch: Arch) -> Multiply:
    """Return a function that computes the product from the registers of A and B."""
    left, right = inputs(shape, modifiers, arch)
    return lambda a, b: product(left.matrices(a), right.matrices(b))


def scaled_multiplier(
    shape: MatrixShape, modifiers: Modifiers, arch: Arch
) -> Callable[[U32, U32, U32, U32], NDArray[np.float64]]:
    """Return a function that computes the product from the registers of A, B and their scales."""
    left, right = inputs(shape, modifiers, arch)
    of_a, of_b = modifiers.scale_bytes

    def multiply(a: U32, b: U32, a_scales: U32, b_scales: U32) -> NDArray[np.float64]:
        return product(scaled(left.matrices(a), a_scales, of_a), scaled(right.matrices(b), b_scales, of_b))

    return multiply
