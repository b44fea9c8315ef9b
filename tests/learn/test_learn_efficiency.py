"""Efficiency of choices: by hand, and what holds for any table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import InvalidValueError
from tilewright.learn.efficiency import Efficiency, compute_efficiencies, evaluate_random, evaluate_scores

# Two problems, rows mixed. Of problem 7 the best is 10 µs, of problem 3 it is 4 µs.
PROBLEM = [7, 3, 7, 3, 7]
US = [20.0, 4.0, 10.0, 8.0, 40.0]


def test_the_choice_is_the_row_with_the_lowest_score() -> None:
    got = evaluate_scores(PROBLEM, US, [1, 5, 2, 4, 3])
    # Problem 3: the row of 8 µs is chosen, the best is second. Problem 7: 20 µs is chosen, 10 µs is second.
    assert got == Efficiency(mean=0.5, median=0.5, p10=0.5, minimum=0.5, top1=0.0, top5=1.0, problems=2)


def test_problems_come_in_the_order_of_their_numbers() -> None:
    assert compute_efficiencies(PROBLEM, US, [1, 1, 2, 2, 3]).tolist() == [1.0, 0.5]


def test_of_equal_scores_the_earlier_row_is_chosen() -> None:
    assert compute_efficiencies([0, 0, 0], [3.0, 1.0, 2.0], [5, 5, 5]).tolist() == [pytest.approx(1 / 3)]
    assert evaluate_scores([0] * 6, [2.0, 2, 2, 2, 2, 1], [0] * 6).top5 == 0


def test_any_of_several_best_rows_is_a_hit() -> None:
    assert evaluate_scores([0, 0, 0], [1.0, 1.0, 2.0], [2, 1, 3]).top1 == 1


def test_a_row_without_a_time_is_no_row() -> None:
    with_gap = evaluate_scores([0, 0, 0, 1], [np.nan, 2.0, 1.0, np.nan], [0, 1, 2, 0])
    assert with_gap == evaluate_scores([0, 0], [2.0, 1.0], [1, 2])
    assert with_gap.problems == 1


def test_p10_and_minimum_see_the_worst_problems() -> None:
    problem = np.repeat(np.arange(20), 2)
    us = np.tile([1.0, 2.0], 20)
    score = np.tile([0.0, 1.0], 20)
    score[:6:2] = 2.0  # three of twenty choose the slower one
    got = evaluate_scores(problem, us, score)
    assert (got.minimum, got.median, got.p10, got.top1) == (0.5, 1.0, 0.5, 0.85)
    assert got.mean == pytest.approx(0.925)


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.inf])
def test_a_time_that_cannot_be_is_refused(wrong: float) -> None:
    with pytest.raises(InvalidValueError, match=r"1 times are not above zero.*row 1"):
        evaluate_scores([0, 0], [1.0, wrong], [0, 1])


def test_scores_and_rows_are_needed() -> None:
    with pytest.raises(InvalidValueError, match="1 scores are nan"):
        evaluate_scores([0, 0], [1.0, 2.0], [0, np.nan])
    with pytest.raises(InvalidValueError, match="all rows are without a time"):
        evaluate_scores([0], [np.nan], [0])


def test_a_kernel_twice_in_a_problem_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="kernel 4 of problem 1"):
        evaluate_scores([0, 1, 1], [1.0, 2.0, 3.0], [0, 1, 2], kernel=[4, 4, 4])
    evaluate_scores([0, 1, 1], [1.0, 2.0, np.nan], [0, 1, 2], kernel=[4, 4, 4])


def test_random_is_the_mean_over_all_choices() -> None:
    got = evaluate_random([0, 0, 1], [1.0, 2.0, 5.0])
    assert got.mean == pytest.approx((0.75 + 1) / 2)
    assert (got.top1, got.top5) == (0.75, 1.0)
    # One best of ten: five draws find it in half of all cases.
    assert evaluate_random([0] * 10, np.arange(1.0, 11)).top5 == pytest.approx(0.5)


rows = st.lists(
    st.tuples(st.integers(0, 5), st.floats(1e-3, 1e6), st.floats(-1e6, 1e6)),
    min_size=1,
    max_size=60,
)


@given(rows)
def test_bounds(table: list[tuple[int, float, float]]) -> None:
    problem, us, score = (np.array(column) for column in zip(*table, strict=True))
    got = evaluate_scores(problem, us, score)
    share = compute_efficiencies(problem, us, score)
    assert got.problems == len(set(problem.tolist())) == len(share)
    assert 0 < got.minimum <= got.p10 <= got.median <= 1
    assert got.minimum <= got.mean <= 1 + 1e-12
    assert 0 <= got.top1 <= got.top5 <= 1
    assert got.top1 == np.mean(share == 1)
    oracle = evaluate_scores(problem, us, us)
    assert (oracle.mean, oracle.minimum, oracle.top1, oracle.top5) == (1, 1, 1, 1)


@given(rows, st.integers(0, 2**32))
def test_only_the_order_of_scores_matters(table: list[tuple[int, float, float]], seed: int) -> None:
    problem, us, score = (np.array(column) for column in zip(*table, strict=True))
    score = np.random.default_rng(seed).permutation(len(score))  # no ties: the order of rows is then free
    other = np.random.default_rng(seed + 1).permutation(len(score))
    assert evaluate_scores(problem, us, score) == evaluate_scores(problem[other], us[other], (2 * score + 3)[other])
