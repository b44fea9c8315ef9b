"""From samples to a figure: medians and spread, when warm-up ends, how many samples are taken. All exact."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import InvalidValueError, UnknownValueError
from tilewright.bench.timing import (
    MAX_BATCH,
    ROUND,
    STEADY_ROUNDS,
    TimingSettings,
    choose_batch_size,
    compute_quantile,
    compute_time_stats,
    count_missing_samples,
    is_steady,
    time_calls,
)

SAMPLES = st.lists(st.floats(0.001, 1e7), min_size=1, max_size=60)


class ListedClock:
    """A clock whose launches take the microseconds of a list."""

    def __init__(self, us: Iterable[float], max_batch: int = MAX_BATCH) -> None:
        self._us = iter(us)
        self.max_batch = max_batch
        self.asked: list[tuple[int, int]] = []

    def take_samples(self, call: Callable[[], None], count: int, batch: int) -> list[float]:
        self.asked.append((count, batch))
        found = []
        for _ in range(count):
            spent = 0.0
            for _ in range(batch):
                call()
                spent += next(self._us)
            found.append(spent / batch)
        return found


def forever(us: float) -> Iterable[float]:
    while True:
        yield us


def test_a_summary_by_hand() -> None:
    found = compute_time_stats([30.0, 10.0, 20.0, 50.0, 40.0], warmups=7, clock_mhz=2100.0, power_w=700.0)
    assert (found.us, found.us_min, found.us_max) == (30.0, 10.0, 50.0)
    assert (found.us_p10, found.us_p90) == (14.0, 46.0)  # 0.4 of the way from the first to the second, and mirrored
    assert (found.runs, found.warmups, found.clock_mhz, found.power_w) == (5, 7, 2100.0, 700.0)
    assert compute_time_stats([10.0, 20.0]).us == 15.0
    assert compute_time_stats([8.0]).us_p90 == 8.0


@given(SAMPLES)
def test_a_summary_is_that_of_the_textbook(samples: list[float]) -> None:
    found = compute_time_stats(samples)
    assert found.us == pytest.approx(statistics.median(samples), rel=1e-12)
    assert (found.us_min, found.us_max) == (min(samples), max(samples))
    assert found.us_p10 == pytest.approx(float(np.percentile(samples, 10)), rel=1e-12)
    assert found.us_p90 == pytest.approx(float(np.percentile(samples, 90)), rel=1e-12)
    assert found.us_min <= found.us_p10 <= found.us <= found.us_p90 <= found.us_max


@given(SAMPLES, st.randoms())
def test_the_order_of_samples_does_not_matter(samples: list[float], random: object) -> None:
    mixed = list(samples)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert compute_time_stats(mixed) == compute_time_stats(samples)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_time_is_refused(bad: float) -> None:
    with pytest.raises(InvalidValueError, match="must be finite and above 0"):
        compute_time_stats([10.0, bad])


def test_nothing_cannot_be_summarised() -> None:
    with pytest.raises(InvalidValueError, match="the list of samples is empty"):
        compute_time_stats([])


def test_steady_looks_at_the_medians_of_the_last_three_rounds() -> None:
    flat = [100.0] * (STEADY_ROUNDS * ROUND)
    assert is_steady(flat) and not is_steady(flat[1:])
    assert is_steady([500.0] * ROUND + flat)  # what was before does not count
    disturbed = [*flat[:-2], 900.0, 900.0]  # two of five do not move a median
    assert is_steady(disturbed)
    assert not is_steady([*flat[:-3], 900.0, 900.0, 900.0])


@pytest.mark.parametrize(("last", "expected"), [(102.0, True), (102.1, False), (98.1, True), (98.0, False)])
def test_steady_within_two_per_cent_of_the_least(last: float, expected: bool) -> None:
    assert is_steady([100.0] * ROUND * 2 + [last] * ROUND) is expected


def test_a_slow_slope_is_not_steady() -> None:
    falling = [100.0 * 0.985**i for i in range(STEADY_ROUNDS) for _ in range(ROUND)]
    assert not is_steady(falling)  # each round is within 2 % of the one before


@pytest.mark.parametrize(
    ("us", "limit", "expected"),
    [(50.0, 256, 1), (49.9, 256, 2), (10.0, 256, 5), (0.01, 256, 256), (1.0, 3, 3), (1e6, 9, 1)],
)
def test_short_calls_are_timed_together(us: float, limit: int, expected: int) -> None:
    assert choose_batch_size(us, limit) == expected


def test_a_clock_that_stands_is_none() -> None:
    with pytest.raises(InvalidValueError, match="do not measure time"):
        time_calls(ListedClock(forever(0.0)), lambda: None, TimingSettings())


def test_steady_from_the_start() -> None:
    calls = []
    clock = ListedClock(forever(1000.0))
    found = time_calls(clock, lambda: calls.append(1), TimingSettings(least_runs=20, least_ms=25, least_warmup_ms=0))
    assert found.samples == (1000.0,) * 25 and found.batch == 1
    assert found.steady and found.note == ""
    assert found.warmups == ROUND + STEADY_ROUNDS * ROUND
    assert clock.asked == [(ROUND, 1), *[(ROUND, 1)] * STEADY_ROUNDS, (20, 1), (5, 1)]
    assert len(calls) == found.warmups + 25


def test_warm_up_takes_its_time_even_when_all_is_steady() -> None:
    found = time_calls(ListedClock(forever(1000.0)), lambda: None, TimingSettings(least_warmup_ms=31))
    assert found.warmups == ROUND + 35


def test_the_warm_up_does_not_count() -> None:
    slow = [900.0] * 5 + [900.0 - 40 * i for i in range(20)]  # the first calls, then four rounds that get faster
    settings = TimingSettings(least_ms=0, least_warmup_ms=0)
    found = time_calls(ListedClock([*slow, *[100.0] * 1000]), lambda: None, settings)
    assert set(found.samples) == {100.0} and found.steady
    assert found.warmups == 5 + 20 + 15


def test_warm_up_ends_even_when_nothing_is_steady() -> None:
    def growing() -> Iterable[float]:
        us = 1000.0
        while True:
            yield us
            us *= 1.05

    settings = TimingSettings(least_warmup_ms=0, max_warmup_ms=30, least_runs=3, least_ms=0)
    found = time_calls(ListedClock(growing()), lambda: None, settings)
    assert not found.steady and len(found.samples) == 3
    assert found.note == (
        f"not steady after {found.warmups} warm-up samples: the medians of 3 rounds of 5 differ by more than 2%"
    )


def test_samples_of_many_launches_are_per_launch() -> None:
    clock = ListedClock([8.0] * 100_000)
    found = time_calls(clock, lambda: None, TimingSettings(least_runs=10, least_ms=2))
    assert found.batch == 7 and found.samples[0] == 8.0  # 7 × 8 µs are the first to pass 50
    assert len(found.samples) == math.ceil(2000 / 56)
    assert {batch for _, batch in clock.asked[1:]} == {7}


def test_never_more_than_the_most_runs() -> None:
    found = time_calls(
        ListedClock(forever(60.0)), lambda: None, TimingSettings(least_runs=5, least_ms=1e6, max_runs=40)
    )
    assert len(found.samples) == 40


@given(st.lists(st.floats(1, 1e4), max_size=30), st.integers(1, 256), st.integers(1, 50), st.floats(0, 100))
def test_enough_is_enough(taken: list[float], batch: int, least: int, ms: float) -> None:
    settings = TimingSettings(least_runs=least, least_ms=ms, max_runs=50)
    missing = count_missing_samples(taken, batch, settings)
    enough = len(taken) >= least and sum(taken) * batch >= ms * 1000
    assert (missing == 0) == enough if len(taken) < 50 else missing <= 0
    assert len(taken) + missing <= 50


def test_a_quantile_between_two_values() -> None:
    assert compute_quantile([1.0, 3.0], 0.25) == 1.5
    assert compute_quantile([1.0, 3.0], 1.0) == 3.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"least_runs": 0},
        {"least_runs": 30, "max_runs": 20},
        {"least_ms": -1.0},
        {"least_ms": math.nan},
        {"max_warmup_ms": math.inf},
        {"least_warmup_ms": 10.0, "max_warmup_ms": 5.0},
        {"seed": -1},
    ],
)
def test_settings_that_cannot_be(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError):
        TimingSettings(**wrong)  # type: ignore[arg-type]


def test_settings_go_to_another_process_and_back() -> None:
    given_ = TimingSettings(seed=3, cold=True, mode="strict")
    assert TimingSettings.from_json(given_.to_json()) == given_
    with pytest.raises(UnknownValueError, match="least_run"):
        TimingSettings.from_json({"least_run": 3})
    with pytest.raises(UnknownValueError, match="slow"):
        TimingSettings(mode="slow")
