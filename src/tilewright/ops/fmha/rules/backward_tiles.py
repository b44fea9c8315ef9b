"""The tiles of gradient kernels: P475 to P478. File names are below ck_tile/ops/fmha/."""

from __future__ import annotations

from typing import Any

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.fmha.families import CONVERT_DQ, DOT_DO_O, DTYPES, get_tile
from tilewright.ops.fmha.resources import backward_distribution as spread
from tilewright.ops.fmha.resources.backward import lds_bytes
from tilewright.ops.fmha.rules import backward
from tilewright.ops.fmha.rules.all_families import DQ_DK_DV_EXAMPLE
from tilewright.ops.rule import Rejection, rule

_READS = ("family", "dtype", "pipeline", "block", "waves", "mma", "bias")
_VECTOR = 16  # bytes that a thread loads at once
_DOT = {"family": DOT_DO_O, "pipeline": DOT_DO_O, "block": (64, 64), "waves": (), "mma": (), "pad_k": False}
_CONVERT = {**_DOT, "family": CONVERT_DQ, "pipeline": CONVERT_DQ, "block": (64, 64, 64, 64)}


def _get_usable_tile(config: Any) -> dict[str, int]:
    """Return the tile; empty if it, the waves or the mma contain a 0."""
    tile = backward.get_gradient_tile(config)
    return tile if tile and min(*config.block, *config.waves, *config.mma) > 0 else {}


@rule(
    "P475",
    "tile-not-shared",
    reads=_READS,
    enforced_by="compiler",
    good=DQ_DK_DV_EXAMPLE,
    bad={**DQ_DK_DV_EXAMPLE, "block": (48, 128, 64, 48, 64, 48, 32, 64, 64)},
)
def check_tile_sharing(config: Any, arch: Arch) -> Rejection | None:
    """The threads must share each tile evenly: queries, keys, values, the output gradient and the bias.

    Why: CK Tile gives each thread the same number of vectors of a tile, plain and transposed, and requires divisions
    without a remainder (Make...DramTileDistribution and MakeXTLdsBlockDescriptor in
    pipeline/block_fmha_bwd_pipeline_default_policy.hpp).

    Fix: use powers of two for m0, n0 and the head sizes, and fewer waves for small tiles.
    """
    if not _get_usable_tile(config):
        return None
    trload = config.pipeline.startswith("trload")
    fault = (spread.check_trload_tiles if trload else spread.check_gradient_tiles)(config, arch)
    return Rejection(fault, "block") if fault else None


@rule(
    "P476",
    "scores-beyond-lds",
    reads=_READS,
    enforced_by="compiler",
    good=backward.DECODE,
    bad={**backward.DECODE, "block": (32, 256, 64, 32, 64, 32, 32, 64, 64)},
    arch="gfx950",
)
def check_score_lds(config: Any, arch: Arch) -> Rejection | None:
    """With trload_qr_qtr_dor the keys, values and scores of a tile must fit into the LDS that CK Tile allocates.

    Why: the pipeline stores scores after keys and values, but GetSmemSize only counts them after queries and gradients.
    With many more keys than queries in a tile they are beyond the end; most such tiles do not compile.

    Fix: use an n0 of at most twice m0.
    """
    tile = _get_usable_tile(config)
    if not tile or config.pipeline != backward.WHOLE_HEAD:
        return None
    types = DTYPES[config.dtype]
    rows = tile["n0"] * (tile["hdim_q"] + tile["hdim_v"]) * find_dtype(types.qkv).storage_bytes
    used = rows + tile["m0"] * tile["n0"] * find_dtype(types.p).storage_bytes
    allocated = lds_bytes(config, arch)
    if used <= allocated:
        return None
    return Rejection(f"scores end at {used:,} bytes of LDS, but {allocated:,} are allocated", "block")


@rule(
    "P477",
    "rows-not-shared",
    reads=("family", "dtype", "block"),
    enforced_by="compiler",
    good=_DOT,
    bad={**_DOT, "block": (96, 64)},
)
def check_dot_rows(config: Any, arch: Arch) -> Rejection | None:
    """dot_do_o needs whole waves, and output rows that are a multiple of 16 bytes.

    Why: each thread loads one row in vectors of 16 bytes (MakePreXDramTileDistribution).

    Fix: use a multiple of the wave size for threads, and a multiple of 8 for hdim_v.
    """
    tile = get_tile(config)
    if config.family != DOT_DO_O or not tile:
        return None
    if tile["threads"] % arch.wave_size or not tile["threads"]:
        return Rejection(f"{tile['threads']} threads are not a multiple of the wave's {arch.wave_size}", "block")
    vector = _VECTOR // find_dtype(DTYPES[config.dtype].o).storage_bytes
    if tile["hdim_v"] % vector or not tile["hdim_v"]:
        return Rejection(f"hdim_v = {tile['hdim_v']} is not a multiple of {vector}", "block")
    return None


@rule(
    "P478",
    "sums-not-shared",
    reads=("family", "block"),
    enforced_by="compiler",
    good=_CONVERT,
    bad={**_CONVERT, "block": (256, 8, 64, 64)},
)
def check_convert_rows(config: Any, arch: Arch) -> Rejection | None:
    """convert_dq needs whole waves, which must share a tile of m0 rows evenly.

    Why: lanes load vectors of 4 sums (MakePostQGradDramTileDistribution).

    Fix: use a larger m0, or fewer threads.
    """
    tile = get_tile(config)
    if config.family != CONVERT_DQ or not tile or min(config.block) < 1:
        return None
    if tile["threads"] % arch.wave_size:
        return Rejection(f"{tile['threads']} threads are not a multiple of the wave's {arch.wave_size}", "block")
    fault = spread.check_convert_tile(config, arch)
    return Rejection(fault, "block") if fault else None
