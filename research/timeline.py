"""Compare the timeline of code objects with the analytical estimate, on measured convolutions of gfx950.

    python -m research.timeline                 # all 13 kernels: compiles them once, then about 4 CPU minutes
    python -m research.timeline --kernels 5     # the first five kernels only

Each kernel is compiled, and runs on the emulated device with two lengths of the k loop. The timeline of a compute unit
gives clocks for one work-group, for as many as are resident, and for three times as many. Times of all problems follow
from these, linear in the k-steps and in the work-groups of a unit. docs/tracing.md explains the figures.

Two clocks are chosen from a few values, and two factors of the whole GPU (launch, clock) are fitted. "Kernels left
out" chooses and fits them on the other kernels, for each kernel.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr

from research.conv_data import Floats, Integers, load
from research.timeline_profiles import STEPS, profile_kernel
from tilewright.arch import load as load_arch
from tilewright.emulator.profile import KernelProfile
from tilewright.emulator.timing.machine import load_machine
from tilewright.emulator.timing.paths import make_paths
from tilewright.emulator.timing.simulator import ComputeUnit
from tilewright.learn.dataset import Dataset
from tilewright.learn.efficiency import evaluate_scores
from tilewright.ops.grouped_conv.gfx950_times import ARCH
from tilewright.ops.kernel import Kernel

# The clocks that are chosen, and their values.
CHOICES: Mapping[str, tuple[int, ...]] = {
    "memory_latency": (400, 550, 700, 1000),
    "memory_bytes": (64, 32),
}
LAUNCHES = np.linspace(0.0, 6.0, 13)  # µs
FACTORS = np.exp(np.linspace(-0.35, 0.7, 43))  # of all clocks
Values = TypeVar("Values", bound=tuple[float, ...])  # one value of each choice


@dataclass(frozen=True, slots=True)
class UnitClocks:
    """Clocks of one compute unit for a kernel with some k-steps: one work-group, all resident ones, and one more."""

    resident: int
    alone: int
    full: int
    more: float

    def count(self, blocks: Floats) -> Floats:
        """Return the clocks of work-groups that a compute unit runs."""
        shared = self.alone + (np.minimum(blocks, self.resident) - 1) * (
            (self.full - self.alone) / max(self.resident - 1, 1)
        )
        return shared + np.maximum(blocks - self.resident, 0) * self.more


@dataclass(frozen=True, slots=True)
class Modelled:
    """Times from the timeline, and the least times that the memory's bandwidth allows, both in µs."""

    us: Floats
    least: Floats

    def only(self, chosen: Sequence[int] | NDArray[np.bool_]) -> Modelled:
        """Return the times of some kernels, which are on the last axis."""
        return Modelled(self.us[..., chosen], self.least[..., chosen])

    def scale(self, launch: float, factor: float) -> Floats:
        return launch + np.maximum(factor * self.us, self.least)


@dataclass(frozen=True, slots=True)
class Judged:
    """A method's figures: median and 90th percentile of the error, Spearman's rank correlation, mean and P10 of the
    choice's efficiency."""

    method: str
    error: float
    error_p90: float
    rank: float
    mean: float
    p10: float
    top1: float


def simulate_unit(profile: KernelProfile, changed: Mapping[str, int]) -> UnitClocks:
    """Run the timeline of a profile with changed clocks."""
    machine = load_machine(load_arch(profile.arch), **changed)
    paths, resident = make_paths(profile, machine), profile.blocks_per_unit
    alone, full, three = (
        ComputeUnit(machine, paths).run(resident, total).clocks for total in (1, resident, 3 * resident)
    )
    return UnitClocks(resident, alone, full, (three - full) / (2 * resident))


