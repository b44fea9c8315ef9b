"""Splits: groups stay whole, near problems stay together, and a leak is noticed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import InvalidValueError, LeakageError
from tilewright.learn.splits import check_apart, compute_ward_clusters, make_folds, merge_near

coordinates = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=4, max_size=60)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=200), st.integers(2, 5), st.integers(0, 99))
def test_no_group_is_divided_and_no_fold_is_empty(groups: list[int], number: int, seed: int) -> None:
    if number > len(set(groups)):
        with pytest.raises(InvalidValueError, match=f"{number} folds, must be from 2 to {len(set(groups))}"):
            make_folds(groups, number, seed)
        return
    fold = make_folds(groups, number, seed)
    assert set(fold.tolist()) == set(range(number))
    for group in set(groups):
        assert len(set(fold[np.array(groups) == group].tolist())) == 1


def test_folds_are_balanced_and_follow_the_seed() -> None:
    groups = np.repeat(np.arange(100), np.random.default_rng(0).integers(1, 20, 100))
    fold = make_folds(groups, 4, seed=3)
    rows = np.bincount(fold)
    assert rows.max() - rows.min() <= 2
    assert (fold == make_folds(groups, 4, seed=3)).all()
    assert (fold != make_folds(groups, 4, seed=4)).any()


def test_as_many_folds_as_groups_leave_one_out() -> None:
    fold = make_folds([5, 5, 9, 2, 2, 2], 3, seed=0)
    assert len(set(zip([5, 5, 9, 2, 2, 2], fold.tolist(), strict=True))) == 3


def test_folds_of_many_groups_are_even() -> None:
    groups = np.random.default_rng(0).integers(0, 190_000, 650_000)
    rows = np.bincount(make_folds(groups, 2, seed=0))
    assert abs(rows[0] - rows[1]) <= 1


def test_near_problems_share_a_group_and_so_do_chains() -> None:
    points = [[0, 0], [0.5, 0.5], [1.0, 0.9], [5, 0], [5, 0.6], [5, 0]]
    assert _partition(merge_near(points, 0.5)) == {(0, 1, 2), (3, 5), (4,)}
    assert _partition(merge_near(points, 0)) == {(0,), (1,), (2,), (3, 5), (4,)}


def test_near_is_measured_in_each_coordinate() -> None:
    # 0.5 away in both: within 0.5, though the straight line is longer.
    assert _partition(merge_near([[0, 0], [0.5, 0.5]], 0.5)) == {(0, 1)}


def test_ward_finds_the_bundles() -> None:
    points = np.array([[0, 0], [0, 1], [1, 0], [10, 10], [11, 10], [50, 0]], float)
    assert _partition(compute_ward_clusters(points, 3)) == {(0, 1, 2), (3, 4), (5,)}
    assert len(set(compute_ward_clusters(points, 5).tolist())) == 5
    assert _partition(compute_ward_clusters(np.ones((3, 2)), 1)) == {(0, 1, 2)}
    with pytest.raises(InvalidValueError, match="7 clusters are impossible: there are 6 distinct points"):
        compute_ward_clusters(points, 7)


def test_the_same_problem_on_both_sides_is_a_leak() -> None:
    with pytest.raises(LeakageError, match=r"1 problems and 0 pairs.*\(1, 2\)"):
        check_apart([[1, 2], [8, 8], [1, 2]], [0, 0, 1], 0.5)


def test_a_near_duplicate_on_both_sides_is_a_leak() -> None:
    with pytest.raises(LeakageError, match=r"0 problems and 1 pairs.*\(1, 2\) and \(1\.5, 2\)"):
        check_apart([[1, 2], [8, 8], [1.5, 2]], [0, 0, 1], 0.5)
    check_apart([[1, 2], [8, 8], [1.51, 2]], [0, 0, 1], 0.5)
    check_apart([[1, 2], [8, 8], [1.5, 2]], [0, 1, 0], 0.5)


@given(coordinates, st.integers(1, 3), st.integers(0, 9))
def test_folds_of_merged_groups_are_apart_and_others_are_not(
    points: list[tuple[int, int]], distance: int, seed: int
) -> None:
    group = merge_near(points, distance)
    if len(set(group.tolist())) >= 2:
        check_apart(points, make_folds(group, 2, seed), distance)
    for each in set(group.tolist()):
        members = np.flatnonzero(group == each)
        if len(members) >= 2:
            # A group cut in two, wherever: two near ones are on both sides of the cut.
            cut = np.zeros(len(points), int)
            cut[members[: len(members) // 2]] = 1
            with pytest.raises(LeakageError):
                check_apart(points, cut, distance)


def test_what_is_no_table_of_points_is_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"shape \(3,\)"):
        merge_near([1.0, 2.0, 3.0], 1)
    with pytest.raises(InvalidValueError, match="2 points but 1 folds"):
        check_apart([[0], [1]], [0], 1)


def _partition(group: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(np.flatnonzero(group == each).tolist()) for each in set(group.tolist())}
