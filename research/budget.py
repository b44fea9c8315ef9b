"""Search on a budget, replayed on public measurements: the efficiency that a share of all measurements gives.

    python -m research.budget                     # the table of docs/measuring-selection.md

Compared with random kernels on the same budget, and with the best estimates without corrections. A problem without a
measurement takes the kernel with the best (corrected) estimate; in a random search it takes a random kernel.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.bench.search import Pair, choose_winners, read_budget, search

SHARES = (0.02, 0.05, 0.1, 0.25)
# With thousands of kernels far smaller shares are enough.
SMALL_SHARES, MANY = (0.001, 0.002, 0.005, 0.02), 100_000
SEEDS = tuple(range(10))


@dataclass(frozen=True)
class Recording:
    """Estimated and measured microseconds of each problem's kernels."""

    name: str
    estimates: Sequence[Mapping[int, float]]
    us: Sequence[Mapping[int, float]]

    @property
    def total(self) -> int:
        return sum(map(len, self.us))


@dataclass(frozen=True)
class Result:
    """Efficiency over problems, and the number of different kernels that had to be built."""

    mean: float
    p10: float
    kernels: float


def load_recordings() -> list[Recording]:
    """Load the sets with estimates of the cost model and all candidates of each problem."""
    from research import conv_data, hipblaslt, moe, moe_data

    conv = conv_data.load().data
    public = zip(conv.problem.tolist(), conv.kernel.tolist(), conv.estimate.tolist(), conv.us.tolist(), strict=True)
    table = hipblaslt.make_table()
    pairs = np.ndindex(*table.sweep.us.shape)
    dense = ((p, k, float(table.estimate[p, k]), float(table.sweep.us[p, k])) for p, k in pairs)
    grouped = moe.make_grouped(moe_data.load())
    data = grouped.data
    own = zip(data.problem.tolist(), data.name.tolist(), grouped.estimate.tolist(), data.us.tolist(), strict=True)
    return [
        make_recording("CK Tile conv gfx950", public),
        make_recording("hipBLASLt MI250X", dense),
        make_recording("fused MoE, all families", own, least=moe.LEAST),
    ]


def make_recording(name: str, rows: Iterable[tuple[int, int, float, float]], least: int = 2) -> Recording:
    estimates: dict[int, dict[int, float]] = {}
    us: dict[int, dict[int, float]] = {}
    for problem, kernel, estimate, time in rows:
        estimates.setdefault(problem, {})[kernel] = float(estimate)
        us.setdefault(problem, {})[kernel] = float(time)
    kept = [problem for problem in sorted(us) if len(us[problem]) >= least]
    return Recording(name, [estimates[p] for p in kept], [us[p] for p in kept])


def run_search(data: Recording, budget: int, rounds: int) -> Result:
    """Replay the search."""
    times = search(data.estimates, budget, lambda pairs: {(p, k): data.us[p][k] for p, k in pairs}, rounds)
    winners = choose_winners(data.estimates, times)
    shares = [min(us.values()) / us[won] for us, won in zip(data.us, winners, strict=True) if won is not None]
    return _make_result(shares, {kernel for _, kernel in times})


def run_first(data: Recording, budget: int) -> Result:
    """Measure the best estimates of every problem, as many for each as the budget allows."""
    ranked = [[kernel for _, kernel in sorted((us, k) for k, us in known.items())] for known in data.estimates]
    return _run_in_turn(data, ranked, budget, lambda p: data.us[p][ranked[p][0]])


def run_random(data: Recording, budget: int, seed: int) -> Result:
    """Measure random kernels of every problem, as many for each as the budget allows."""
    generator = random.Random(seed)
    drawn = [generator.sample(sorted(us), len(us)) for us in data.us]
    return _run_in_turn(data, drawn, budget, lambda p: data.us[p][drawn[p][0]])


def _run_in_turn(
    data: Recording, ranked: Sequence[Sequence[int]], budget: int, unmeasured: Callable[[int], float]
) -> Result:
    times: dict[Pair, float] = {}
    depth = 0
    while len(times) < budget:
        layer = [(p, kernels[depth]) for p, kernels in enumerate(ranked) if depth < len(kernels)]
        for pair in layer[: budget - len(times)]:
            times[pair] = data.us[pair[0]][pair[1]]
        depth += 1
    best: dict[int, float] = {}
    for (problem, _), us in times.items():
        best[problem] = min(us, best.get(problem, math.inf))
    shares = [min(us.values()) / (best[p] if p in best else unmeasured(p)) for p, us in enumerate(data.us)]
    return _make_result(shares, {kernel for _, kernel in times})


def _make_result(shares: Sequence[float], kernels: set[int]) -> Result:
    return Result(statistics.fmean(shares), float(np.quantile(shares, 0.1)), len(kernels))


def _average(results: Sequence[Result]) -> Result:
    return Result(*(statistics.fmean(getattr(each, name) for each in results) for name in ("mean", "p10", "kernels")))


def evaluate(data: Recording, rounds: int = 4) -> list[tuple[str, ...]]:
    """The rows of the table for one set."""
    rows: list[tuple[str, ...]] = []
    for share in SMALL_SHARES if data.total > MANY else SHARES:
        budget = read_budget(share, data.total)
        found = {
            "search": run_search(data, budget, rounds),
            "best estimates": run_first(data, budget),
            "random": _average([run_random(data, budget, seed) for seed in SEEDS]),
        }
        for method, result in found.items():
            figures = (f"{100 * result.mean:.1f}", f"{100 * result.p10:.1f}", f"{result.kernels:,.0f}")
            rows.append((data.name, f"{share:.1%}, {budget:,}".replace(".0%", "%"), method, *figures))
    return rows


def main() -> None:
    print("| data | budget | method | mean | P10 | kernels |")
    print("|" + "---|" * 6)
    before = ("", "")
    for data in load_recordings():
        for name, budget, *rest in evaluate(data):
            cells = ("" if name == before[0] else name, "" if (name, budget) == before else budget, *rest)
            print("| " + " | ".join(cells) + " |")
            before = name, budget


if __name__ == "__main__":
    main()
