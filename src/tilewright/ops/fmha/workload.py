"""The model inputs of an attention problem, independent of the kernel.

They have the same names for all families. Work-groups are distributed along `queries` and step along `keys`, or the
other way round for kernels with `by_keys`. Families without scores step along the parts that they add, or take one
step.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arch.dtypes import find_dtype
from tilewright.base.errors import InvalidValueError
from tilewright.ops.fmha.families import (
    APPENDKV,
    BACKWARD,
    COMBINE,
    CONVERT_DQ,
    DOT_DO_O,
    DQ_DK_DV,
    DTYPES,
    SPLITKV,
)
from tilewright.ops.fmha.problem import Problem

_FP32 = 4  # bytes of a sum, of LSE and of d
_SCORED = "scored"


def compute_problem_inputs(problem: Problem) -> dict[str, float]:
    """Return the model inputs of a problem for one kernel; lengths are means if sequences differ."""
    if problem.family == BACKWARD:
        raise InvalidValueError("a backward problem takes several kernels: estimate its stages one by one")
    queries, keys = _compute_mean_lengths(problem)
    by_query, by_key = _compute_visible_ranges(problem, queries, keys)
    longest = (problem.seqlen_q, problem.seqlen_k)
    longest_by_query, longest_by_key = (
        (by_query, by_key) if longest == (queries, keys) else _compute_visible_ranges(problem, *longest)
    )
    rows, inner = _get_extents(problem, queries, keys)
    scored = _get_scoring_kind(problem) == _SCORED
    read, written = _count_bytes(problem, queries, by_query.touched if scored else keys)
    uneven = problem.mode == "group" and problem.total_q < problem.batch * problem.seqlen_q
    numbers = {
        "sequences": problem.batch,
        "heads": problem.heads,
        "group": problem.heads // problem.kv_heads,
        "queries": rows,
        "keys": inner,
        "columns": problem.hdim_q if problem.family == CONVERT_DQ else problem.hdim_v,
        "splits": max(problem.num_splits, 1) if problem.family == SPLITKV else 1,
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
    return {name: float(value) for name, value in numbers.items()}


def _get_scoring_kind(problem: Problem) -> str:
    """Return the family if it has no scores."""
    return problem.family if problem.family in (COMBINE, APPENDKV, DOT_DO_O, CONVERT_DQ) else _SCORED


def _compute_mean_lengths(problem: Problem) -> tuple[int, int]:
    """Return the queries and keys of a sequence; means if sequences differ."""
    if problem.mode == "batch":
        return problem.seqlen_q, problem.seqlen_k
    return tuple(max(1, round(total / problem.batch)) for total in (problem.total_q, problem.total_k))  # type: ignore[return-value]


def _get_extents(problem: Problem, queries: int, keys: int) -> tuple[int, int]:
    """Return the rows of one head of a sequence, and the extent that each work-group steps along."""
    if problem.family == COMBINE:
        return queries, problem.num_splits
    if problem.family == APPENDKV:
        return max(problem.seqlen_new, queries if problem.rotary != "none" else 1), 1
    if problem.family in (DOT_DO_O, CONVERT_DQ):
        return queries, problem.dq_parts if problem.family == CONVERT_DQ else 1
    return queries, keys


@dataclass(frozen=True, slots=True)
class _VisibleRange:
    """The visible range of a row (a query or a key): the number of visible columns of the other side."""

    mean: float  # over all rows
    most: int  # in any row
    touched: int  # visible in at least one row
    moving: float  # how many of the two ends of the range move from row to row: the mean over rows


def _compute_visible_ranges(problem: Problem, queries: int, keys: int) -> tuple[_VisibleRange, _VisibleRange]:
    """Return the visible ranges of queries and of keys: the same band, by rows and by columns."""
    if problem.mask == "none":
        return _VisibleRange(keys, keys, keys, 0.0), _VisibleRange(queries, queries, queries, 0.0)
    shift = keys - queries if problem.mask == "bottom_right" else 0
    # An end without limit is beyond all rows.
    far = queries + keys
    left, right = (far if each < 0 else min(each, far) for each in (problem.window_left, problem.window_right))
    by_query = _compute_band_range(queries, keys, shift - left, shift + right, problem.sink)
    return by_query, _compute_band_range(keys, queries, -shift - right, -shift + left, 0)


def _compute_band_range(rows: int, columns: int, low: int, high: int, sink: int) -> _VisibleRange:
    """Return the range where row i sees the existing columns from i + low to i + high, and the first `sink` before."""
    first = _sum_clamped(rows, low, columns) / rows
    last = _sum_clamped(rows, high + 1, columns) / rows
    widest = min(high - low + 1 + sink, columns)
    touched = _clamp(rows - 1 + high + 1, columns) - _clamp(low, columns)
    moving = _moving_share(rows, low, columns) + _moving_share(rows, high + 1, columns)
    return _VisibleRange(
        mean=min(last - first + min(sink, first), columns),
        most=max(1, min(widest, _clamp(rows + high, columns))),
        touched=max(1, min(touched + sink, columns)),
        moving=moving,
    )


def _clamp(value: int, most: int) -> int:
    return max(0, min(value, most))


def _sum_clamped(count: int, offset: int, most: int) -> int:
    """Return the sum over i below count of i + offset, each clamped to 0 and `most`."""
    start = _clamp(-offset, count)  # the first i whose term is not below 0
    stop = _clamp(most - offset, count)  # the first whose term is `most`
    ramp = (stop - start) * (start + stop - 1) // 2 + (stop - start) * offset
    return ramp + (count - stop) * most


def _moving_share(count: int, offset: int, most: int) -> float:
    """The share of the i below count for which i + offset is strictly between 0 and `most`."""
    return max(0, _clamp(most - offset, count) - _clamp(1 - offset, count)) / count


def _count_bytes(problem: Problem, queries: int, keys: int) -> tuple[float, float]:
    """Return the bytes read from and written to memory, each counted once."""
    types = DTYPES[problem.dtype]
    size, size_o = (find_dtype(name).bits / 8 for name in (types.qkv, types.o))
    rows = float(problem.batch * queries * problem.heads)
    q, o, per_row = rows * problem.hdim_q, rows * problem.hdim_v, rows * _FP32
    tokens = problem.batch * (problem.seqlen_new if problem.family == APPENDKV else keys)
    kv = float(tokens * problem.kv_heads * (problem.hdim_q + problem.hdim_v)) * size
    if problem.family == COMBINE:
        return problem.num_splits * (o * _FP32 + per_row), o * size_o + per_row * problem.lse
    if problem.family == APPENDKV:
        moved = kv + (q * size if problem.rotary != "none" else 0.0)
        return moved, moved
    if problem.family == DOT_DO_O:
        return 2 * o * size_o, per_row
    if problem.family == CONVERT_DQ:
        return problem.dq_parts * q * _FP32, q * size
    bias, noise = _count_score_bytes(problem, rows * keys)
    read = q * size + kv + bias
    if problem.family == DQ_DK_DV:
        read += o * size_o + 2 * per_row
        written = problem.dq_parts * q * _FP32 + kv + bias * problem.bias_gradient
    elif problem.family == SPLITKV:
        written = problem.num_splits * (o * _FP32 + per_row)
    else:
        written = o * size_o + per_row * problem.lse
    return read, written + noise


def _count_score_bytes(problem: Problem, scores: float) -> tuple[float, float]:
    """Return the bytes read and written for scores: bias and random numbers."""
    size_bias = find_dtype(DTYPES[problem.dtype].bias).bits / 8
    return scores * size_bias * (problem.bias == "elementwise"), scores * problem.store_randval
