"""Baselines: by hand, and that they see other folds only."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.errors import LeakageError
from tilewright.learn.efficiency import compute_efficiencies, score_by_mean, score_by_nearest, score_randomly

# Four problems × three kernels. Kernel 0 is best in problems 0 and 1, kernel 2 in 2 and 3; kernel 1 is never best but
# never bad.
US = np.array([[1.0, 1.2, 3.0], [1.0, 1.2, 3.0], [4.0, 1.1, 1.0], [4.0, 1.1, 1.0]])
PROBLEM, KERNEL = (each.ravel() for each in np.indices(US.shape))
LEAVE_ONE_OUT = PROBLEM
POINTS = [[0.0], [1.0], [10.0], [11.0]]


def test_one_best_kernel_is_the_one_that_is_good_elsewhere() -> None:
    score = score_by_mean(PROBLEM, KERNEL, US.ravel(), LEAVE_ONE_OUT).reshape(US.shape)
    assert (score.argmin(1) == 1).all()
    # Without problem 0 kernel 2 is better than kernel 0, and the other way round without problem 3.
    assert score[0, 2] < score[0, 0]
    assert score[3, 0] < score[3, 2]


def test_one_best_kernel_trusts_few_rows_little() -> None:
    # Kernel 1 was best in the one problem that has it; kernel 0 is best in five of six.
    problem = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 6]
    kernel = [0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 1, 0, 0, 1, 2]
    us = [1.0, 9, 1, 9, 1, 9, 1, 9, 1, 9, 1, 1.1, 1, 2, 3]
    fold = np.array(problem) == 6
    score = score_by_mean(problem, kernel, us, fold)[-3:]
    assert score.argmin() == 0
    # A kernel that no other problem has is neither first nor last.
    unknown = score_by_mean([0, 0, 1, 1, 1], [0, 1, 0, 1, 2], [1.0, 9, 1, 9, 1], [0, 0, 1, 1, 1])[-3:]
    assert unknown[0] < unknown[2] < unknown[1]


def test_the_nearest_neighbour_gives_its_order() -> None:
    score = score_by_nearest(PROBLEM, KERNEL, US.ravel(), LEAVE_ONE_OUT, POINTS)
    assert compute_efficiencies(PROBLEM, US.ravel(), score).tolist() == [1, 1, 1, 1]
    assert score.reshape(US.shape)[0] == pytest.approx([1, 1.2, 3])


def test_the_nearest_neighbour_is_never_of_the_own_fold() -> None:
    fold = np.repeat([0, 0, 1, 1], 3)
    score = score_by_nearest(PROBLEM, KERNEL, US.ravel(), fold, POINTS)
    assert compute_efficiencies(PROBLEM, US.ravel(), score).tolist() == [1 / 3, 1 / 3, 1 / 4, 1 / 4]


def test_what_the_neighbour_did_not_measure() -> None:
    problem, kernel = [0, 0, 1, 1, 2, 2], [0, 1, 0, 2, 1, 2]
    us = [1.0, 3.0, 1.0, 9.0, 1.0, 2.0]
    fold, points = [0, 0, 1, 1, 2, 2], [[0.0], [1.0], [5.0]]
    # Problem 0 asks problem 1, which has kernel 0 but not kernel 1.
    known, mean_elsewhere = score_by_nearest(problem, kernel, us, fold, points)[:2]
    assert (known, mean_elsewhere) == (1, pytest.approx(score_by_mean(problem, kernel, us, fold)[1]))
    # Problem 2 asks problem 1 too: its slow kernel 2 is listed there, kernel 1 is not and so must be slower yet.
    by_mean = score_by_nearest(problem, kernel, us, fold, points)[4:]
    by_list = score_by_nearest(problem, kernel, us, fold, points, only_fastest=True)[4:]
    assert by_mean[0] < by_mean[1]
    assert by_list[0] > by_list[1]


def test_times_of_the_own_fold_change_nothing() -> None:
    changed = US.copy()
    changed[2] = [1.0, 50.0, 70.0]
    for baseline in (
        lambda us: score_by_mean(PROBLEM, KERNEL, us.ravel(), LEAVE_ONE_OUT),
        lambda us: score_by_nearest(PROBLEM, KERNEL, us.ravel(), LEAVE_ONE_OUT, POINTS),
    ):
        before, after = baseline(US).reshape(US.shape), baseline(changed).reshape(US.shape)
        assert (before[2] == after[2]).all()
        assert (before[3] != after[3]).any()


def test_a_missing_time_teaches_nothing() -> None:
    us = US.copy()
    us[1, 0] = np.nan
    score = score_by_nearest(PROBLEM, KERNEL, us.ravel(), LEAVE_ONE_OUT, POINTS).reshape(US.shape)
    assert np.isfinite(score).all()
    assert score[0, 0] != 1


def test_a_problem_in_two_folds_is_a_leak() -> None:
    with pytest.raises(LeakageError, match="1 problems have rows in several folds, for example problem 3"):
        score_by_mean(PROBLEM, KERNEL, US.ravel(), np.arange(12) // 10)


def test_random_choice_follows_its_seed() -> None:
    assert (score_randomly(50, 1) == score_randomly(50, 1)).all()
    assert (score_randomly(50, 1) != score_randomly(50, 2)).any()
