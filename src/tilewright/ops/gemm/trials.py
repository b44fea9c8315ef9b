"""Problems that test the edge cases of a kernel, small enough for an emulated device."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.ck_probes import chooses_on_device
from tilewright.ops.block_gemm.loops import COLUMN, FEW_TILES, MANY_TILES, ROW, list_loop_forms
from tilewright.ops.block_gemm.trial_sizes import (
    LARGE_GAP,
    Sizes,
    Units,
    choose_strides,
    list_edges,
    list_tiled_sizes,
)
from tilewright.ops.gemm.config import Config
from tilewright.ops.gemm.kind import find_kind
from tilewright.ops.gemm.padding import can_compute
from tilewright.ops.gemm.problem import Problem

PARTS = (2, 3, 5)  # values of k_batch
# A persistent kernel's work-groups process several tiles only if there are more than fit on the GPU at once. Larger
# results than this take too long on the host.
MOST_PERSISTENT = 1 << 24


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


def _resize_problem(base: Problem, sizes: Sizes) -> Problem:
    packed: Sizes = {"stride_a": 0, "stride_b": 0, "stride_c": 0}
    return dataclasses.replace(base, **{**packed, **sizes})


def _list_sizes(config: Config, arch: Arch) -> Iterator[list[Sizes]]:
    """Lists of alternatives: the first of each that the kernel supports is a trial."""
    yield from _list_loop_trials(config, arch)
    yield from list_edges(config.block, _find_units(config, arch))
    yield [{}]  # whole tiles
    yield from _list_splits(config, arch)
    if find_kind(config).batched:
        yield [{"batch": 1}]
    if config.num_d:
        tiles = list(_list_tiled_sizes(config, arch, FEW_TILES, 2, 1, gap=0))
        yield [{**sizes, "num_row_d": 1} for sizes in tiles]
    if config.persistent:
        yield [_sizes_beyond_gpu(config, arch)]


def _list_loop_trials(config: Config, arch: Arch) -> Iterator[list[Sizes]]:
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
) -> Iterator[Sizes]:
    """Sizes with this many tiles and steps in each part. Lines have gaps between them."""
    for sizes in list_tiled_sizes(config.block, _find_units(config, arch), tiles, steps * k_batch):
        yield {**sizes, "k_batch": k_batch, **(_choose_strides(config, sizes, gap) if gap else {})}


def _choose_strides(config: Config, sizes: Sizes, gap: int) -> Sizes:
    strides = choose_strides(config, sizes, gap)
    if find_kind(config).reordered_b:
        del strides["stride_b"]  # it has no lines, so it cannot have gaps
    return strides


def _sizes_beyond_gpu(config: Config, arch: Arch) -> Sizes:
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


def _list_splits(config: Config, arch: Arch) -> Iterator[list[Sizes]]:
    """Splits whose last part is shorter than the others, and one whose parts take different numbers of steps."""
    if not config.split_k:
        return
    block = config.block
    for k_batch, less in ((PARTS[0], 1), (PARTS[0], config.mma.k), (PARTS[1], config.mma.k)):
        yield [{"k_batch": k_batch, "k": block.k * 2 * k_batch - less, "m": block.m + 1}]
    if chooses_on_device(arch.ck):
        yield [{"k_batch": PARTS[1], "k": block.k * (2 * PARTS[1] + 1), "m": block.m + 1}]


def _find_units(config: Config, arch: Arch) -> Units:
    return Units(_unit_m(config, arch), _unit_n(config, arch), _unit_k(config, arch))


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