def count_tiles(kernel: Kernel, problem: object) -> tuple[int, int]:
    """Return the work-groups and the k-steps of a forward convolution."""
    block = kernel.config.block  # type: ignore[attr-defined]
    height, width = problem.output_size  # type: ignore[attr-defined]
    rows = problem.n * height * width  # type: ignore[attr-defined]
    depth = problem.c * int(np.prod(problem.filter_size))  # type: ignore[attr-defined]
    return -(-rows // block.m) * -(-problem.k // block.n), -(-depth // block.k)  # type: ignore[attr-defined]


def interpolate(short: Floats, long: Floats, lengths: tuple[int, int], steps: Floats) -> Floats:
    """Return the clocks for these k-steps, from those of two lengths of the loop."""
    return short + (steps - lengths[0]) * (long - short) / (lengths[1] - lengths[0])


def fit_factors(modelled: Modelled, us: Floats) -> tuple[float, float, float]:
    """Return launch time, factor of the clocks, and the median error with them."""
    found = [
        (float(np.median(np.abs(modelled.scale(launch, factor) / us - 1))), float(launch), float(factor))
        for launch, factor in itertools.product(LAUNCHES, FACTORS)
    ]
    error, launch, factor = min(found)
    return launch, factor, error


def fit(
    modelled: Mapping[Values, Modelled], us: Floats, chosen: Sequence[int] | NDArray[np.bool_]
) -> tuple[Values, float, float]:
    """Return the clocks and factors with the smallest median error for some kernels (of the last axis)."""
    found = []
    for values, one in modelled.items():
        launch, factor, error = fit_factors(one.only(chosen), us[..., chosen])
        found.append((error, values, launch, factor))
    _, values, launch, factor = min(found)
    return values, launch, factor


def judge(method: str, predicted: Floats, us: Floats) -> Judged:
    """Return the figures of predicted times, a row per problem and a column per kernel."""
    problem, kernel = (each.ravel() for each in np.indices(us.shape))
    return judge_pairs(method, predicted.ravel(), us.ravel(), problem, kernel)


def judge_pairs(method: str, predicted: Floats, us: Floats, problem: Integers, kernel: Integers) -> Judged:
    """Return the figures of predicted times of pairs of a problem and a kernel."""
    error = np.abs(predicted / us - 1)
    chosen = evaluate_scores(problem, us, predicted, kernel)
    return Judged(
        method,
        float(np.median(error)),
        float(np.percentile(error, 90)),
        float(spearmanr(predicted, us).statistic),
        chosen.mean,
        chosen.p10,
        chosen.top1,
    )


def arrange(data: Dataset, values: Floats, kernels: int) -> Floats:
    """Return values of pairs as a table with a row per problem, for the first kernels."""
    table = np.full((len(data.problems), len(data.kernels)), np.nan)
    table[data.problem, data.kernel] = values
    return table[:, :kernels]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, help="number of kernels; all by default")
    given = parser.parse_args(arguments)
    data = load().data
    kernels = data.kernels[: given.kernels]
    us, analytical = (arrange(data, each, len(kernels)) for each in (data.us, data.estimate))
    modelled = simulate_all(kernels, data.problems)
    plain = tuple(getattr(load_machine(load_arch(ARCH)), name) for name in CHOICES)
    every = list(range(len(kernels)))
    values, launch, factor = fit(modelled, us, every)
    left_out = np.empty_like(us)
    for kernel in every:
        own, start, scale = fit(modelled, us, [other for other in every if other != kernel])
        left_out[:, kernel] = modelled[own].only([kernel]).scale(start, scale)[:, 0]
    arch_launch = load_arch(ARCH).compute.launch_us
    judged = [
        judge("analytical estimate", analytical, us),
        judge("timeline, nothing fitted", modelled[plain].scale(arch_launch, 1.0), us),
        judge("timeline, fitted on all kernels", modelled[values].scale(launch, factor), us),
        judge("timeline, each kernel left out", left_out, us),
        judge("geometric mean of both, kernels left out", np.sqrt(left_out * analytical), us),
    ]
    print_table(judged, f"{us.shape[1]} kernels x {us.shape[0]} problems")
    print(f"fitted on all: {dict(zip(CHOICES, values, strict=True))}, launch {launch:.1f} us, clocks x {factor:.2f}")
    print_kernels(kernels, left_out / us, analytical / us)
    return 0


def simulate_all(kernels: Sequence[Kernel], problems: Iterable[object]) -> dict[tuple[int, ...], Modelled]:
    """Return the times of all pairs, for each choice of clocks: a row per problem and a column per kernel."""
    listed, compute = list(problems), load_arch(ARCH).compute
    shape = (len(listed), len(kernels))
    found = {values: Modelled(np.empty(shape), np.zeros(shape)) for values in itertools.product(*CHOICES.values())}
    for column, kernel in enumerate(kernels):
        profiles = [profile_kernel(kernel, steps) for steps in STEPS]
        tiles, steps = np.array([count_tiles(kernel, problem) for problem in listed], float).T
        blocks = np.ceil(tiles / compute.units)
        for values, table in found.items():
            changed = dict(zip(CHOICES, values, strict=True))
            short, long = (simulate_unit(profile, changed).count(blocks) for profile in profiles)
            table.us[:, column] = interpolate(short, long, STEPS, steps) / compute.clock_mhz
        print(f"{column + 1}/{len(kernels)} {kernel.slug}", file=sys.stderr)
    return found


def print_table(judged: Sequence[Judged], what: str) -> None:
    table = Table(title=f"{what}, in %", box=SIMPLE)
    for heading in ("method", "median error", "P90", "Spearman", "choice: mean", "P10", "top-1"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for each in judged:
        figures = (each.error, each.error_p90, each.rank, each.mean, each.p10, each.top1)
        table.add_row(each.method, *(f"{100 * figure:.1f}" for figure in figures))
    Console(width=120).print(table)


def print_kernels(kernels: Sequence[Kernel], timeline: Floats, analytical: Floats) -> None:
    """Print the median of predicted by measured times of each kernel."""
    table = Table(title="Median of predicted / measured time", box=SIMPLE)
    for heading in ("kernel", "timeline, left out", "analytical"):
        table.add_column(heading)
    for column, kernel in enumerate(kernels):
        config = kernel.config
        name = f"{config.block} {config.pipeline}"  # type: ignore[attr-defined]
        table.add_row(name, *(f"{np.median(each[:, column]):.2f}" for each in (timeline, analytical)))
    Console(width=120).print(table)


if __name__ == "__main__":
    sys.exit(main())
