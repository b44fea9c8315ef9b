"""Sizes of problems that test the edges of a kernel on a work-group's GEMM: partial tiles, and lines with gaps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch, Shape
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.config_fields import BlockGemmConfig
from tilewright.ops.block_gemm.loops import COLUMN, FEW_TILES, MANY_TILES, ROW, list_loop_forms

PRIMES = (13, 17, 19)  # not a multiple of any tile or vector
LARGE_GAP = 101  # vectors between lines: leading dimensions far beyond the matrix

Sizes: TypeAlias = dict[str, Any]


class Units(NamedTuple):
    """The smallest steps of M, N and K that the vectors of a kernel allow."""

    m: int
    n: int
    k: int


def find_units(config: BlockGemmConfig, arch: Arch) -> Units:
    """The steps of sizes that the vectors of A, B and C allow."""
    a, b = resources.vector_a(config, arch), resources.vector_b(config, arch)
    row_a, row_b = config.layout[0] == "r", config.layout[1] == "r"
    return Units(
        1 if row_a else a,
        math.lcm(resources.vector_c(config), b if row_b else 1),
        math.lcm(a if row_a else 1, 1 if row_b else b),
    )


def list_loop_sizes(config: BlockGemmConfig, units: Units, arch: Arch) -> Iterator[list[Sizes]]:
    """For each form of the loop lists of alternatives: many tiles, few, one row and one column of them, some with gaps
    between lines."""
    for number, steps in enumerate(list_loop_forms(config, arch)):
        gaps = (1 + number % 3, 0, 0 if number else LARGE_GAP, 0)
        for turn, (tiles, gap) in enumerate(zip((MANY_TILES, FEW_TILES, ROW, COLUMN), gaps, strict=True)):
            count = min(steps) if turn == 0 else steps[(turn - 1) % len(steps)]
            made = list_tiled_sizes(config.block, units, tiles, count)
            yield [{**sizes, **(choose_strides(config, sizes, gap) if gap else {})} for sizes in made]


def list_tiled_sizes(block: Shape, units: Units, tiles: tuple[int, int], steps: int) -> Iterator[Sizes]:
    """Sizes with this many tiles and steps: the last one partial in as many dimensions as possible, then complete
    ones."""
    extents = zip((*tiles, steps), block, units, strict=True)
    # At least three quarters of the last tile, so that its parts differ.
    sizes = [((count - 1) * tile + _partial_tile(tile, unit), count * tile) for count, tile, unit in extents]
    for m, n, k in itertools.product(*sizes):
        yield {"m": m, "n": n, "k": k}


def _partial_tile(tile: int, unit: int) -> int:
    """An odd number of vectors that is less than a tile, if possible."""
    return max(tile * 7 // 8 // unit - 1, 0) // 2 * 2 * unit + unit


def choose_strides(config: BlockGemmConfig, sizes: Sizes, gap: int) -> Sizes:
    """Strides with gaps of about `gap` vectors of 16 bytes, different for each matrix. Vectors stay aligned."""
    a, b, c = (16 // find_dtype(name).storage_bytes for name in (config.dtype_a, config.dtype_b, config.dtype_c))
    line_a = sizes["k"] if config.layout[0] == "r" else sizes["m"]
    line_b = sizes["n"] if config.layout[1] == "r" else sizes["k"]
    return {
        "stride_a": _round_up(line_a, a) + gap * a,
        "stride_b": _round_up(line_b, b) + (gap + 2) * b,
        "stride_c": _round_up(sizes["n"], c) + (2 * gap + 1) * c,
    }


def list_edges(block: Shape, units: Units) -> Iterator[list[Sizes]]:
    """Sizes that differ from the tile by one element, by the smallest step that vectors allow, or by much.

    In all dimensions at once, or in as many as the kernel supports: if it pads, one work-group has all edges.
    """
    m, n, k = units
    whole = (block.m, block.n, block.k * 2)
    for sizes in (
        (block.m + m, block.n + n, block.k + k),
        (block.m - m, block.n - n, block.k * 4 - k),
        (block.m + 1, block.n - 1, block.k - 1),
        (block.m - 1, block.n + 1, block.k + 1),
        PRIMES,
        (PRIMES[0], _prime_multiple(n, block.n * 2), _prime_multiple(k, block.k * 5)),
        (m, n, k),
        (1, 1, 1),
    ):
        taken = sorted(itertools.product((True, False), repeat=3), key=sum, reverse=True)[:-1]
        yield [
            {name: size if off else full for name, size, full, off in zip("mnk", sizes, whole, which, strict=True)}
            for which in taken
        ]


def _prime_multiple(unit: int, most: int) -> int:
    """A prime multiple of a vector's length within the maximum size of a trial."""
    return next((prime * unit for prime in (19, 17, 13, 7, 5, 3) if prime * unit <= most), unit)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
