"""Compare two tensors bit by bit: how many elements differ, where, and by how much.

Imports NumPy: import this module only where tensors are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Elements that a difference lists with their values.
LISTED = 6


@dataclass(frozen=True, slots=True)
class BitDifference:
    """How a tensor of the device differs from that of the emulated device.

    `max_ulps` is the largest difference in units of the last place, None if no pair of different elements has finite
    values. `nans` counts pairs in which exactly one value is a NaN. `untouched` counts elements
    with the bytes of unwritten memory on the device only. `shown` has the first elements: index, value of the device,
    value of the emulated device. `spans` has for each dimension the least and the greatest index, and their number.
    """

    tensor: str
    dtype: str
    elements: int
    different: int
    untouched: int
    nans: int
    max_ulps: float | None
    shown: tuple[tuple[tuple[int, ...], float, float], ...]
    spans: tuple[tuple[int, int, int], ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values. Numbers that JSON does not have are texts."""
        shown = [[list(index), _to_plain(mine), _to_plain(twin)] for index, mine, twin in self.shown]
        return {**asdict(self), "shown": shown, "spans": [list(each) for each in self.spans]}


def compare_bits(
    name: str,
    dtype: str,
    mine: NDArray[Any],
    twin: NDArray[Any],
    *,
    defined: NDArray[np.bool_] | None = None,
    untouched: NDArray[np.bool_] | None = None,
) -> BitDifference | None:
    """Compare the tensors of the device and of the emulated device; None if all bits are equal.

    Elements that are not `defined` are not compared. `untouched` are the elements that the device did not write.
    """
    bits = np.dtype(f"u{mine.dtype.itemsize}")
    ours, theirs = np.ascontiguousarray(mine).view(bits), np.ascontiguousarray(twin).view(bits)
    differs: NDArray[np.bool_] = ours.reshape(mine.shape) != theirs.reshape(mine.shape)
    if defined is not None:
        differs &= defined
    count = int(np.count_nonzero(differs))
    if not count:
        return None
    where = np.argwhere(differs)
    ulps = count_ulps(mine[differs], twin[differs])
    finite = ulps[np.isfinite(ulps)]
    wide_mine, wide_twin = mine[differs].astype(np.float64), twin[differs].astype(np.float64)
    shown = tuple(
        (tuple(int(i) for i in where[at]), float(wide_mine[at]), float(wide_twin[at]))
        for at in range(min(count, LISTED))
    )
    return BitDifference(
        tensor=name,
        dtype=dtype,
        elements=int(differs.size),
        different=count,
        untouched=0 if untouched is None else int(np.count_nonzero(untouched & differs)),
        nans=int(np.count_nonzero(np.isnan(wide_mine) != np.isnan(wide_twin))),
        max_ulps=float(finite.max()) if finite.size else None,
        shown=shown,
        spans=_find_spans(where),
    )


def count_ulps(mine: NDArray[Any], twin: NDArray[Any]) -> NDArray[np.float64]:
    """The number of values of the type between two values, for each pair; infinite if one of them is not finite."""
    if np.issubdtype(mine.dtype, np.integer):
        return np.abs(mine.astype(np.float64) - twin.astype(np.float64))
    places = [_to_places(each) for each in (mine, twin)]
    ulps: NDArray[np.float64] = np.abs(places[0].astype(np.float64) - places[1].astype(np.float64))
    finite = np.isfinite(mine.astype(np.float64)) & np.isfinite(twin.astype(np.float64))
    return np.where(finite, ulps, np.inf)


def _to_places(values: NDArray[Any]) -> NDArray[np.int64]:
    """The place of each value among all values of its type. Both zeros have place 0."""
    size = values.dtype.itemsize
    bits = np.ascontiguousarray(values).view(f"u{size}").astype(np.int64)
    sign = np.int64(1) << np.int64(8 * size - 1)
    magnitude = bits & (sign - 1)
    return np.where(bits & sign, -magnitude, magnitude)


def _find_spans(where: NDArray[np.intp]) -> tuple[tuple[int, int, int], ...]:
    return tuple((int(column.min()), int(column.max()), int(np.unique(column).size)) for column in where.T)


def describe_spans(shape: Sequence[int], spans: Sequence[Sequence[int]]) -> str:
    """The place of the different elements in words: "row 63", "the last 8 of dimension 1", or empty if everywhere."""
    parts = []
    for place, (size, (low, high, count)) in enumerate(zip(shape, spans, strict=True)):
        if size in (count, 1):
            continue
        if count == 1:
            parts.append(f"only index {low} of dimension {place}" + (" (the last)" if low == size - 1 else ""))
        elif high - low + 1 == count:
            end = " (the end)" if high == size - 1 else ""
            parts.append(f"only indices {low} to {high} of dimension {place}{end}")
    return ", ".join(parts)


def _to_plain(value: float) -> float | str:
    return value if np.isfinite(value) else str(value)
