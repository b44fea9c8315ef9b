"""The nearest larger problem that a kernel supports: more channels in every group."""

from __future__ import annotations

import dataclasses
import itertools

from tilewright.arch.spec import Arch
from tilewright.ops.grouped_conv.config import Config
from tilewright.ops.grouped_conv.fit import FIT_RULES
from tilewright.ops.grouped_conv.implicit_gemm import channel_units
from tilewright.ops.grouped_conv.kind import find_kind
from tilewright.ops.grouped_conv.problem import Problem
from tilewright.ops.rule import is_legal


def pad_problem(config: Config, problem: Problem, arch: Arch) -> Problem | None:
    """The problem itself if the kernel supports it, else the supported problem with the fewest additional channels.

    Additional channels of zeros do not change the original part of the result. They follow the channels of each group,
    so that groups stay contiguous. Sizes, images and groups are never changed: None if that would be needed, or if the
    kernel has other types or another direction.
    """
    if can_compute(config, problem, arch):
        return problem
    c, k = problem.group_channels
    steps_c, steps_k = _list_steps(config)
    larger = sorted(
        itertools.product(_list_extents(c, steps_c), _list_extents(k, steps_k)),
        key=lambda channels: (channels[0] * channels[1], sum(channels)),
    )
    candidates = (dataclasses.replace(problem, c=c * problem.g, k=k * problem.g) for c, k in larger)
    return next((candidate for candidate in candidates if can_compute(config, candidate, arch)), None)


def can_compute(config: Config, problem: Problem, arch: Arch) -> bool:
    """Whether no fit rule rejects the problem."""
    return is_legal(FIT_RULES, config, problem, arch)


def _list_steps(config: Config) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Multiples worth trying for the channels of a group, input and output: of vectors, of mma tiles, of blocks."""
    unit_c, unit_k = channel_units(config)
    factors = find_kind(config).factors
    dim_c, dim_k = factors.find_dimension("c"), factors.find_dimension("k")
    tiles = (config.mma, config.block)
    return (unit_c, *(getattr(tile, dim_c) for tile in tiles)), (unit_k, *(getattr(tile, dim_k) for tile in tiles))


def _list_extents(size: int, steps: tuple[int, ...]) -> list[int]:
    return sorted({size, *(-(-size // step) * step for step in steps)})
