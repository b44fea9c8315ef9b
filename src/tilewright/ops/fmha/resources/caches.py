"""The LDS of kernels over caches, as CK Tile computes it. File names are below ck_tile/ops/fmha/pipeline/."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.fmha.families import APPENDKV, COMBINE, get_tile
from tilewright.ops.fmha.resources import forward
from tilewright.ops.fmha.resources.forward import ForwardSizes, get_sizes, loaded_hdim, v_pack, v_pixels

# Pipelines with the LDS of a forward pipeline, since they use the same policy.
_LIKE_FORWARD = {"qr": "qr", "qr_pagedkv": "qr", "qr_async": "qr_async"}
_COMBINE_WAVES = 4  # block_fmha_pipeline_problem.hpp, BlockFmhaSplitKVCombinePipelineProblem
_FP32 = 4  # bytes
_VECTOR = 16 // _FP32  # sums in the widest load


def lds_bytes(config: Any, arch: Arch) -> int:
    """The LDS of one work-group; 0 for a config with an invalid tile."""
    tile = get_tile(config)
    if config.family == APPENDKV or not tile:
        return 0
    if config.family == COMBINE:
        return _compute_combine_lds(tile["n1"], 1 << config.log_max_splits, arch.wave_size)
    if config.pipeline == "qr_nwarp_sshuffle":
        return _compute_nwarp_sshuffle_lds(config, arch)
    like = SimpleNamespace(
        **{name: getattr(config, name) for name in ("family", "dtype", "block", "waves", "mma", "dropout")},
        pipeline=_LIKE_FORWARD.get(config.pipeline, ""),
    )
    return forward.lds_bytes(like, arch)


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


def _compute_nwarp_sshuffle_lds(config: Any, arch: Arch) -> int:
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
