"""Problems that try the edges of a kernel, small enough for an emulated device."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from tilewright.arch.dtypes import dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.gemm.config import Config
from tilewright.ops.gemm.padding import computes
from tilewright.ops.gemm.problem import Problem

# Primes that are no multiple of any tile or vector.
PRIMES = (13, 17, 19)
# Steps along K: no hot loop, one, several; odd and even tails. Not every form of mem, which prefetches up to 8 steps:
# tests/compile/test_mem_forms.py runs those.
LONGEST = 5


def trials(config: Config, arch: Arch) -> tuple[Problem, ...]:
    """The problems that the kernel computes, most telling first: at most four work-groups for each matrix."""
    base = Problem(
        m=config.block.m,
        n=config.block.n,
        k=config.block.k * 2,
        dtype_a=config.dtype_a,
        dtype_b=config.dtype_b,
        dtype_c=config.dtype_c,
        layout=config.layout,
        num_d=config.num_d,
        elementwise=config.elementwise,
        batch=3 if config.variant == "batched" else 1,
    )
    # A vector may be as long as the block, so that nothing is left when it is taken off.
    whole = (sizes for sizes in _sizes(config, arch) if min(sizes.values(), default=1) > 0)
    found = (_resized(base, **sizes) for sizes in whole)
    return tuple(dict.fromkeys(problem for problem in found if computes(config, problem, arch)))


def _resized(base: Problem, **sizes: Any) -> Problem:
    packed: dict[str, Any] = {"stride_a": 0, "stride_b": 0, "stride_c": 0}
    return dataclasses.replace(base, **{**packed, **sizes})


def _sizes(config: Config, arch: Arch) -> Iterator[dict[str, Any]]:
    block = config.block
    yield {}
    yield from _beyond_the_tile(config, arch)
    yield from ({"k": block.k * steps} for steps in range(1, LONGEST + 1))
    yield from _tails(config, arch)
    yield from ({"m": m} for m in _around(block.m, _unit_m(config, arch)))
    yield from ({"n": n} for n in _around(block.n, _unit_n(config, arch)))
    yield from _wide(config, arch)
    yield from _splits(config)
    if config.variant == "batched":
        yield {"batch": 1}
        yield {"batch": 2, "m": block.m + 1, "k": block.k}


def _beyond_the_tile(config: Config, arch: Arch) -> Iterator[dict[str, int]]:
    """Several dimensions off the tile at once: where a kernel pads, one work-group sees all edges."""
    block = config.block
    m, n, k = _unit_m(config, arch), _unit_n(config, arch), _unit_k(config, arch)
    yield {"m": block.m + m, "n": block.n + n, "k": block.k + k}
    yield {"m": block.m - m, "n": block.n - n, "k": block.k * 3 - k}
    yield {"m": block.m + 1, "n": block.n * 2, "k": block.k * 3}
    yield {"m": PRIMES[0], "n": PRIMES[1], "k": PRIMES[2]}
    yield {"m": PRIMES[0], "n": _prime_multiple(n, block.n * 2), "k": _prime_multiple(k, block.k * LONGEST)}
    yield {"m": 1, "n": n, "k": k}
    yield {"m": 1, "n": 1, "k": 1}


def _prime_multiple(unit: int, most: int) -> int:
    """A multiple of a vector's length by a prime, within the size that a trial may have."""
    return next((prime * unit for prime in (19, 17, 13, 7, 5, 3) if prime * unit <= most), unit)


def _tails(config: Config, arch: Arch) -> Iterator[dict[str, int]]:
    """K that ends within a step, after every number of steps."""
    block, unit = config.block, _unit_k(config, arch)
    for steps in range(LONGEST):
        yield {"k": block.k * steps + unit}
    for k in (1, block.k - 1, block.k + 1, block.k * 2 - unit, block.k * 4 - unit):
        yield {"k": k}


def _around(extent: int, unit: int) -> tuple[int, ...]:
    """Sizes around a tile's, by one element and by the smallest step that vectors allow, and far below it."""
    return (1, unit, PRIMES[0], extent - 1, extent + 1, extent - unit, extent + unit, extent * 2)


def _wide(config: Config, arch: Arch) -> Iterator[dict[str, int]]:
    """Lines with gaps between them, of 16 and 48 bytes so that vectors stay aligned."""
    a, b, c = (16 // dtype(name).storage_bytes for name in (config.dtype_a, config.dtype_b, config.dtype_c))
    for sizes in ({}, {"m": config.block.m + 1, "n": config.block.n + _unit_n(config, arch)}):
        problem = {"m": config.block.m, "n": config.block.n, "k": config.block.k * 2, **sizes}
        line_a = problem["k"] if config.layout[0] == "r" else problem["m"]
        line_b = problem["n"] if config.layout[1] == "r" else problem["k"]
        # A reordered B has no lines, so there can be no gaps.
        gap_b = 0 if config.variant == "preshuffle" else 3 * b
        yield {
            **problem,
            "stride_a": _up(line_a, a) + a,
            "stride_b": _up(line_b, b) + gap_b,
            "stride_c": _up(problem["n"], c) + c,
        }


def _splits(config: Config) -> Iterator[dict[str, int]]:
    if not config.split_k:
        return
    block, mma = config.block, config.mma
    for k_batch in (2, 3):
        for steps in (1, 2, 3):
            yield {"k_batch": k_batch, "k": block.k * steps * k_batch}
        yield {"k_batch": k_batch, "k": block.k * 2 * k_batch, "m": block.m + 1}
        # The last part is shorter than the others.
        yield {"k_batch": k_batch, "k": block.k * 2 * k_batch - mma.k}
        yield {"k_batch": k_batch, "k": block.k * 2 * k_batch - 1}


def _unit_m(config: Config, arch: Arch) -> int:
    return resources.vector_a(config, arch) if config.layout[0] == "c" else 1


def _unit_n(config: Config, arch: Arch) -> int:
    vectors = [resources.vector_c(config), resources.vector_d(config) if config.num_d else 1]
    if config.layout[1] == "r":
        vectors.append(resources.vector_b(config, arch))
    return math.lcm(*vectors) if config.variant != "preshuffle" else math.lcm(*vectors, config.mma.n)


def _unit_k(config: Config, arch: Arch) -> int:
    vectors = [1]
    if config.layout[0] == "r":
        vectors.append(resources.vector_a(config, arch))
    if config.layout[1] == "c":
        vectors.append(resources.vector_b(config, arch))
    return math.lcm(*vectors) if config.variant != "preshuffle" else math.lcm(*vectors, config.mma.k)


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
