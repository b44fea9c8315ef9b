"""Search on a budget: which kernels to measure on which problems, if there is no time for all of them.

The search takes rounds. Each round measures the pairs of a problem and a kernel whose estimate is closest to the best
time known for the problem; the more kernels of a problem were tried, the closer it must be. Then the measured times
correct the estimates: a kernel that was slower than estimated on some problems is expected to be slower on the others,
too.

Pure code: the times come from a function. docs/measuring-selection.md has the results on public measurements.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tilewright.base.errors import InvalidValueError

# A problem and a kernel, by their numbers.
Pair = tuple[int, int]
# For each problem, the estimated microseconds of the kernels that support it.
Estimates = Sequence[Mapping[int, float]]
Times = Mapping[Pair, float]

# More rounds learn earlier, but each has to start workers again. Eight gain up to 0.2 points on CK Tile's convolutions.
ROUNDS = 4
# Shrinks the correction of a kernel with few measurements, as if it had two more that agree with the estimate.
PRIOR = 2.0
# How evenly measurements are spread over problems. With 0 they go where estimates are closest, however wrong these are:
# fused MoE, whose estimates are the worst, then reaches 94.8 % instead of 97.3 % with a tenth of its measurements.
SPREAD = 0.2
# Repetitions of the fit of corrections by problem and by kernel, which depend on each other. It converges quickly.
_SWEEPS = 3


@dataclass(frozen=True)
class Corrections:
    """Logarithms of measured over estimated times: the part of each problem, and the part of each kernel."""

    problems: Mapping[int, float]
    kernels: Mapping[int, float]


def read_budget(budget: float, total: int) -> int:
    """The number of measurements that a budget allows, of `total`: a whole number, or a share such as 0.1."""
    if isinstance(budget, bool) or not isinstance(budget, int | float) or not math.isfinite(budget):
        raise InvalidValueError(f"a budget is a number of measurements or a share such as 0.1, got {budget!r}")
    if isinstance(budget, int):
        if budget < 1:
            raise InvalidValueError(f"the budget is {budget} measurements, must be at least 1")
        return min(budget, total)
    if not 0 < budget <= 1:
        raise InvalidValueError(
            f"the budget is {budget:g}: a share must be above 0 and at most 1. A number of measurements is an integer"
        )
    return max(1, min(total, round(budget * total)))


def search(
    estimates: Estimates,
    budget: int,
    measure: Callable[[Sequence[Pair]], Times],
    rounds: int = ROUNDS,
) -> dict[Pair, float]:
    """Measure at most `budget` pairs and return their times.

    `measure` is called once for each round, with its pairs. A pair without a time was a failure: it is not tried again.
    """
    times: dict[Pair, float] = {}
    tried: set[Pair] = set()
    for number in range(rounds):
        pairs = choose_round(estimates, times, tried, budget, number, rounds)
        if not pairs:
            break
        tried.update(pairs)
        times.update(measure(pairs))
    return times


def choose_round(
    estimates: Estimates, times: Times, tried: Collection[Pair], budget: int, number: int, rounds: int = ROUNDS
) -> list[Pair]:
    """The pairs of round `number`, from 0: an equal share of the rest of the budget. Empty if nothing is left."""
    return choose_pairs(estimates, times, tried, math.ceil((budget - len(tried)) / (rounds - number)))


def choose_pairs(estimates: Estimates, times: Times, tried: Collection[Pair], quota: int) -> list[Pair]:
    """The next pairs to measure, at most `quota`, by problem and kernel."""
    corrections = fit_corrections(estimates, times)
    scored: list[tuple[float, int, int]] = []
    for problem, known in enumerate(estimates):
        scored += _score_candidates(problem, known, times, tried, corrections)
    return sorted((problem, kernel) for _, problem, kernel in heapq.nsmallest(quota, scored))


def _score_candidates(
    problem: int,
    known: Mapping[int, float],
    times: Times,
    tried: Collection[Pair],
    corrections: Corrections,
) -> list[tuple[float, int, int]]:
    """The candidates of a problem, each with its score; lower ones are measured first.

    The score is the logarithm of the expected time over the best time known, and grows with the number of kernels that
    were tried before.
    """
    expected = {kernel: math.log(us) + corrections.kernels.get(kernel, 0.0) for kernel, us in known.items()}
    left = sorted((k for k in known if (problem, k) not in tried), key=lambda kernel: (expected[kernel], kernel))
    if not left:
        return []
    measured = [math.log(times[problem, kernel]) for kernel in known if (problem, kernel) in times]
    best = min(measured) - corrections.problems[problem] if measured else expected[left[0]]
    before = len(known) - len(left)
    scores = [expected[kernel] - best + SPREAD * math.log(max(before + place, 1)) for place, kernel in enumerate(left)]
    if before == 0:
        # The first is of use only together with the second. A single candidate wins without a measurement.
        scores[0] = scores[1] if len(scores) > 1 else math.inf
    return [(score, problem, kernel) for score, kernel in zip(scores, left, strict=True)]


def choose_winners(estimates: Estimates, times: Times) -> list[int | None]:
    """The kernel of each problem: the fastest measured one, else the one with the best corrected estimate."""
    corrections = fit_corrections(estimates, times)
    winners: list[int | None] = []
    for problem, known in enumerate(estimates):
        measured = {kernel: times[problem, kernel] for kernel in known if (problem, kernel) in times}
        expected = {kernel: us * math.exp(corrections.kernels.get(kernel, 0.0)) for kernel, us in known.items()}
        winners.append(_find_least(measured or expected))
    return winners


def _find_least(us: Mapping[int, float]) -> int | None:
    return min(us, key=lambda kernel: (us[kernel], kernel)) if us else None


def fit_corrections(estimates: Estimates, times: Times) -> Corrections:
    """Fit the corrections of problems and kernels to the measured times, in turn."""
    ratios: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for (problem, kernel), us in times.items():
        ratios[problem].append((kernel, math.log(us / estimates[problem][kernel])))
    kernels: dict[int, float] = {}
    problems: dict[int, float] = {}
    for _ in range(_SWEEPS):
        problems = {
            problem: math.fsum(ratio - kernels.get(kernel, 0.0) for kernel, ratio in own) / len(own)
            for problem, own in ratios.items()
        }
        sums: dict[int, float] = defaultdict(float)
        counts: dict[int, int] = defaultdict(int)
        for problem, own in ratios.items():
            for kernel, ratio in own:
                sums[kernel] += ratio - problems[problem]
                counts[kernel] += 1
        kernels = {kernel: total / (counts[kernel] + PRIOR) for kernel, total in sums.items()}
    return Corrections(problems, kernels)
