"""Keep the problems for training and for evaluation apart.

A model that has seen a problem, or a nearly identical one, repeats what it has learned there. So whole groups go to
one side, and `check_apart` proves it. Distances are measured between the caller's points: a row of coordinates for each
problem, sizes as logarithms, with a step larger than the distance between kinds that are never near.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilewright.base.errors import InvalidValueError, LeakageError

Integers = NDArray[np.int64]


def make_folds(groups: ArrayLike, number: int, seed: int) -> Integers:
    """The fold of each row, from 0 to `number` - 1. A group is never divided.

    Groups are assigned largest first, each to the fold with the fewest rows; the order of equally large groups is drawn
    with the seed. With as many folds as groups, each fold leaves one group out.
    """
    names, group, rows = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    if not 2 <= number <= len(names):
        raise InvalidValueError(f"there are {number} folds, must be from 2 to {len(names)}, the number of groups.")
    shuffled = np.random.default_rng(seed).permutation(len(names))
    order = shuffled[np.argsort(-rows[shuffled], kind="stable")]
    fold_of = np.empty(len(names), np.int64)
    lightest = [(0, fold) for fold in range(number)]
    for each in order:
        filled, fold = lightest[0]
        fold_of[each] = fold
        heapq.heapreplace(lightest, (filled + int(rows[each]), fold))
    return fold_of[group.ravel()]


def merge_near(points: ArrayLike, distance: float) -> Integers:
    """The group of each problem: those within `distance` in every coordinate share one, and so do chains of these."""
    from scipy.sparse import coo_matrix  # noqa: PLC0415
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    distinct, place = _find_distinct(points)
    pairs = _find_near_pairs(distinct, distance)
    size = len(distinct)
    links = coo_matrix((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(size, size))
    _, group = connected_components(links, directed=False)
    return np.asarray(group, np.int64)[place]


def compute_ward_clusters(points: ArrayLike, number: int) -> Integers:
    """The cluster of each problem, exactly `number` in all, by Ward's linkage: least variance within clusters.

    It holds all distances in memory: for some thousands of problems, not for hundreds of thousands.
    """
    from scipy.cluster.hierarchy import cut_tree, linkage  # noqa: PLC0415

    distinct, place = _find_distinct(points)
    if not 1 <= number <= len(distinct):
        raise InvalidValueError(f"{number} clusters are impossible: there are {len(distinct)} distinct points.")
    if len(distinct) == 1:
        return np.zeros(len(place), np.int64)
    return np.asarray(cut_tree(linkage(distinct, "ward"), number)[:, 0], np.int64)[place]


def check_apart(points: ArrayLike, fold: ArrayLike, distance: float) -> None:
    """Raise `LeakageError` if equal problems, or problems within `distance` of each other, lie in different folds."""
    array, folds = np.asarray(points, float), np.asarray(fold)
    if len(array) != len(folds):
        raise InvalidValueError(f"got {len(array)} points but {len(folds)} folds: give one fold for each problem.")
    distinct, place = _find_distinct(array)
    low, high = np.full(len(distinct), folds.max()), np.full(len(distinct), folds.min())
    np.minimum.at(low, place, folds)
    np.maximum.at(high, place, folds)
    same = np.flatnonzero(low != high)
    pairs = _find_near_pairs(distinct, distance)
    near = pairs[low[pairs[:, 0]] != low[pairs[:, 1]]]
    if not len(same) and not len(near):
        return
    one, other = (same[0], same[0]) if len(same) else near[0]
    raise LeakageError(
        f"{len(same)} problems and {len(near)} pairs of near ones (within {distance}) lie in several folds, "
        f"for example {_format_row(distinct[one])} and {_format_row(distinct[other])}. "
        "Merge near problems first (merge_near) and split by group (make_folds)."
    )


def _find_distinct(points: ArrayLike) -> tuple[NDArray[np.float64], Integers]:
    """The distinct points, and the index of each problem's point."""
    array = np.asarray(points, float)
    if array.ndim != 2 or not np.isfinite(array).all():
        raise InvalidValueError(f"points must be a finite table of problems × coordinates, got shape {array.shape}.")
    distinct, place = np.unique(array, axis=0, return_inverse=True)
    return distinct, place.ravel()


def _find_near_pairs(distinct: NDArray[np.float64], distance: float) -> Integers:
    from scipy.spatial import cKDTree  # noqa: PLC0415

    pairs = cKDTree(distinct).query_pairs(distance, p=np.inf, output_type="ndarray")
    return np.asarray(pairs, np.int64).reshape(-1, 2)


def _format_row(point: NDArray[np.float64]) -> str:
    return "(" + ", ".join(f"{value:g}" for value in point) + ")"
