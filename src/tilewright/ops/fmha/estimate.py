"""Estimated time of an attention kernel: model inputs, features and the cost model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.cost_model.arithmetic import Number, ceil_div, log2, maximum, minimum, where
from tilewright.ops.cost_model.cost import CostModel, Estimate, Facts
from tilewright.ops.cost_model.estimate_features import compute_estimate_features, compute_hardware_features
from tilewright.ops.cost_model.model_inputs import CModelInputs
from tilewright.ops.cost_model.tiled import TileCounts, estimate_tiles
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.families import APPENDKV, COMBINE, CONVERT_DQ, DOT_DO_O, DQ_DK_DV, DTYPES, SPLITKV
from tilewright.ops.fmha.step_cost import compute_kernel_inputs
from tilewright.ops.fmha.workload import compute_problem_inputs

FEATURES_VERSION = 1
_SIZES = ("sequences", "heads", "group", "queries", "keys", "splits", "hdim_q", "hdim_v")
_BLOCK = ("block_m", "block_n", "block_k", "waves", "alone", "busiest")
_FLAGS = ("registers", "resident", "mma_m", "by_keys", "merged", "ahead", "in_turn", "masked", "padded")


def compute_features(p: Facts, k: Facts, estimate: Estimate, arch: Arch) -> Mapping[str, Number]:
    """Sizes, the visible share of the keys, the tile, the GPU, and the estimate with its breakdown."""
    return {
        **{f"log_{name}": log2(getattr(p, name)) for name in _SIZES},
        "bits": p.bits,
        "seen": p.seen_keys / p.keys,
        "uneven": p.uneven,
        **{f"log_{name}": log2(getattr(k, name)) for name in _BLOCK},
        "log_lds_bytes": log2(k.lds_bytes + 1),
        **{name: getattr(k, name) for name in _FLAGS},
        **compute_hardware_features(arch),
        **compute_estimate_features(estimate),
    }


def list_kind_inputs(config: Config) -> Mapping[str, float]:
    """Family and types, which the arguments of a call do not contain."""
    families = (COMBINE, APPENDKV, DOT_DO_O, CONVERT_DQ, SPLITKV, DQ_DK_DV)
    types = DTYPES[config.dtype]
    bits = {"bits": types.qkv, "bits_o": types.o, "bits_bias": types.bias}
    flags = {name: float(config.family == name) for name in families}
    return {**flags, **{name: float(find_dtype(each).bits) for name, each in bits.items()}}


# Fields that hold names (mask, bias, rotary) and those of group mode only (totals) are left out.
_SAME = (
    *("batch", "heads", "kv_heads", "seqlen_q", "seqlen_k", "hdim_q", "hdim_v", "window_left", "window_right", "sink"),
    *("static_quant", "bias_gradient", "deterministic", "num_splits", "page_size", "seqlen_new", "dq_parts"),
)
_MEMBERS = {**{name: name for name in _SAME}, "lse": "wants_lse", "store_randval": "wants_randval"}
C_NUMBERS = CModelInputs(Path(__file__).with_name("numbers.h"), list_kind_inputs, _MEMBERS)


def estimate(p: Facts, k: Facts, arch: Arch) -> Estimate:
    """Estimate the time of a problem with a kernel: work-groups along one side of the scores, steps along the other.

    As `tiled.estimate_problem`, but a mask hides steps, work-groups have different numbers of them, and the longest one
    is a bound by itself: if one work-group goes over all keys, more compute units do not make the kernel faster.
    """
    by_keys = k.by_keys > 0
    shared = where(k.merged > 0, p.group, 1.0)  # query heads whose rows share a tile
    rows = where(by_keys, p.keys, p.queries * shared)
    # Sequences of different lengths: half of the last tile of each is empty, on average.
    tiles_m = where(p.uneven > 0, maximum(1.0, rows / k.block_m + 0.5), ceil_div(rows, k.block_m))
    tiles_n = ceil_div(p.columns, k.block_n)
    tiles = tiles_m * tiles_n * p.sequences * p.heads / shared * p.splits
    steps, longest = _count_steps(p, k, by_keys, shared)
    work = TileCounts(
        tiles=tiles,
        steps=steps,
        longest=longest,
        stored=p.written_bytes / tiles * arch.memory.store_cost,
        memory_bytes=p.read_bytes + p.written_bytes,
        use_m=rows / (tiles_m * k.block_m),
        use_n=p.columns / (tiles_n * k.block_n),
        use_k=where(by_keys, p.queries, p.keys) / (p.splits * maximum(1.0, longest) * k.block_k),
    )
    return estimate_tiles(work, k, arch)


def _count_steps(p: Facts, k: Facts, by_keys: Number, shared: Number) -> tuple[Number, Number]:
    """Return the steps of a work-group: the mean and the largest number.

    The visible range of a work-group is the union over its rows: where an end of the range moves from row to row, the
    union is longer by half the rows. Where work-groups have fewer rows than a tile has keys, the range ends inside a
    tile, and a part of that tile is wasted.
    """
    extent = where(by_keys, p.queries, p.keys)
    seen = where(by_keys, p.seen_queries, p.seen_keys)
    moving = where(by_keys, p.moving_queries, p.moving_keys)
    rows = minimum(k.block_m / shared, where(by_keys, p.keys, p.queries))
    most = where(by_keys, p.longest_queries, p.longest_keys)
    whole = ceil_div(extent, k.block_k)
    vain = moving / 2 * maximum(0.0, 1.0 - rows / k.block_k)
    visible = minimum(whole, (seen + moving * (rows - 1) / 2) * whole / extent + vain)
    visible = maximum(visible, minimum(1.0, seen * rows))  # any visible key takes a step
    # Parts consist of whole tiles: with fewer tiles than parts, some parts are empty.
    return visible / p.splits, ceil_div(ceil_div(most, k.block_k), p.splits)


COST = CostModel(
    problem_numbers=compute_problem_inputs,
    kernel_numbers=compute_kernel_inputs,
    estimate=estimate,
    features=compute_features,
    features_version=FEATURES_VERSION,
    in_c=C_NUMBERS,
)
