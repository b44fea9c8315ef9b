"""The nearest larger problem that a kernel supports."""

from __future__ import annotations

import dataclasses

from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.padding import list_larger_sizes
from tilewright.ops.grouped_gemm.config import Config, view_gemm
from tilewright.ops.grouped_gemm.problem import Problem
from tilewright.ops.grouped_gemm.rules import FIT_RULES
from tilewright.ops.rule import is_legal


def pad_problem(config: Config, problem: Problem, arch: Arch) -> Problem | None:
    """The problem itself if the kernel supports it, else the supported problem with the fewest additional elements.

    The ragged dimension keeps its size, because groups end anywhere in it. None if padding does not help. A padded
    problem is packed.
    """
    if is_legal(FIT_RULES, config, problem, arch):
        return problem
    sizes = list_larger_sizes(view_gemm(config), (problem.m, problem.n, problem.k), problem.k_batch, arch)
    ragged = _read_ragged(problem.ragged, problem.m, problem.n, problem.k)
    sizes = [size for size in sizes if _read_ragged(problem.ragged, *size) == ragged]
    larger = (dataclasses.replace(problem, m=m, n=n, k=k, stride_a=0, stride_b=0, stride_c=0) for m, n, k in sizes)
    return next((candidate for candidate in larger if is_legal(FIT_RULES, config, candidate, arch)), None)


def _read_ragged(ragged: str, m: int, n: int, k: int) -> int | None:
    """The size of the ragged dimension, None without one."""
    return {"m": m, "n": n, "k": k}.get(ragged)
