"""Tiles of the kernels that compute gradients: P475 to P479. File names are below ck_tile/ops/fmha/."""

from __future__ import annotations

from typing import Any

from tilewright.arch.dtypes import dtype
from tilewright.arch.spec import Arch
from tilewright.ops.fmha.families import CONVERT_DQ, DOT_DO_O, tile_of
from tilewright.ops.fmha.resources import backward_spread as spread
from tilewright.ops.fmha.resources.backward import lds_bytes
from tilewright.ops.fmha.rules import backward
from tilewright.ops.fmha.rules.fields import DQ_DK_DV_EXAMPLE
from tilewright.ops.fmha.types import DTYPES
from tilewright.ops.rule import Fault, rule

_READS = ("family", "dtype", "pipeline", "block", "waves", "mma", "bias")
_VECTOR = 16  # bytes that a thread loads at once
_DOT = {"family": DOT_DO_O, "pipeline": DOT_DO_O, "block": (64, 64), "waves": (), "mma": (), "pad_k": False}
_CONVERT = {**_DOT, "family": CONVERT_DQ, "pipeline": CONVERT_DQ, "block": (64, 64, 64, 64)}


def _usable(config: Any) -> dict[str, int]:
    """The tile where no number of it, and none of the waves and mma, is 0."""
    tile = backward.tile_of_gradients(config)
    return tile if tile and min(*config.block, *config.waves, *config.mma) > 0 else {}


@rule(
    "P475",
    "tile-not-shared",
    reads=_READS,
    enforced_by="compiler",
    good=DQ_DK_DV_EXAMPLE,
    bad={**DQ_DK_DV_EXAMPLE, "block": (48, 128, 64, 48, 64, 48, 32, 64, 64)},
)
def tile_not_shared(config: Any, arch: Arch) -> Fault | None:
    """The threads share each tile evenly: queries, keys, values, the output's gradient and the bias.

    Why: CK Tile gives each thread the same vectors of a tile, as it is and transposed, and divides without a rest
    (Make...DramTileDistribution and MakeXTLdsBlockDescriptor in pipeline/block_fmha_bwd_pipeline_default_policy.hpp).

    Fix: powers of two for m0, n0 and the head sizes; fewer waves for small tiles.
    """
    if not _usable(config):
        return None
    trload = config.pipeline.startswith("trload")
    fault = (spread.trload_fault if trload else spread.gradients_fault)(config, arch)
    return Fault(fault, "block") if fault else None


@rule(
    "P476",
    "scores-beyond-lds",
    reads=_READS,
    enforced_by="compiler",
    good=backward.DECODE,
    bad={**backward.DECODE, "block": (32, 256, 64, 32, 64, 32, 32, 64, 64)},
    arch="gfx950",
)
def scores_beyond_lds(config: Any, arch: Arch) -> Fault | None:
    """With trload_qr_qtr_dor the keys, values and scores of a tile fit into the LDS that CK Tile allocates.

    Why: the pipeline puts scores behind keys and values, but GetSmemSize counts them behind queries and gradients
    only. With many more keys than queries in a tile they are beyond the end; most such tiles do not compile.

    Fix: an n0 of at most twice m0.
    """
    tile = _usable(config)
    if not tile or config.pipeline != backward.WHOLE_HEAD:
        return None
    types = DTYPES[config.dtype]
    rows = tile["n0"] * (tile["hdim_q"] + tile["hdim_v"]) * dtype(types.qkv).storage_bytes
    used = rows + tile["m0"] * tile["n0"] * dtype(types.p).storage_bytes
    allocated = lds_bytes(config, arch)
    if used <= allocated:
        return None
    return Fault(f"scores end at {used:,} bytes of LDS, {allocated:,} are allocated", "block")


@rule(
    "P477",
    "rows-not-shared",
    reads=("family", "dtype", "block"),
    enforced_by="compiler",
    good=_DOT,
    bad={**_DOT, "block": (96, 64)},
)
def rows_not_shared(config: Any, arch: Arch) -> Fault | None:
    """dot_do_o has whole waves, and a row of the output is a whole number of vectors of 16 bytes.

    Why: each thread loads one row in such vectors (MakePreXDramTileDistribution).

    Fix: threads as a multiple of the wave, hdim_v as a multiple of 8.
    """
    tile = tile_of(config)
    if config.family != DOT_DO_O or not tile:
        return None
    if tile["threads"] % arch.wave_size or not tile["threads"]:
        return Fault(f"{tile['threads']} threads are no multiple of a wave's {arch.wave_size}", "block")
    vector = _VECTOR // dtype(DTYPES[config.dtype].o).storage_bytes
    if tile["hdim_v"] % vector or not tile["hdim_v"]:
        return Fault(f"rows of {tile['hdim_v']} elements are no multiple of {vector}", "block")
    return None


@rule(
    "P478",
    "sums-not-shared",
    reads=("family", "block"),
    enforced_by="compiler",
    good=_CONVERT,
    bad={**_CONVERT, "block": (256, 8, 64, 64)},
)
def sums_not_shared(config: Any, arch: Arch) -> Fault | None:
    """convert_dq has whole waves, which share a tile of m0 rows evenly.

    Why: lanes load vectors of 4 sums (MakePostQGradDramTileDistribution).

    Fix: a larger m0, or fewer threads.
    """
    tile = tile_of(config)
    if config.family != CONVERT_DQ or not tile or min(config.block) < 1:
        return None
    if tile["threads"] % arch.wave_size:
        return Fault(f"{tile['threads']} threads are no multiple of a wave's {arch.wave_size}", "block")
    fault = spread.convert_fault(config, arch)
    return Fault(fault, "block") if fault else None
