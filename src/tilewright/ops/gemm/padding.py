"""The nearest larger problem that a kernel supports."""

from __future__ import annotations

import dataclasses
import itertools
import math

from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.gemm.config import Config
from tilewright.ops.gemm.fit import FIT_RULES
from tilewright.ops.gemm.problem import Problem
from tilewright.ops.rule import is_legal


def pad_problem(config: Config, problem: Problem, arch: Arch) -> Problem | None:
    """The problem itself if the kernel supports it, else the supported problem with the fewest additional elements.

    Additional rows and columns of zeros do not change the original part of C. None if padding does not help, because
    the kernel has other types or was built without split-K. A padded problem is packed.
    """
    if can_compute(config, problem, arch):
        return problem
    larger = sorted(
        (
            _resize_problem(problem, m, n, k)
            for m, n, k in itertools.product(
                _list_extents(problem.m, _list_steps_m(config, arch)),
                _list_extents(problem.n, _list_steps_n(config, arch)),
                _list_extents(problem.k, _list_steps_k(config, problem, arch)),
            )
        ),
        key=lambda p: (p.m * p.k + p.k * p.n + p.m * p.n, p.m, p.n, p.k),
    )
    return next((candidate for candidate in larger if can_compute(config, candidate, arch)), None)


def can_compute(config: Config, problem: Problem, arch: Arch) -> bool:
    """Whether no fit rule rejects the problem."""
    return is_legal(FIT_RULES, config, problem, arch)


def _list_steps_m(config: Config, arch: Arch) -> tuple[int, ...]:
    vector = resources.vector_a(config, arch) if config.layout[0] == "c" else 1
    return (vector, config.block.m)


def _list_steps_n(config: Config, arch: Arch) -> tuple[int, ...]:
    vectors = [resources.vector_c(config), resources.vector_d(config)]
    if config.layout[1] == "r":
        vectors.append(resources.vector_b(config, arch))
    return (math.lcm(*vectors), config.mma.n, config.block.n)


def _list_steps_k(config: Config, problem: Problem, arch: Arch) -> tuple[int, ...]:
    vectors = [1]
    if config.layout[0] == "r":
        vectors.append(resources.vector_a(config, arch))
    if config.layout[1] == "c":
        vectors.append(resources.vector_b(config, arch))
    block = config.block.k * problem.k_batch
    # The last one gives every part of a split the minimum number of steps of the pipeline.
    return (math.lcm(*vectors), config.mma.k, block, block * resources.least_steps(config.pipeline))


def _list_extents(size: int, steps: tuple[int, ...]) -> list[int]:
    return sorted({size, *(-(-size // step) * step for step in steps)})


def _resize_problem(problem: Problem, m: int, n: int, k: int) -> Problem:
    return dataclasses.replace(problem, m=m, n=n, k=k, stride_a=0, stride_b=0, stride_c=0)
