"""Larger sizes of a product, for kernels that do not support its own."""

from __future__ import annotations

import itertools
import math

from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.config_fields import BlockGemmConfig

Sizes = tuple[int, int, int]


def list_larger_sizes(config: BlockGemmConfig, sizes: Sizes, k_batch: int, arch: Arch) -> list[Sizes]:
    """Sizes m, n and k that may fit a kernel's vectors, matrix instructions and tiles: the fewest elements first.

    Additional rows and columns of zeros do not change the original part of C. The sizes themselves are the first.
    """
    steps = (_list_steps_m(config, arch), _list_steps_n(config, arch), _list_steps_k(config, k_batch, arch))
    all_m, all_n, all_k = map(_list_extents, sizes, steps)
    larger = itertools.product(all_m, all_n, all_k)
    return sorted(larger, key=lambda each: (_count_elements(*each), each))


def _count_elements(m: int, n: int, k: int) -> int:
    return m * k + k * n + m * n


def _list_steps_m(config: BlockGemmConfig, arch: Arch) -> tuple[int, ...]:
    vector = resources.vector_a(config, arch) if config.layout[0] == "c" else 1
    return (vector, config.block.m)


def _list_steps_n(config: BlockGemmConfig, arch: Arch) -> tuple[int, ...]:
    vectors = [resources.vector_c(config), resources.vector_d(config)]
    if config.layout[1] == "r":
        vectors.append(resources.vector_b(config, arch))
    return (math.lcm(*vectors), config.mma.n, config.block.n)


def _list_steps_k(config: BlockGemmConfig, k_batch: int, arch: Arch) -> tuple[int, ...]:
    vectors = [1]
    if config.layout[0] == "r":
        vectors.append(resources.vector_a(config, arch))
    if config.layout[1] == "c":
        vectors.append(resources.vector_b(config, arch))
    block = config.block.k * k_batch
    # The last one gives every part of a split the minimum number of steps of the pipeline.
    return (math.lcm(*vectors), config.mma.k, block, block * resources.least_steps(config.pipeline))


def _list_extents(size: int, steps: tuple[int, ...]) -> list[int]:
    return sorted({size, *(-(-size // step) * step for step in steps)})
