"""Move numbers from registers to matrices and back without index arrays.

All sizes of matrix instructions are powers of two, and every layout maps each bit of (element, lane) to one bit of
(block, row, column). So the conversion is a transposition of an array that is split at these bits, which NumPy does as
a view.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.emulator.matrix.layout import find_input, find_output
from tilewright.emulator.matrix.shapes import MatrixShape

Positions = NDArray[np.intp]


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
    positions = np.empty((shape.blocks, shape.k, outer), dtype=np.intp)
    positions[block, k, row] = np.arange(element.size)
    return positions


@cache
def arrange_inputs(shape: MatrixShape) -> tuple[Arrangement, Arrangement]:
    """Arrange A as [block, k, row] and B as [block, k, column], with k in the order of A's registers.

    No sum depends on the order along k as long as both have the same, and this order makes A a view. Scales belong to
    neighbours along k, so with scales k stays in order.
    """
    a, b = find_input_positions(shape, "a"), find_input_positions(shape, "b")
    order = np.arange(shape.k) if shape.scaled else np.argsort(a[0, :, 0])
    return arrange(a[:, order]), arrange(b[:, order])


@cache
def arrange_output(shape: MatrixShape) -> Arrangement:
    """Arrange D: from an array [block, row, column] to elements and lanes."""
    elements = shape.count_elements("d")
    element, lane = _make_grid(elements, shape.lanes)
    block, row, column = find_output(shape, element, lane)
    return arrange(((block * shape.m + row) * shape.n + column).reshape(elements, shape.lanes))
