"""The nearest larger problem that a kernel supports."""

from __future__ import annotations

import dataclasses

from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.padding import list_larger_sizes
from tilewright.ops.gemm.config import Config
from tilewright.ops.gemm.fit import FIT_RULES
from tilewright.ops.gemm.problem import Problem
from tilewright.ops.rule import is_legal


def pad_problem(config: Config, problem: Problem, arch: Arch) -> Problem | None:
    """The problem itself if the kernel supports it, else the supported problem with the fewest additional elements.

    None if padding does not help, because the kernel has other types or was built without split-K. A padded problem is
    packed.
    """
    if can_compute(config, problem, arch):
        return problem
    sizes = list_larger_sizes(config, (problem.m, problem.n, problem.k), problem.k_batch, arch)
    larger = (dataclasses.replace(problem, m=m, n=n, k=k, stride_a=0, stride_b=0, stride_c=0) for m, n, k in sizes)
    return next((candidate for candidate in larger if can_compute(config, candidate, arch)), None)


def can_compute(config: Config, problem: Problem, arch: Arch) -> bool:
    """Whether no fit rule rejects the problem."""
    return is_legal(FIT_RULES, config, problem, arch)
