"""Measure the cost of selection: a cached plan compared with a look-up, and a new problem with many candidates.

    python tools/bench_select.py [--candidates 1000] [--json]

Each round selects for a problem that the registry has not seen, after others. Figures are the median and the lowest of
the rounds. LightGBM's own `predict`, with the shipped model and a row for each candidate, is timed in the same rounds,
so that other load disturbs both equally.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import tilewright as tw
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.select.bundle import load_builtin_bundles
from tilewright.select.chain import Chain
from tilewright.select.selection import Selector

CALLS = 2000


@dataclass(frozen=True)
class Figure:
    """The median and the lowest microseconds of all rounds."""

    what: str
    candidates: int
    median_us: float
    least_us: float


def measure_new_problems(kernels: Sequence[Kernel], problems: Iterable[Any], selector: Selector, what: str) -> Figure:
    """Measure the selection for problems that the registry has not seen."""
    registry, arch = replace(tw.Registry.of(list(kernels)), selector=selector), kernels[0].arch
    times, candidates = [], []
    for problem in problems:
        start = time.perf_counter()
        found = registry.select(problem, arch, built=False)
        _ = found.best
        times.append(time.perf_counter() - start)
        candidates.append(len(found.choices))
    kept, counts = times[1:], candidates[1:]  # the first round prepares the kernels
    return Figure(what, int(statistics.median(counts)), statistics.median(kept) * 1e6, min(kept) * 1e6)


def find_conv_kernels(candidates: int) -> tuple[list[Kernel], list[Any]]:
    """Find convolution kernels that support the same problems, and such problems."""
    blocks = [(m, n, k) for m in (16, 32, 64, 128, 256) for n in (32, 64, 128, 256) for k in (32, 64, 128)]
    space = tw.grouped_conv.space(
        direction="forward",
        ndim=2,
        dtype="bf16",
        block=blocks,
        waves="*",
        mma="*",
        pipeline="*",
        scheduler="*",
        epilogue="cshuffle",
        vector=[(4, 8, 8), (8, 8, 8)],
    )
    members = space.iter("gfx950")
    problems = [
        tw.grouped_conv.Problem(
            direction="forward", n=n, c=64, k=128, input_size=(28, 28), filter_size=(3, 3), pad=1, dtype="bf16"
        )
        for n in range(1, 40)
    ]
    return _select_supporting(members, problems[0], candidates), problems


def find_gemm_kernels(candidates: int) -> tuple[list[Kernel], list[Any]]:
    """Find GEMM kernels that support the same problems, and such problems."""
    members = _search_space("gemm", "gfx942", {"variant": "standard", "dtype_a": "fp16", "layout": "rcr"})
    problems = [tw.gemm.Problem(m=128 * m, n=4096, k=4096, dtype="fp16", layout="rcr") for m in range(1, 40)]
    return _select_supporting(members, problems[0], candidates), problems


def _search_space(name: str, arch: str, wanted: dict[str, Any]) -> Iterable[Kernel]:
    spaces = [*find_op(name).spaces().values(), *find_op(name).sets().values()]
    kernels = itertools.chain.from_iterable(space.kernels(arch) for space in spaces if arch in (space.archs or (arch,)))
    return (kernel for kernel in kernels if all(getattr(kernel.config, n) == value for n, value in wanted.items()))


def _select_supporting(members: Iterable[Kernel], problem: Any, candidates: int) -> list[Kernel]:
    """Select distinct kernels that support a problem."""
    able = (kernel for kernel in members if not tw.fits(kernel.config, problem, kernel.arch))
    return list(itertools.islice(dict.fromkeys(able), candidates))


def measure_lightgbm(op: Op, kernels: int, rounds: int) -> Figure | None:
    """Measure LightGBM's own predict with the shipped model and a row for each kernel, in one thread."""
    import lightgbm
    import numpy as np

    bundles = load_builtin_bundles(op)
    if not bundles:
        return None
    folder = op.template.parent / "bundles" / bundles[0].name
    booster = lightgbm.Booster(model_file=folder / "model-0.txt")
    rows = np.random.default_rng(1).random((kernels, booster.num_feature()))
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        booster.predict(rows, num_threads=1)
        times.append(time.perf_counter() - start)
    return Figure(
        "bare LightGBM predict, one of its models", len(rows), statistics.median(times) * 1e6, min(times) * 1e6
    )


def measure_cached_plan(rounds: int = 9) -> tuple[Figure, Figure]:
    """Measure a dict look-up by problem, and `registry.plan` for a problem that was planned before."""
    kernel = next(iter(find_op("gemm").sets()["fp16_rcr_essential"].kernels("gfx942")))
    registry = tw.Registry.of([kernel]).build()
    problem = tw.gemm.Problem(m=256, n=256, k=256, dtype="fp16", layout="rcr")
    device = tw.Device("emulated:gfx942")
    plan = registry.plan(problem, device)
    known = {problem: plan}
    one, other = _alternate(lambda: known[problem], lambda: registry.plan(problem, device), rounds)
    return Figure("dict look-up by the problem", 1, *one), Figure("plan of a known problem", 1, *other)


def _alternate(first: Callable[[], Any], second: Callable[[], Any], rounds: int) -> list[tuple[float, float]]:
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for side, call in zip(times, (first, second), strict=True):
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            side.append((time.perf_counter() - start) / CALLS * 1e6)
    return [(statistics.median(side), min(side)) for side in times]


def measure_all(candidates: int) -> list[Figure]:
    """Measure everything; the learned part only for ops with a shipped bundle."""
    found = []
    for kernels, problems in (find_gemm_kernels(candidates), find_conv_kernels(candidates)):
        op = find_op(kernels[0].op)
        name = f"{op.name} {kernels[0].arch}"
        found.append(measure_new_problems(kernels, problems, Chain(bundles=()), f"{name}: new problem, estimate"))
        predict = measure_lightgbm(op, len(kernels), len(problems))
        if predict is not None:
            found.append(measure_new_problems(kernels, problems, Chain(), f"{name}: new problem, learned re-rank"))
            found.append(predict)
    return [*found, *measure_cached_plan()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure_all(options.candidates)
    if options.json:
        print(json.dumps([asdict(figure) for figure in found], indent=2))
        return
    for figure in found:
        times = f"{figure.median_us:>10,.2f} µs, least {figure.least_us:,.2f}"
        print(f"{figure.what:<52} {figure.candidates:>6,} kernels {times}")


if __name__ == "__main__":
    main()
