"""Layouts: which matrix element a lane holds, and conversions between registers and matrices.

A function of a layout takes the index of an element in its lane (from the lowest bits of the first register up) and a
lane, as integers or arrays, and returns its position: block, row (or column) and k of A (or B); block, row and column
of C and D.

Conversions need no index arrays. All sizes of matrix instructions are powers of two, and every layout maps each bit of
(element, lane) to one bit of (block, row, column). So a conversion is a transposition of an array that is split at
these bits, which NumPy does as a view.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.matrix.shapes import BITS, MatrixShape

Index = TypeVar("Index", int, NDArray[np.intp])
Positions = NDArray[np.intp]

SCALE_BLOCK = 32  # elements along k that share a scale


def mfma_input(outer: int, k: int, blocks: int, element: Index, lane: Index) -> tuple[Index, Index, Index]:
    """CDNA: neighbouring rows in neighbouring lanes, then the blocks, then groups of k that fill a lane's registers.

    AMD's matrix instruction calculator (CDNA 1 and 2); CK Tile's warp_gemm_attribute_mfma_impl.hpp (CDNA 3 and 4).
    """
    per_lane = outer * k * blocks // 64
    return lane // outer % blocks, lane % outer, lane // (outer * blocks) * per_lane + element


def mfma_halved_input(outer: int, k: int, element: Index, lane: Index) -> tuple[Index, Index, Index]:
    """The first half of a lane's elements from the first half of k, the others from the second.

    8-bit operands of f8f6f4 are so: CK's test/mx_mfma_op/mx_mfma_op.hpp and AMD's blog "Matrix Core Programming on
    CDNA 3 and CDNA 4", section 5.4. Narrower operands have 32 neighbours along k in a lane, like any MFMA (same
    sources). So is B of the sparse instructions that only CDNA 4 has: CK Tile's sparse_gfx9.hpp of 2026-06.
    """
    half = outer * k // 64 // 2
    return lane * 0, lane % outer, element // half * (k // 2) + lane // outer * half + element % half


def mfma_output(shape: MatrixShape, element: Index, lane: Index) -> tuple[Index, Index, Index]:
    """CDNA: groups of rows (four; one of f64) as registers, columns as lanes, further groups in further lanes.

    When all lanes are used, further rows and then further blocks follow in further registers. Blocks smaller than a
    register share its lanes. AMD's matrix instruction calculator.
    """
    rows = 1 if shape.result == "f64" else 4
    per_register = max(1, 64 * rows // (shape.m * shape.n))  # blocks that share a register
    groups = 64 // (shape.n * per_register)  # of rows of a block, in a register
    per_block = shape.m // groups
    row = element % per_block // rows * rows * groups + lane // (shape.n * per_register) * rows + element % rows
    return element // per_block * per_register + lane // shape.n % per_register, row, lane % shape.n


def wmma11_input(element: Index, lane: Index) -> tuple[Index, Index, Index]:
    """RDNA 3, wave32: a lane has all of its row (or column); lanes 16 to 31 repeat lanes 0 to 15.

    AMD's matrix instruction calculator; CK Tile's warp_gemm_attribute_wmma_impl_base_traits.hpp.
    """
    return lane * 0, lane % 16, element + lane * 0


def wmma11_output(element: Index, lane: Index) -> tuple[Index, Index, Index]:
    """RDNA 3, wave32: even rows in lanes 0 to 15, odd rows in lanes 16 to 31. Sources as for the inputs.

    Also seen on a GPU (gfx1151): pull request 485 of ROCm/FlyDSL.
    """
    return lane * 0, element * 2 + lane // 16, lane % 16


def wmma12_input(k: int, element: Index, lane: Index) -> tuple[Index, Index, Index]:
    """RDNA 4, wave32: half of k in each half of the lanes.

    CK Tile's warp_gemm_attribute_wmma_impl_base_traits.hpp, for k = 16. For iu4 with k = 32 the order along k is an
    assumption that does not affect results, because A and B always have the same order. The same holds for 16-bit
    operands with k = 32 of sparse instructions: AMD's matrix instruction calculator has another order.
    """
    return lane * 0, lane % 16, lane // 16 * (k // 2) + element


def wmma12_output(element: Index, lane: Index) -> tuple[Index, Index, Index]:
    """RDNA 4, wave32: rows 0 to 7 in lanes 0 to 15, rows 8 to 15 in lanes 16 to 31. CK Tile, as above."""
    return lane * 0, lane // 16 * 8 + element, lane % 16


def find_input(shape: MatrixShape, operand: str, element: Index, lane: Index) -> tuple[Index, Index, Index]:
    """Return block, row (of A) or column (of B), and k of an element of operand "a" or "b"."""
    outer, kind = (shape.m, shape.a) if operand == "a" else (shape.n, shape.b)
    k = shape.count_along_k(operand)
    if shape.layout == "wmma11":
        return wmma11_input(element, lane)
    if shape.layout == "wmma12":
        return wmma12_input(k, element, lane)
    if (shape.layout == "f8f6f4" and BITS[kind] == 8) or (operand == "b" and has_double_k(shape)):
        return mfma_halved_input(outer, k, element, lane)
    return mfma_input(outer, k, shape.blocks, element, lane)


def has_double_k(shape: MatrixShape) -> bool:
    """Whether the shape is that of a sparse instruction that only CDNA 4 has: four registers of A."""
    return shape.sparse and shape.layout == "mfma" and shape.count_registers("a") == 4


def find_output(shape: MatrixShape, element: Index, lane: Index) -> tuple[Index, Index, Index]:
    """Return block, row and column of an element of C and D."""
    if shape.layout == "wmma11":
        return wmma11_output(element, lane)
    if shape.layout == "wmma12":
        return wmma12_output(element, lane)
    return mfma_output(shape, element, lane)


def find_scale(outer: int, lane: Index) -> tuple[Index, Index]:
    """Return row (of A) or column (of B), and index of the group of 32 elements along k, of a lane's scale.

    CK's mx_mfma_op.hpp. For 8-bit operands these are not the elements of that lane.
    """
    return lane % outer, lane // outer


def pattern_lane(blgp: int, lane: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the lane that B is read from instead of `lane`. AMD's matrix instruction calculator, values 0 to 7."""
    sources = {
        0: lane,
        1: lane % 32,
        2: lane % 32 + 32,
        3: (lane + 16) % 64,
    }
    return sources[blgp] if blgp in sources else lane % 16 + 16 * (blgp - 4)


