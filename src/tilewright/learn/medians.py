"""Medians of many groups at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Medians(NamedTuple):
    """The groups in the order of their numbers: number, first row, median; and the index of each row's group."""

    group: NDArray[np.int64]
    first: NDArray[np.int64]
    median: NDArray[np.float64]
    place: NDArray[np.int64]


def compute_medians(group: NDArray[np.int64], values: NDArray[np.float64]) -> Medians:
    """The median of the values of each group: the middle one, or the mean of the middle two."""
    distinct, first, place, count = np.unique(group, return_index=True, return_inverse=True, return_counts=True)
    ordered = values[np.lexsort((values, place))]
    start = np.concatenate([[0], np.cumsum(count)[:-1]]).astype(np.int64)
    return Medians(distinct, first, (ordered[start + (count - 1) // 2] + ordered[start + count // 2]) / 2, place)
