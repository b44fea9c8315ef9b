"""From single samples to the recorded time: warm-up, number of samples, median and spread.

Pure code: the samples come from a `Clock`. docs/measuring.md explains the rules.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.base.errors import InvalidValueError, choose
from tilewright.bench.record import TimeStats

MODES = ("fast", "strict")

# Samples per round of warm-up. The median of five tolerates two disturbed samples.
ROUND = 5
# Times are steady if the medians of this many consecutive rounds lie within STEADY_SHARE of the least of them. The
# share is about a GPU's variation from run to run; three rounds show a slope.
STEADY_ROUNDS = 3
STEADY_SHARE = 0.02
# One sample has as many launches as take this long, so that the cost of an event (about 1 µs) stays below 2 %.
SAMPLE_US = 50.0
# More launches at once would fill the stream's queue, and the host would wait in the middle of a sample.
MAX_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class TimingSettings:
    """How to measure. Not part of a result's identity, except for `cold`, which a task has, too.

    `seed` is the seed of the inputs. `mode` is the mode of an emulated device (None: its current mode). The rest is for
    GPUs: with `cold` no launch finds its tensors in a cache; at least `least_runs` samples and `least_ms` of them are
    taken, and never more than `max_runs`; warm-up takes at least `least_warmup_ms`, in which a GPU raises its clock,
    and ends after `max_warmup_ms` even if times are not steady, which is reported.
    """

    seed: int = 1
    cold: bool = False
    least_runs: int = 20
    least_ms: float = 20.0
    max_runs: int = 1000
    least_warmup_ms: float = 20.0
    max_warmup_ms: float = 1000.0
    mode: str | None = None

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InvalidValueError(f"seed is {self.seed}, must be at least 0")
        if not 1 <= self.least_runs <= self.max_runs:
            raise InvalidValueError(f"least_runs ({self.least_runs}) must be from 1 to max_runs ({self.max_runs})")
        for name in ("least_ms", "least_warmup_ms", "max_warmup_ms"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidValueError(f"{name} is {value}, must be finite and at least 0 milliseconds")
        if self.least_warmup_ms > self.max_warmup_ms:
            raise InvalidValueError(
                f"least_warmup_ms ({self.least_warmup_ms}) must be at most max_warmup_ms ({self.max_warmup_ms})"
            )
        if self.mode is not None:
            choose("mode", self.mode, MODES)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for another process."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TimingSettings:
        """The inverse of `to_json`; an unknown name is an error."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in value:
            choose("setting", name, known)
        return cls(**value)


class Clock(Protocol):
    """Takes `count` samples, each of `batch` consecutive calls; returns the microseconds per call of each sample."""

    def take_samples(self, call: Callable[[], None], count: int, batch: int) -> list[float]: ...

    @property
    def max_batch(self) -> int:
        """The most calls in one sample."""
        ...


@dataclass(frozen=True, slots=True)
class Timing:
    """The measured samples, and how they were taken."""

    samples: tuple[float, ...]  # microseconds per call
    batch: int  # calls per sample
    warmups: int  # samples that do not count
    steady: bool

    @property
    def note(self) -> str:
        """A note for readers of the times; empty if all is well."""
        if self.steady:
            return ""
        return (
            f"not steady after {self.warmups} warm-up samples: the medians of {STEADY_ROUNDS} rounds of {ROUND} "
            f"differ by more than {STEADY_SHARE:.0%}"
        )


def is_steady(samples: Sequence[float]) -> bool:
    """Whether the medians of the last warm-up rounds lie close together."""
    whole = len(samples) // ROUND
    if whole < STEADY_ROUNDS:
        return False
    start = len(samples) - STEADY_ROUNDS * ROUND
    medians = [compute_quantile(sorted(samples[at : at + ROUND]), 0.5) for at in range(start, len(samples), ROUND)]
    return max(medians) <= min(medians) * (1 + STEADY_SHARE)


def time_calls(clock: Clock, call: Callable[[], None], settings: TimingSettings) -> Timing:
    """Warm up until times are steady, then take as many samples as the settings require."""
    single = clock.take_samples(call, ROUND, 1)
    batch = choose_batch_size(compute_quantile(sorted(single), 0.5), clock.max_batch)
    warm: list[float] = []
    while not is_warm(warm, batch, settings):
        warm += clock.take_samples(call, ROUND, batch)
    taken: list[float] = []
    while (missing := count_missing_samples(taken, batch, settings)) > 0:
        taken += clock.take_samples(call, missing, batch)
    return Timing(tuple(taken), batch, len(single) + len(warm), is_steady(warm))


def is_warm(samples: Sequence[float], batch: int, settings: TimingSettings) -> bool:
    """Whether warm-up may end: long enough and steady, or too long."""
    ms = sum(samples) * batch / 1000
    if ms >= settings.max_warmup_ms:
        return len(samples) > 0
    return ms >= settings.least_warmup_ms and is_steady(samples)


def choose_batch_size(us: float, limit: int) -> int:
    """The number of calls per sample, from the time of one call. As first calls are slow, it is rather too small."""
    if not us > 0:
        raise InvalidValueError(f"a call took {us} µs: the device's events do not measure time")
    return max(1, min(math.ceil(SAMPLE_US / us), limit))


def count_missing_samples(taken: Sequence[float], batch: int, settings: TimingSettings) -> int:
    """The number of samples still to take, given those taken; 0 if they are enough."""
    if len(taken) < settings.least_runs:
        return settings.least_runs - len(taken)
    missing_us = settings.least_ms * 1000 - sum(taken) * batch
    if missing_us <= 0:
        return 0
    each = sum(taken) * batch / len(taken)
    return min(math.ceil(missing_us / each), settings.max_runs - len(taken))


def compute_time_stats(
    samples: Sequence[float],
    *,
    warmups: int = 0,
    clock_mhz: float | None = None,
    power_w: float | None = None,
) -> TimeStats:
    """Median and spread of samples, in microseconds."""
    if not samples:
        raise InvalidValueError("the list of samples is empty: at least one is needed")
    for value in samples:
        if not (math.isfinite(value) and value > 0):
            raise InvalidValueError(f"a sample took {value} µs, must be finite and above 0")
    ordered = sorted(samples)
    return TimeStats(
        us=compute_quantile(ordered, 0.5),
        us_min=ordered[0],
        us_max=ordered[-1],
        us_p10=compute_quantile(ordered, 0.1),
        us_p90=compute_quantile(ordered, 0.9),
        runs=len(ordered),
        warmups=warmups,
        clock_mhz=clock_mhz,
        power_w=power_w,
    )


def compute_quantile(ordered: Sequence[float], share: float) -> float:
    """The quantile of sorted values at `share`, interpolated linearly."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
