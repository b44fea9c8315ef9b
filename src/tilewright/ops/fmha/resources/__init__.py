"""The resources of an attention config before it is compiled: LDS, and the matrix instructions of its GEMMs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tilewright.arch.spec import Arch, Shape
from tilewright.ops.fmha.families import CONVERT_DQ, DOT_DO_O, DQ_DK_DV, DTYPES, FAMILIES, FORWARD, get_tile
from tilewright.ops.fmha.resources import backward, caches, forward

# A wave's matrix operations for one key tile, all of which are unrolled. Kernels with more compile slowly.
SMALL_TILE = 64
_MODULES = {FORWARD: forward, DOT_DO_O: backward, DQ_DK_DV: backward, CONVERT_DQ: backward}


def lds_bytes(config: Any, arch: Arch) -> int:
    """The LDS of one work-group."""
    return int(_MODULES.get(config.family, caches).lds_bytes(config, arch))


def split_triples(numbers: tuple[int, ...]) -> tuple[Shape, ...]:
    """Return waves or mma of each GEMM; the last triple is completed with ones."""
    whole = (*numbers, *(1,) * (-len(numbers) % 3))
    return tuple(Shape(*whole[start : start + 3]) for start in range(0, len(whole), 3))


def list_gemm_types(config: Any) -> tuple[tuple[str, str], ...]:
    """Return the operand types of each GEMM of a family. All GEMMs of gradients have the type of q, k and v."""
    types = DTYPES[config.dtype]
    if config.family == DQ_DK_DV:
        return ((types.qkv, types.qkv),) * FAMILIES[config.family].gemms
    return ((types.qkv, types.qkv), (types.p, types.qkv))[: FAMILIES[config.family].gemms]


def matrix_instructions(config: Any, arch: Arch) -> tuple[str, ...]:
    """The matrix instruction of each GEMM; an empty string if the GPU has none."""
    pairs = zip(list_gemm_types(config), split_triples(config.mma), strict=True)
    return tuple(arch.mma_shapes(a, b, "fp32").get(mma, "") for (a, b), mma in pairs)


def list_gemm_tiles(family: str, tile: Mapping[str, int]) -> list[tuple[Shape, int]]:
    """Return the m × n × k tile of each GEMM in a step, and the index of its waves and mma."""
    if not FAMILIES[family].gemms:
        return []
    if family == DQ_DK_DV:
        # ck_tile/ops/fmha/pipeline/tile_fmha_shape.hpp: q·k, p·do, do·v, ds·q, ds·k.
        m0, n0, hdim_q, hdim_v = (tile[name] for name in ("m0", "n0", "hdim_q", "hdim_v"))
        return [
            (Shape(m0, n0, tile["k0"]), 0),
            (Shape(n0, hdim_v, tile["k1"]), 1),
            (Shape(m0, n0, tile["k2"]), 0),
            (Shape(n0, hdim_q, tile["k3"]), 1),
            (Shape(m0, hdim_q, tile["k4"]), 2),
        ]
    return [(Shape(tile["m0"], tile["n0"], tile["k0"]), 0), (Shape(tile["m0"], tile["n1"], tile["k1"]), 1)]


def is_small(config: Any) -> bool:
    """Whether a wave has few matrix operations for a key tile; all steps of a GEMM are unrolled."""
    tile, waves, mma = get_tile(config), split_triples(config.waves), split_triples(config.mma)
    if not tile or len(waves) != len(mma) or len(waves) != FAMILIES[config.family].gemms:
        return True
    lengths = [tile.get("hdim_q", 0), tile.get("n0", 0)]
    if config.family == DQ_DK_DV:
        lengths = [tile["hdim_q"], tile["m0"], tile["hdim_v"], tile["m0"], tile["n0"]]
    operations = 0
    for (block, which), length in zip(list_gemm_tiles(config.family, tile), lengths, strict=False):
        whole = block._replace(k=length)
        operations += math.prod(
            -(-extent // (count * size)) for extent, count, size in zip(whole, waves[which], mma[which], strict=True)
        )
    return operations <= SMALL_TILE
