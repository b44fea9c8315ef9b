"""Estimated time of an attention kernel: model inputs, features and the cost model.

The model inputs of a problem do not depend on the kernel, and have the same names for all kinds. Work-groups are
distributed along `queries` and step along `keys`, or the other way round for kernels with `by_keys`. Kinds without
scores step along the parts that they add, or take one step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.ops.cost_model.arithmetic import Number, ceil_div, log2, make_floats, maximum, minimum, where
from tilewright.ops.cost_model.cost import CostModel, Estimate, Facts
from tilewright.ops.cost_model.estimate_features import compute_estimate_features, compute_hardware_features
from tilewright.ops.cost_model.model_inputs import CModelInputs
from tilewright.ops.cost_model.tiled import TileCounts, estimate_tiles
from tilewright.ops.fmha.call import CALL
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kind import AttentionKind, find_computation
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.step_cost import compute_kernel_inputs
from tilewright.ops.fmha.traffic import TensorSizes

FEATURES_VERSION = 1
_SIZES = ("sequences", "heads", "group", "queries", "keys", "splits", "hdim_q", "hdim_v")
_BLOCK = ("block_m", "block_n", "block_k", "waves", "alone", "busiest")
_FLAGS = ("registers", "resident", "mma_m", "by_keys", "merged", "ahead", "in_turn", "masked", "padded")


def compute_problem_inputs(problem: Problem) -> dict[str, float]:
    """Return the model inputs of a problem for one kernel; lengths are means if sequences differ."""
    kind = find_computation(problem)
    if not isinstance(kind, AttentionKind):
        raise InvalidValueError(f"a {kind.name} problem takes several kernels: estimate its stages one by one")
    queries, keys = _compute_mean_lengths(problem)
    by_query, by_key = _compute_visible_ranges(problem, queries, keys)
    longest_by_query, longest_by_key = by_query, by_key
    if problem.mode == "group":
        longest_by_query, longest_by_key = _compute_visible_ranges(problem, problem.seqlen_q, problem.seqlen_k)
    rows, inner = kind.get_extents(problem, queries, keys)
    scored = kind.has_scores
    read, written = kind.count_bytes(TensorSizes(problem, queries, by_query.touched if scored else keys))
    uneven = problem.mode == "group" and problem.total_q < problem.batch * problem.seqlen_q
    numbers = {
        "sequences": problem.batch,
        "heads": problem.heads,
        "group": problem.heads // problem.kv_heads,
        "queries": rows,
        "keys": inner,
        "columns": getattr(problem, kind.columns),
        "splits": maximum(problem.num_splits, 1) if kind.splits_keys else 1,
        "uneven": uneven,
        "seen_keys": by_query.mean if scored else inner,
        "seen_queries": by_key.mean if scored else rows,
        "moving_keys": by_query.moving if scored else 0,
        "moving_queries": by_key.moving if scored else 0,
        "longest_keys": longest_by_query.most if scored else inner,
        "longest_queries": longest_by_key.most if scored else rows,
        "read_bytes": read,
        "written_bytes": written,
        "hdim_q": problem.hdim_q,
        "hdim_v": problem.hdim_v,
        "bits": find_dtype(DTYPES[problem.dtype].qkv).bits,
    }
    return make_floats(numbers)


def _compute_mean_lengths(problem: Problem) -> tuple[int, int]:
    """Return the queries and keys of a sequence; means if sequences differ."""
    if problem.mode == "batch":
        return problem.seqlen_q, problem.seqlen_k
    queries, keys = (maximum(1, round(total / problem.batch)) for total in (problem.total_q, problem.total_k))
    return queries, keys


class _VisibleRange(NamedTuple):
    """The visible range of a row (a query or a key): the number of visible columns of the other side."""

    mean: Number  # over all rows
    most: Number  # in any row
    touched: Number  # visible in at least one row
    moving: Number  # how many of the two ends of the range move from row to row: the mean over rows


def _compute_visible_ranges(problem: Problem, queries: Number, keys: Number) -> tuple[_VisibleRange, _VisibleRange]:
    """Return the visible ranges of queries and of keys: the same band, by rows and by columns."""
    all_keys, all_queries = _VisibleRange(keys, keys, keys, 0.0), _VisibleRange(queries, queries, queries, 0.0)
    masked = problem.mask != "none"
    if masked is False:
        return all_keys, all_queries
    shift = where(problem.mask == "bottom_right", keys - queries, 0)
    # An end without limit is beyond all rows.
    far = queries + keys
    windows = (problem.window_left, problem.window_right)
    left, right = (where(each < 0, far, minimum(each, far)) for each in windows)
    by_query = _compute_band_range(queries, keys, shift - left, shift + right, problem.sink)
    by_key = _compute_band_range(keys, queries, -shift - right, -shift + left, 0)
    # In C, the mask is known at run time.
    return (
        _VisibleRange(*(where(masked, *pair) for pair in zip(by_query, all_keys, strict=True))),
        _VisibleRange(*(where(masked, *pair) for pair in zip(by_key, all_queries, strict=True))),
    )


def _compute_band_range(rows: Number, columns: Number, low: Number, high: Number, sink: Number) -> _VisibleRange:
    """Return the range where row i sees the existing columns from i + low to i + high, and the first `sink` before."""
    first = _sum_clamped(rows, low, columns) / rows
    last = _sum_clamped(rows, high + 1, columns) / rows
    widest = minimum(high - low + 1 + sink, columns)
    end = _clamp(rows + high, columns)
    return _VisibleRange(
        mean=minimum(last - first + minimum(sink, first), columns),
        most=maximum(1, minimum(widest, end)),
        touched=maximum(1, minimum(end - _clamp(low, columns) + sink, columns)),
        moving=_moving_share(rows, low, columns) + _moving_share(rows, high + 1, columns),
    )


def _clamp(value: Number, most: Number) -> Number:
    return maximum(0, minimum(value, most))


def _sum_clamped(count: Number, offset: Number, most: Number) -> Number:
    """Return the sum over i below count of i + offset, each clamped to 0 and `most`."""
    start = _clamp(-offset, count)  # the first i whose term is not below 0
    stop = _clamp(most - offset, count)  # the first whose term is `most`
    ramp = (stop - start) * (start + stop - 1) // 2 + (stop - start) * offset
    return ramp + (count - stop) * most


def _moving_share(count: Number, offset: Number, most: Number) -> Number:
    """The share of the i below count for which i + offset is strictly between 0 and `most`."""
    return maximum(0, _clamp(most - offset, count) - _clamp(1 - offset, count)) / count


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


# In group mode the lengths are in device memory. C does not read them, so it takes all sequences to be as long as the
# longest. Python knows their sums.
C_INPUTS = CModelInputs(CALL, replaced={"mode": "batch"})


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
    in_c=C_INPUTS,
)
