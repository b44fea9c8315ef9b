"""The resources of an attention config before it is compiled: LDS, and the matrix instructions of its GEMMs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilewright.arch.spec import Arch, Shape
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.families import (
    APPENDKV,
    COMBINE,
    CONVERT_DQ,
    DOT_DO_O,
    DQ_DK_DV,
    DTYPES,
    FAMILIES,
    FORWARD,
    get_tile,
)
from tilewright.ops.fmha.resources import backward, forward
from tilewright.ops.fmha.resources.forward import ForwardSizes, get_sizes, loaded_hdim, v_pack, v_pixels

# A wave's matrix operations for one key tile, all of which are unrolled. Kernels with more compile slowly.
SMALL_TILE = 64
# Pipelines with the LDS of a forward pipeline, since they use the same policy.
_LIKE_FORWARD = {"qr": "qr", "qr_pagedkv": "qr", "qr_async": "qr_async"}
_COMBINE_WAVES = 4  # block_fmha_pipeline_problem.hpp, BlockFmhaSplitKVCombinePipelineProblem
_FP32 = 4  # bytes
_VECTOR = 16 // _FP32  # sums in the widest load


def lds_bytes(config: Config, arch: Arch) -> int:
    """The LDS of one work-group."""
    if config.family in (DOT_DO_O, DQ_DK_DV, CONVERT_DQ):
        return backward.lds_bytes(config, arch)
    if config.family == FORWARD:
        return forward.lds_bytes(config, config.pipeline, arch)
    return _compute_cache_lds(config, arch)


def split_triples(numbers: tuple[int, ...]) -> tuple[Shape, ...]:
    """Return waves or mma of each GEMM; the last triple is completed with ones."""
    whole = (*numbers, *(1,) * (-len(numbers) % 3))
    return tuple(Shape(*whole[start : start + 3]) for start in range(0, len(whole), 3))


def list_gemm_types(config: Config) -> tuple[tuple[str, str], ...]:
    """Return the operand types of each GEMM of a family. All GEMMs of gradients have the type of q, k and v."""
    types = DTYPES[config.dtype]
    if config.family == DQ_DK_DV:
        return ((types.qkv, types.qkv),) * FAMILIES[config.family].gemms
    return ((types.qkv, types.qkv), (types.p, types.qkv))[: FAMILIES[config.family].gemms]


def matrix_instructions(config: Config, arch: Arch) -> tuple[str, ...]:
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


def is_small(config: Config) -> bool:
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


def _compute_cache_lds(config: Config, arch: Arch) -> int:
    """The LDS of a kernel over caches, as CK Tile computes it; 0 for a config with an invalid tile.

    File names in the functions below are relative to ck_tile/ops/fmha/pipeline/.
    """
    tile = get_tile(config)
    if config.family == APPENDKV or not tile:
        return 0
    if config.family == COMBINE:
        return _compute_combine_lds(tile["n1"], 1 << config.log_max_splits, arch.wave_size)
    if config.pipeline == "qr_nwarp_sshuffle":
        return _compute_nwarp_sshuffle_lds(config, arch)
    return forward.lds_bytes(config, _LIKE_FORWARD.get(config.pipeline, ""), arch)


def _count_packed_elements(rows: int, columns: int, pack: int) -> int:
    """Return the elements of a tile in LDS: columns of packs, one pack apart, without a gap after the last one."""
    return (columns // pack - 1) * (rows + 1) * pack + rows * pack


def _compute_combine_lds(n1: int, splits: int, wave_size: int) -> int:
    """block_fmha_fwd_splitkv_combine_pipeline_default_policy.hpp, GetSmemSize: the LSE of all parts, and sums."""
    lanes = n1 // _VECTOR
    rows = wave_size // lanes if lanes else 0
    if rows == 0:
        return 0
    lse = _count_packed_elements(splits, rows, _get_vector_size(splits * rows, wave_size))
    sums = _count_packed_elements(_COMBINE_WAVES * rows, n1, _get_vector_size(_COMBINE_WAVES * rows * n1, wave_size))
    return (lse + sums) * _FP32


def _get_vector_size(elements: int, wave_size: int) -> int:
    """GetVectorSizeForTile, with only as many waves as have an element for each lane."""
    waves = _COMBINE_WAVES
    while waves > 1 and elements < waves * wave_size:
        waves //= 2
    return max(1, min(_VECTOR, elements // (waves * wave_size)))


def _compute_nwarp_sshuffle_lds(config: Config, arch: Arch) -> int:
    """block_fmha_fwd_splitkv_pipeline_nwarp_sshuffle_qr_ks_vs_default_policy.hpp, GetSmemSize.

    Queries and keys share one buffer, values and scores another.
    """
    facts = get_sizes(config, arch)
    if len(facts.waves) != 6 or len(facts.mma) != 6 or facts.threads == 0 or v_pixels(facts) == 0:
        return 0
    tile, width = facts.tile, loaded_hdim(facts.tile["hdim_q"])
    pack = min(tile["m0"] * width // facts.threads, facts.pack) or 1
    queries = _count_packed_elements(tile["m0"], width, pack) * facts.size
    keys = _count_packed_elements(tile["n0"], tile["k0"], facts.pack) * facts.size
    scores = _count_packed_elements(tile["m0"], tile["n0"], _VECTOR) * _FP32
    return max(queries, keys) + max(_count_value_elements(facts) * facts.size, scores)


def _count_value_elements(facts: ForwardSizes) -> int:
    """MakeVLdsBlockDescriptor with one buffer: rows across all banks, one pack apart."""
    pixels, pack = facts.banks * 4 // facts.size, v_pack(facts)
    lines = facts.tile["k1"] // pack * (facts.tile["n1"] // (pixels // pack))
    return lines * (pixels + pack) - pack
