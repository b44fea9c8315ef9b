"""Rules of the block GEMM that are different for preshufflev2, permute_n or persistent kernels."""

from __future__ import annotations

import dataclasses

from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.rules import hardware, pipeline, storage, tiles
from tilewright.ops.gemm.config import PIPELINES, Config
from tilewright.ops.gemm.kinds import preshuffle
from tilewright.ops.rule import Rejection

# Pipelines that load both operands through LDS.
_THROUGH_LDS = tuple(name for name in PIPELINES if name != preshuffle.PIPELINE)

transposed_read = hardware.check_transposed_read.limit("pipeline", _THROUGH_LDS)
a_tile_not_spread = tiles.check_a_tile_distribution.limit("pipeline", _THROUGH_LDS).also(
    preshuffle.check_a_distribution, reads=("pipeline", *tiles.check_a_tile_distribution.reads)
)
b_tile_not_spread = dataclasses.replace(
    tiles.check_b_tile_distribution.limit("pipeline", _THROUGH_LDS),
    why="as for A. A preshuffled B is loaded by each wave separately and is exempt.",
)
scheduler_not_offered = dataclasses.replace(
    pipeline.check_scheduler,
    why="mem has an intrawave and an interwave implementation, preshufflev2 has its own (default), all others are "
    "intrawave only. CK Tile has no code for other combinations.",
)
mixed_types = dataclasses.replace(pipeline.check_mixed_types, fix="use compv4, compv6, comp_async or preshufflev2.")


def _check_persistent(config: Config, arch: Arch) -> Rejection | None:
    if config.pipeline == "compv5" and config.persistent:
        return Rejection("compv5 has no persistent form", "persistent", False)
    return None


wave_groups = pipeline.check_wave_groups.also(
    _check_persistent, reads=(*pipeline.check_wave_groups.reads, "persistent")
)
# With permute_n, C is stored from registers.
shuffle_not_whole = storage.check_shuffle_repeats.limit("permute_n", (False,))
shuffle_not_spread = storage.check_shuffle_distribution.limit("permute_n", (False,))
