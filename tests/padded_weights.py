"""The public forward measurements of CK Tile, and the effect of padding weights along the wrong axis.

A harness that pads K output channels up to K + p must add p filters: (K, Y, X, C) becomes (K + p, Y, X, C). If it adds
p rows to each filter instead, (K, Y + p, X, C), the kernel still reads the memory as K + p filters of Y rows. Most of
them are then made of padding, and their output channels are zero although the kernel wrote every one of them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.ops.grouped_conv.problem import Problem

# Not in the repository: see its README for where the numbers are from.
MEASUREMENTS = Path(__file__).parents[2] / "shared" / "data" / "ck_tile_conv_gfx950" / "conv_fwd_bf16_gfx950.csv"
UNIT = 16  # what the harness pads K to a multiple of
K_AXIS, Y_AXIS, X_AXIS = range(3)


@dataclass(frozen=True)
class Measured:
    """A problem, and how many outputs of the first kernel were not zero."""

    problem: Problem
    non_zero: int

    @property
    def ratio(self) -> float:
        return self.non_zero / outputs(self.problem)


def measurements() -> Iterator[Measured]:
    """Each problem of the public file once: the count is that of the first kernel in all of its rows."""
    seen = set()
    with MEASUREMENTS.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["problem_idx"] not in seen:
                seen.add(row["problem_idx"])
                yield Measured(_problem(row), int(row["non_zero_first"]))


def _problem(row: dict[str, str]) -> Problem:
    def pair(first: str, second: str) -> tuple[int, int]:
        return int(row[first]), int(row[second])

    return Problem(
        direction="forward",
        n=int(row["N"]),
        g=int(row["G"]),
        c=int(row["C"]),
        k=int(row["K"]),
        input_size=pair("Hi", "Wi"),
        filter_size=pair("Y", "X"),
        stride=pair("stride_h", "stride_w"),
        pad=pair("pad_h", "pad_w"),
        dtype="bf16",
    )


def outputs(problem: Problem) -> int:
    """Elements of the output."""
    ho, wo = problem.output_size
    return int(problem.n * problem.k * ho * wo)


def padded_weights(weight: NDArray[Any], unit: int = UNIT, axis: int = Y_AXIS) -> NDArray[Any]:
    """Weights (K, Y, X, …) with as many zeros as K lacks to a multiple of `unit`, added at the end of an axis."""
    missing = [(0, 0)] * weight.ndim
    missing[axis] = (0, -weight.shape[0] % unit)
    return np.pad(weight, missing)


def taps_as_read(problem: Problem, unit: int = UNIT, axis: int = Y_AXIS) -> NDArray[np.bool_]:
    """Which taps (K, Y, X) hold a weight and not padding, as the kernel reads the memory of `padded_weights`."""
    shape = (problem.k, *problem.filter_size)
    memory = padded_weights(np.ones(shape, bool), unit, axis).ravel()
    return memory[: np.prod(shape)].reshape(shape)


def expected_non_zero(problem: Problem, unit: int = UNIT, axis: int = Y_AXIS) -> int:
    """Outputs of the K wanted channels that some input element and some weight other than padding contribute to."""
    inside = [_inside(problem, i) for i in range(2)]
    filters, counts = np.unique(taps_as_read(problem, unit, axis), axis=0, return_counts=True)
    reached = [np.count_nonzero(inside[0] @ taps.astype(int) @ inside[1].T) for taps in filters]
    return int(problem.n * np.dot(reached, counts))


def _inside(problem: Problem, i: int) -> NDArray[np.int_]:
    """For each output position and tap of a spatial dimension: 1 if the tap reads the input, 0 if its pads."""
    position = np.arange(problem.output_size[i])[:, None] * problem.stride[i]
    tap = np.arange(problem.filter_size[i]) * problem.dilation[i]
    read = position + tap - problem.left_pad[i]
    return ((read >= 0) & (read < problem.input_size[i])).astype(int)
