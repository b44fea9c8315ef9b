"""Searching on a budget: which pairs are measured, and that the result is as good as on public measurements."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.errors import InvalidValueError
from tilewright.bench.search import (
    Pair,
    choose_pairs,
    choose_round,
    choose_winners,
    fit_corrections,
    read_budget,
    search,
)

# Two problems, three kernels: the estimate is right but for kernel 0, which takes three times as long.
ESTIMATES = [{0: 10.0, 1: 11.0, 2: 30.0}, {0: 100.0, 1: 120.0, 2: 150.0}]
TIMES = [{0: 30.0, 1: 11.0, 2: 30.0}, {0: 300.0, 1: 120.0, 2: 150.0}]


def measured(pairs: list[Pair]) -> dict[Pair, float]:
    return {(problem, kernel): TIMES[problem][kernel] for problem, kernel in pairs}


@pytest.mark.parametrize(("budget", "number"), [(5, 5), (500, 100), (0.1, 10), (1.0, 100), (0.001, 1)])
def test_budgets(budget: float, number: int) -> None:
    assert read_budget(budget, 100) == number


@pytest.mark.parametrize("budget", [0, -1, 0.0, 1.5, float("nan"), float("inf"), True, "10%"])
def test_budgets_that_mean_nothing(budget: object) -> None:
    with pytest.raises(InvalidValueError, match="budget"):
        read_budget(budget, 100)  # type: ignore[arg-type]


def test_the_closest_candidates_are_first() -> None:
    """The gap of problem 0 is 10 %, that of problem 1 is 20 %. A first candidate needs its second."""
    assert choose_pairs(ESTIMATES, {}, (), 2) == [(0, 0), (0, 1)]
    assert choose_pairs(ESTIMATES, {}, (), 4) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_kernel_that_is_slower_than_estimated_is_expected_to_be_so_elsewhere() -> None:
    """Kernel 0 was slow on problem 0, so kernel 1 is expected to win problem 1, which nobody measured."""
    times = measured([(0, 0), (0, 1)])
    corrections = fit_corrections(ESTIMATES, times).kernels
    assert corrections[0] > 0 > corrections[1]
    assert choose_winners(ESTIMATES, {}) == [0, 0]
    assert choose_winners(ESTIMATES, times) == [1, 1]


def test_failures_are_not_tried_again_and_count() -> None:
    asked: list[Pair] = []

    def fail(pairs: list[Pair]) -> dict[Pair, float]:
        asked.extend(pairs)
        return {}

    assert search(ESTIMATES, 5, fail) == {}
    assert len(asked) == len(set(asked)) <= 5


def test_an_empty_search_ends() -> None:
    assert search([], 5, measured) == {}
    assert choose_winners([{}], {}) == [None]


@given(
    st.lists(st.dictionaries(st.integers(0, 8), st.floats(0.5, 1e6), min_size=1, max_size=8), min_size=1, max_size=6),
    st.integers(1, 60),
    st.randoms(use_true_random=False),
)
@settings(max_examples=100, deadline=None)
def test_no_pair_is_measured_twice_and_the_budget_is_kept(estimates, budget, random) -> None:
    """For any estimates, also wrong ones by a factor of 100, and for kernels that fail."""
    asked: list[Pair] = []

    def measure(pairs: list[Pair]) -> dict[Pair, float]:
        asked.extend(pairs)
        return {
            pair: random.uniform(0.01, 100) * estimates[pair[0]][pair[1]] for pair in pairs if random.random() > 0.1
        }

    times = search(estimates, budget, measure)
    assert len(asked) == len(set(asked)) <= budget
    assert times.keys() <= set(asked)
    assert all(kernel in estimates[problem] for problem, kernel in asked)
    for problem, winner in enumerate(choose_winners(estimates, times)):
        own = {kernel: us for (which, kernel), us in times.items() if which == problem}
        assert winner in estimates[problem]
        assert not own or own[winner] == min(own.values())


def test_rounds_are_the_same_for_the_same_results() -> None:
    """A resumed search asks for the same pairs, so it measures nothing again."""
    first = choose_round(ESTIMATES, {}, (), 4, 0)
    second = choose_round(ESTIMATES, measured(first), first, 4, 1)
    assert choose_round(ESTIMATES, {}, (), 4, 0) == first
    assert choose_round(ESTIMATES, measured(first), first, 4, 1) == second
    assert not set(first) & set(second)
