"""Portfolios: which of many kernels are worth building."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tilewright.base.errors import InvalidValueError
from tilewright.select.portfolio import Matrix, choose_portfolio, evaluate_portfolio

NAN = math.nan


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    """Times with gaps; few distinct ones, so that there are ties."""
    problems, kernels = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    cell = st.sampled_from([1.0, 1.5, 2.0, 3.0, 7.0, NAN])
    rows = st.lists(st.lists(cell, min_size=kernels, max_size=kernels), min_size=problems, max_size=problems)
    times = np.array(draw(rows))
    assume(not np.isnan(times).all())
    return times


def efficiency(times: Matrix, kept: tuple[int, ...]) -> float:
    """Mean efficiency of the best kept kernel, written out."""
    counted = [row for row in times.tolist() if not all(map(math.isnan, row))]
    reached = []
    for row in counted:
        usable = [row[kernel] for kernel in kept if not math.isnan(row[kernel])]
        best = min(us for us in row if not math.isnan(us))
        reached.append(best / min(usable) if usable else 0.0)
    return sum(reached) / len(reached)


def test_each_kernel_is_the_one_that_adds_most() -> None:
    times = [
        [1.0, 2.0, 4.0],
        [2.0, 1.0, 4.0],
        [4.0, 4.0, 1.0],
    ]
    # Kernel 0 and 1 both give (1 + 1/2 + 1/4) / 3, kernel 2 (1/4 + 1/4 + 1) / 3; of equals the first is taken.
    portfolio = choose_portfolio(times, 3)

    assert portfolio.order == (0, 2, 1)
    assert portfolio.coverage == pytest.approx((1.75 / 3, 2.5 / 3, 1.0))
    assert portfolio.supported == (1.0, 1.0, 1.0)


def test_a_problem_that_nothing_kept_computes_counts_zero() -> None:
    times = [
        [1.0, NAN, 2.0],
        [1.0, NAN, 2.0],
        [NAN, 9.0, NAN],
    ]
    portfolio = choose_portfolio(times, 3)

    # Kernel 1 is slow, but without it the last problem is not computed at all. Kernel 2 adds nothing and is left out.
    assert portfolio.order == (0, 1)
    assert portfolio.coverage == pytest.approx((2 / 3, 1.0))
    assert portfolio.supported == pytest.approx((2 / 3, 1.0))
    assert portfolio.low == pytest.approx((0.2, 1.0))


def test_problems_that_no_kernel_computes_do_not_count() -> None:
    assert choose_portfolio([[1.0, 2.0], [NAN, NAN]], 1).coverage == (1.0,)


def test_weights_say_what_matters() -> None:
    times = [[1.0, 2.0], [2.0, 1.0]]

    assert choose_portfolio(times, 1).order == (0,)
    assert choose_portfolio(times, 1, weights=[1.0, 3.0]).order == (1,)
    assert choose_portfolio(times, 1, weights=[1.0, 3.0]).coverage == pytest.approx((0.875,))


def test_an_exchange_undoes_a_choice_that_was_best_only_at_first() -> None:
    # Kernel 0 is best alone; kernels 1 and 2 together make it needless.
    times = [[1.25, 1.0, 10.0], [1.25, 1.0, 10.0], [1.25, 10.0, 1.0], [1.25, 10.0, 1.0]]

    assert choose_portfolio(times, 2, swap=False).order == (0, 1)
    assert choose_portfolio(times, 2).order == (1, 2)
    assert choose_portfolio(times, 2).coverage[-1] == 1.0


@given(matrices(), st.integers(1, 8), st.booleans())
def test_more_kernels_are_never_worse(times: Matrix, keep: int, swap: bool) -> None:
    portfolio = choose_portfolio(times, min(keep, times.shape[1]), swap=swap)

    assert 1 <= len(portfolio.order) == len(set(portfolio.order)) <= keep
    assert list(portfolio.coverage) == sorted(portfolio.coverage)
    assert list(portfolio.supported) == sorted(portfolio.supported)
    for count in range(1, len(portfolio.order) + 1):
        assert portfolio.coverage[count - 1] == pytest.approx(efficiency(times, portfolio.order[:count]))


@given(matrices())
def test_the_first_is_the_one_best_kernel(times: Matrix) -> None:
    each = [efficiency(times, (kernel,)) for kernel in range(times.shape[1])]
    first = choose_portfolio(times, 1).order[0]

    assert each[first] == pytest.approx(max(each))
    assert choose_portfolio(times, times.shape[1], swap=False).order[0] == first


@given(matrices())
def test_with_all_kernels_nothing_is_lost(times: Matrix) -> None:
    assert choose_portfolio(times, times.shape[1]).coverage[-1] == pytest.approx(1.0)


@given(matrices(), st.integers(1, 8))
def test_an_exchange_never_makes_it_worse(times: Matrix, keep: int) -> None:
    keep = min(keep, times.shape[1])

    assert choose_portfolio(times, keep).coverage[-1] >= choose_portfolio(times, keep, swap=False).coverage[-1] - 1e-9


@given(matrices(), st.integers(0, 1 << 16))
def test_equal_kernels_are_taken_in_their_order(times: Matrix, seed: int) -> None:
    twice = np.concatenate([times, times], axis=1)
    order = choose_portfolio(twice, times.shape[1]).order

    assert max(order) < times.shape[1]
    assert order == choose_portfolio(times, times.shape[1]).order


def test_others_than_the_problems_chosen_for_are_judged_too() -> None:
    chosen = choose_portfolio([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], 1)
    elsewhere = evaluate_portfolio([[4.0, 2.0, 1.0], [NAN, 2.0, 1.0]], chosen.order)

    assert elsewhere.order == (0,)
    assert elsewhere.coverage == pytest.approx((0.125,))
    assert elsewhere.supported == (0.5,)


@pytest.mark.parametrize(
    ("times", "keep", "weights", "message"),
    [
        ([[1.0, 2.0]], 3, None, "cannot keep 3 of 2 kernels"),
        ([[1.0, 2.0]], 0, None, "cannot keep 0 of 2 kernels"),
        ([1.0, 2.0], 1, None, r"matrix of problems × kernels, got one of shape \(2,\)"),
        ([[1.0, -2.0]], 1, None, "above zero"),
        ([[1.0, math.inf]], 1, None, "above zero"),
        ([[NAN, NAN]], 1, None, "none of the 2 kernels supports a problem with a weight above zero"),
        ([[1.0, 2.0]], 1, [1.0, 1.0], "weights must be 1 numbers"),
        ([[1.0], [NAN]], 1, [0.0, 1.0], "none of the 1 kernels supports a problem with a weight above zero"),
    ],
)
def test_what_cannot_be_chosen_from_is_refused(times: object, keep: int, weights: object, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        choose_portfolio(times, keep, weights)  # type: ignore[arg-type]


def test_thousands_of_kernels_take_seconds() -> None:
    rng = np.random.default_rng(1)
    times = rng.lognormal(0.0, 0.6, (500, 6410))
    times[rng.random(times.shape) < 0.3] = NAN
    started = time.perf_counter()
    portfolio = choose_portfolio(times, 32)

    assert len(portfolio.order) == 32
    assert time.perf_counter() - started < 20  # 1 s on an idle machine
