"""Problems that test the edge cases of a kernel, small enough for an emulated device."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any, TypeAlias

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.ck_probes import chooses_on_device
from tilewright.ops.block_gemm.loops import COLUMN, FEW_TILES, MANY_TILES, ROW, list_loop_forms
from tilewright.ops.gemm.config import Config
from tilewright.ops.gemm.kind import find_kind
from tilewright.ops.gemm.padding import can_compute
from tilewright.ops.gemm.problem import Problem

PRIMES = (13, 17, 19)  # not a multiple of any tile or vector
PARTS = (2, 3, 5)  # values of k_batch
LARGE_GAP = 101  # vectors between lines: leading dimensions far beyond the matrix
# A persistent kernel's work-groups process several tiles only if there are more than fit on the GPU at once. Larger
# results than this take too long on the host.
MOST_PERSISTENT = 1 << 24

_Values: TypeAlias = dict[str, Any]


def list_trials(config: Config, arch: Arch) -> tuple[Problem, ...]:
    """Trials that the kernel supports, the most sensitive first: many tiles in every form of the loop, then edges."""
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
        batch=3 if find_kind(config).batched else 1,
    )
    found: dict[Problem, None] = {}
    for alternatives in _list_sizes(config, arch):
        # A vector may be as long as the block, so that a size is 0 after subtracting it.
        whole = (sizes for sizes in alternatives if min(sizes.values(), default=1) > 0)
        made = (_resize_problem(base, sizes) for sizes in whole)
        first = next((problem for problem in made if can_compute(config, problem, arch)), None)
        if first is not None:
            found[first] = None
    return tuple(found)


def _resize_problem(base: Problem, sizes: _Values) -> Problem:
    packed: _Values = {"stride_a": 0, "stride_b": 0, "stride_c": 0}
    return dataclasses.replace(base, **{**packed, **sizes})


def _list_sizes(config: Config, arch: Arch) -> Iterator[list[_Values]]:
    """Lists of alternatives: the first of each that the kernel supports is a trial."""
    yield from _list_loop_trials(config, arch)
    yield from _list_edges(config, arch)
    yield [{}]  # whole tiles
    yield from _list_splits(config, arch)
    if find_kind(config).batched:
        yield [{"batch": 1}]
    if config.num_d:
        tiles = list(_list_tiled_sizes(config, arch, FEW_TILES, 2, 1, gap=0))
        yield [{**sizes, "num_row_d": 1} for sizes in tiles]
    if config.persistent:
        yield [_sizes_beyond_gpu(config, arch)]


def _list_loop_trials(config: Config, arch: Arch) -> Iterator[list[_Values]]:
    """Every form of the loop with many tiles, with a row and with a column of tiles, complete and partial.

    Each form is compiled separately, including the code that finds a work-group's tile. Many tiles have few steps, and
    few tiles many, so that no trial takes long.
    """
    several = {"batch": 2} if find_kind(config).batched else {}
    one = {"batch": 1} if several else {}
    for split in (False, True) if config.split_k else (False,):
        for number, steps in enumerate(list_loop_forms(config, arch)):
            counts = [PARTS[(number + turn) % len(PARTS)] if split else 1 for turn in range(3)]
            many = _list_tiled_sizes(config, arch, MANY_TILES, min(steps), counts[0], gap=1 + number % 3)
            yield [{**sizes, **one} for sizes in many]
            for turn, (tiles, gap) in enumerate(((FEW_TILES, 0), (ROW, 0 if number else LARGE_GAP), (COLUMN, 0))):
                made = _list_tiled_sizes(config, arch, tiles, steps[turn % len(steps)], counts[turn], gap)
                yield [{**sizes, **several} for sizes in made]


def _list_tiled_sizes(
    config: Config, arch: Arch, tiles: tuple[int, int], steps: int, k_batch: int, gap: int
) -> Iterator[_Values]:
    """Sizes with this many tiles and steps: the last one partial in as many dimensions as possible, then complete ones.

    Lines have gaps between them.
    """
    block = config.block
    units = (_unit_m(config, arch), _unit_n(config, arch), _unit_k(config, arch))
    counts = (tiles[0], tiles[1], steps * k_batch)
    extents = zip(counts, block, units, strict=True)
    # At least three quarters of the last tile, so that its parts differ.
    sizes = [((count - 1) * tile + _partial_tile(tile, unit), count * tile) for count, tile, unit in extents]
    for m, n, k in itertools.product(*sizes):
        problem = {"m": m, "n": n, "k": k}
        yield {**problem, "k_batch": k_batch, **(_choose_strides(config, problem, gap) if gap else {})}


def _partial_tile(tile: int, unit: int) -> int:
    """An odd number of vectors that is less than a tile, if possible."""
    return max(tile * 7 // 8 // unit - 1, 0) // 2 * 2 * unit + unit


def _choose_strides(config: Config, problem: _Values, gap: int) -> _Values:
    """Strides with gaps of about `gap` vectors of 16 bytes, different for each matrix. Vectors stay aligned."""
    a, b, c = (16 // find_dtype(name).storage_bytes for name in (config.dtype_a, config.dtype_b, config.dtype_c))
    line_a = problem["k"] if config.layout[0] == "r" else problem["m"]
    line_b = problem["n"] if config.layout[1] == "r" else problem["k"]
    # A reordered B has no lines, so it cannot have gaps.
    gap_b = 0 if find_kind(config).reordered_b else (gap + 2) * b
    return {
        "stride_a": _round_up(line_a, a) + gap * a,
        "stride_b": _round_up(line_b, b) + gap_b if gap_b else line_b,
        "stride_c": _round_up(problem["n"], c) + (2 * gap + 1) * c,
    }


def _sizes_beyond_gpu(config: Config, arch: Arch) -> _Values:
    """More tiles than a GPU has work-groups at once, if the result is not too large for the host."""
    block, threads = config.block, resources.block_threads(config, arch)
    compute = arch.compute
    by_threads = compute.simds_per_unit * compute.max_waves_per_simd * arch.wave_size // threads
    at_once = compute.units * max(min(by_threads, arch.lds.bytes // resources.lds_bytes(config, arch)), 1)
    columns = 3
    rows = -(-(at_once + 1) // columns)
    if rows * columns * block.m * block.n > MOST_PERSISTENT:
        return {"m": 0}
    return {"m": rows * block.m, "n": columns * block.n, "k": block.k * resources.least_steps(config.pipeline)}


def _list_edges(config: Config, arch: Arch) -> Iterator[list[_Values]]:
    """Sizes that differ from the tile by one element, by the smallest step that vectors allow, or by much.

    In all dimensions at once, or in as many as the kernel supports: if it pads, one work-group has all edges.
    """
    block = config.block
    m, n, k = _unit_m(config, arch), _unit_n(config, arch), _unit_k(config, arch)
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


def _list_splits(config: Config, arch: Arch) -> Iterator[list[_Values]]:
    """Splits whose last part is shorter than the others, and one whose parts take different numbers of steps."""
    if not config.split_k:
        return
    block = config.block
    for k_batch, less in ((PARTS[0], 1), (PARTS[0], config.mma.k), (PARTS[1], config.mma.k)):
        yield [{"k_batch": k_batch, "k": block.k * 2 * k_batch - less, "m": block.m + 1}]
    if chooses_on_device(arch.ck):
        yield [{"k_batch": PARTS[1], "k": block.k * (2 * PARTS[1] + 1), "m": block.m + 1}]


def _unit_m(config: Config, arch: Arch) -> int:
    return resources.vector_a(config, arch) if config.layout[0] == "c" else 1


def _unit_n(config: Config, arch: Arch) -> int:
    vectors = [resources.vector_c(config), resources.vector_d(config) if config.num_d else 1]
    if config.layout[1] == "r":
        vectors.append(resources.vector_b(config, arch))
    return math.lcm(*vectors, config.mma.n if find_kind(config).reordered_b else 1)


def _unit_k(config: Config, arch: Arch) -> int:
    vectors = [1]
    if config.layout[0] == "r":
        vectors.append(resources.vector_a(config, arch))
    if config.layout[1] == "c":
        vectors.append(resources.vector_b(config, arch))
    return math.lcm(*vectors, config.mma.k if find_kind(config).reordered_b else 1)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