def broadcast_block(cbsz: int, abid: int, block: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the block of A used for `block`: block abid of each 2^cbsz. AMD's matrix instruction calculator."""
    return (block >> cbsz << cbsz) + abid


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The conversion of a flat array to several axes: split, transpose, join."""

    split: tuple[int, ...]
    order: tuple[int, ...]  # the parts in the order of the result, counted from 1; axis 0 is waves
    side_by_side: tuple[int, ...]  # the same with the waves after the parts of the first axis
    sizes: tuple[tuple[int, ...], ...]  # sizes of the parts of the first axis, and of the others
    shape: tuple[int, ...]

    def to_matrices(self, flat: NDArray[Any]) -> NDArray[Any]:
        """Convert [waves, n] to [waves, *shape]; a view if the parts of each axis are contiguous."""
        waves = flat.shape[0]
        return flat.reshape(waves, *self.split).transpose(self.order).reshape(waves, *self.shape)

    def to_registers(self, flat: NDArray[Any]) -> NDArray[Any]:
        """View [waves, n] in the shape that `split_registers` gives to an array [elements, waves, lanes]."""
        return flat.reshape(flat.shape[0], *self.split).transpose(self.side_by_side)

    def split_registers(self, registers: NDArray[Any]) -> NDArray[Any]:
        """View registers [elements, waves, lanes] in the shape of `to_registers`; never a copy."""
        first, others = self.sizes
        return registers.reshape((*first, registers.shape[1], *others), copy=False)


def arrange(positions: Positions) -> Arrangement:
    """Return the arrangement that moves element positions[i, j, …] of a flat array to [i, j, …]."""
    flat, count = positions.ravel(), positions.size.bit_length() - 1
    sources = [int(flat[1 << bit]).bit_length() - 1 for bit in range(count)]
    index = np.arange(positions.size)
    if not np.array_equal(flat, sum((index >> bit & 1) << source for bit, source in enumerate(sources))):
        raise AssertionError("a layout of a matrix instruction that does not map bits to bits")
    runs: list[list[list[int]]] = []
    bit = count
    for size in positions.shape:
        axis: list[list[int]] = []
        for _ in range(size.bit_length() - 1):
            bit -= 1
            if axis and axis[-1][-1] == sources[bit] + 1:
                axis[-1].append(sources[bit])
            else:
                axis.append([sources[bit]])
        runs.append(axis)
    ordered = sorted((run for axis in runs for run in axis), reverse=True)
    split = tuple(1 << len(run) for run in ordered)
    parts = [ordered.index(run) + 1 for axis in runs for run in axis]
    first, others = parts[: len(runs[0])], parts[len(runs[0]) :]
    sizes = tuple(tuple(split[part - 1] for part in half) for half in (first, others))
    return Arrangement(split, (0, *parts), (*first, 0, *others), sizes, positions.shape)


def _make_grid(elements: int, lanes: int) -> tuple[Positions, Positions]:
    flat = np.arange(elements * lanes)
    return flat // lanes, flat % lanes


def find_input_positions(shape: MatrixShape, operand: str) -> Positions:
    """Map [block, k, row or column] to the flat index in an array [elements, lanes] of the operand's registers."""
    outer = shape.m if operand == "a" else shape.n
    lanes = 16 if shape.layout == "wmma11" else shape.lanes  # the other half of the wave repeats them
    element, lane = _make_grid(shape.count_elements(operand), lanes)
    block, row, k = find_input(shape, operand, element, lane)
    positions = np.empty((shape.blocks, shape.count_along_k(operand), outer), dtype=np.intp)
    positions[block, k, row] = np.arange(element.size)
    return positions


@cache
def arrange_inputs(shape: MatrixShape) -> tuple[Arrangement, Arrangement]:
    """Arrange A as [block, k, row] and B as [block, k, column], with k in the order of A's registers.

    No sum depends on the order along k as long as both have the same, and this order makes A a view. Scales belong to
    neighbours along k, so with scales k stays in order. So it does if A is sparse: its elements are fewer than B's.
    """
    a, b = find_input_positions(shape, "a"), find_input_positions(shape, "b")
    if shape.scaled or shape.sparse:
        return arrange(a), arrange(b)
    order = np.argsort(a[0, :, 0])
    return arrange(a[:, order]), arrange(b[:, order])


@cache
def arrange_output(shape: MatrixShape) -> Arrangement:
    """Arrange D: from an array [block, row, column] to elements and lanes."""
    elements = shape.count_elements("d")
    element, lane = _make_grid(elements, shape.lanes)
    block, row, column = find_output(shape, element, lane)
    return arrange(((block * shape.m + row) * shape.n + column).reshape(elements, shape.lanes))
