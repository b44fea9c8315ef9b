"""The cases that a compiled kernel distinguishes: forms of its loop over K, by step count, and tile counts."""

from __future__ import annotations

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.config_fields import BlockGemmConfig
from tilewright.ops.block_gemm.resources import block_threads

# Tiles along M and N. CK Tile distributes them to eight groups of work-groups, and to columns of four tiles. These
# numbers are divisible by neither, and large enough for unequal groups (GemmSpatiallyLocalTilePartitioner in
# gemm_tile_partitioner.hpp). With fewer than four columns, a division without its reciprocal is still correct. Of 324
# mutations of a GEMM, no larger number of tiles, up to 63, detected one that these do not.
MANY_TILES = (5, 4)
FEW_TILES = (2, 3)  # fewer tiles than groups
ROW, COLUMN = (1, 2), (2, 1)  # CK Tile has separate code for a single row or column of tiles

# For the pipeline mem, from gemm_pipeline_ag_bg_cr_mem.hpp.
_BYTES_UNDER_WAY = 32768
_FEWEST_STAGES, _MOST_STAGES = 2, 8
# Ten or more steps run a hot loop several times, which shows an error in its count that a single pass hides.
_ODD, _EVEN = (13, 9, 17, 7, 5, 11, 15), (10, 8, 12, 6, 14, 16)
_ANY = (13, 10, 9, 8, 12, 7, 6, 5, 11, 4)
# The other pipelines have tails for odd and even numbers or none, and forms without a loop (BlockHasHotloop,
# GetBlockLoopTailNum and TailHandler of each). Those with one form for all numbers branch on the device.
_FORMS = {
    "compv3": (_ANY, (2,), (1,)),
    "compv4": (_ODD, _EVEN, (3,), (2,), (1,)),
    "compv5": (_ANY, (2,), (1,)),
    "compv6": (_ODD, _EVEN, (3,), (2,)),
    "comp_async": (_ODD, _EVEN, (3,), (2,), (1,)),
    "preshufflev2": (_ODD, _EVEN, (2,), (1,)),
}


def prefetched_steps(config: BlockGemmConfig, arch: Arch) -> int:
    """Steps that the pipeline mem prefetches (PrefetchStages)."""
    block = config.block
    groups = max(4 * arch.wave_size // block_threads(config, arch), 1)
    a, b = find_dtype(config.dtype_a), find_dtype(config.dtype_b)
    step = (block.m * a.storage_bytes // a.packed + block.n * b.storage_bytes // b.packed) * block.k
    stages = -(-(_BYTES_UNDER_WAY // groups) // step)
    return min(max(stages, _FEWEST_STAGES), _MOST_STAGES)


def list_loop_forms(config: BlockGemmConfig, arch: Arch) -> tuple[tuple[int, ...], ...]:
    """For each compiled loop form its step counts, the most sensitive first. Forms with a loop come first."""
    if config.pipeline != "mem":
        return _FORMS[config.pipeline]
    stages = prefetched_steps(config, arch)
    tails = range(1, stages + 1)
    # The first form runs its loop several times, the others once or twice.
    first = (4 * stages, 3 * stages, 2 * stages)
    looped = tuple((stages + tail, 2 * stages + tail, 3 * stages + tail) for tail in reversed(tails[:-1]))
    return (first, *looped, *((tail,) for tail in reversed(tails)))
