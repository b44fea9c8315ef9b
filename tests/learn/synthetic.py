"""A made-up table of measurements of a real op: estimates times factors that are known, so that they can be found."""

from __future__ import annotations

import itertools

import numpy as np

from tilewright import arch as archs
from tilewright.learn.measurements import Measurement, Measurements, make_table
from tilewright.ops import gemm, kernel_of
from tilewright.ops.cost_model.cost import Facts
from tilewright.ops.kernel import Kernel
from tilewright.ops.problem_values import dump_problem

ARCH = "gfx942"


def kernels() -> list[Kernel]:
    """Six GEMM kernels: three tiles, two pipelines."""
    tiles = {(256, 128, 32): (2, 2, 1), (128, 128, 32): (2, 2, 1), (64, 64, 64): (2, 2, 1)}
    made = []
    for (block, waves), pipeline in itertools.product(tiles.items(), ("compv3", "compv4")):
        config = gemm.config(
            variant="standard",
            dtype="fp16",
            layout="rcr",
            block=block,
            waves=waves,
            mma=(32, 32, 16),
            pipeline=pipeline,
            scheduler="intrawave",
            epilogue="cshuffle",
        )
        made.append(kernel_of(config, ARCH))
    return made


def problems(number: int, seed: int = 0) -> list[gemm.Problem]:
    """Random sizes, multiples of 64."""
    drawn = np.random.default_rng(seed)
    sizes = [64 * (2 ** drawn.uniform(0, 6, 3)).astype(int) for _ in range(number)]
    return [gemm.Problem(m=int(m), n=int(n), k=int(k), dtype="fp16", layout="rcr") for m, n, k in sizes]


def factor(kernel: Kernel, problem: gemm.Problem) -> float:
    """How far the made-up machine is off its estimate: compv4 is slow, but for long sums, where it is quick."""
    if kernel.config.pipeline != "compv4":  # type: ignore[attr-defined]
        return 1.0
    return 0.4 if problem.k >= 1024 else 2.0


def estimated_us(kernel: Kernel, problem: gemm.Problem) -> float:
    cost, arch = gemm.OP.cost, archs.load(ARCH)
    assert cost is not None
    p = Facts(**cost.problem_numbers(problem))
    k = Facts(**cost.kernel_numbers(kernel.config, arch, None))
    return float(cost.estimate(p, k, arch).us)


def measurement(kernel: Kernel, problem: gemm.Problem, us: float | None, status: str = "ok") -> Measurement:
    return Measurement(
        op="gemm", arch=ARCH, kernel=kernel.slug, problem=dump_problem(problem), us=us, status=status, source="made up"
    )


def table(number: int = 60, noise: float = 0.01) -> Measurements:
    """All kernels for so many problems, with a little noise and one failed run."""
    drawn = np.random.default_rng(7)
    rows = [
        measurement(k, p, estimated_us(k, p) * factor(k, p) * float(np.exp(noise * drawn.normal())))
        for p in problems(number)
        for k in kernels()
    ]
    return make_table([*rows, measurement(kernels()[0], problems(1, seed=99)[0], None, "failed")])
