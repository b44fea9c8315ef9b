"""The stages of a problem: the problem of each of its kernels, in order.

| problem                     | stages                         | tensors between them |
|-----------------------------|--------------------------------|----------------------|
| forward with num_splits     | splitkv, combine               | o_acc, lse_acc       |
| forward with pages          | pagedkv                        |                      |
| backward                    | dot_do_o, dq_dk_dv, convert_dq | d, dq_acc            |
| any other                   | itself                         |                      |

A stage has those fields of the whole problem that its family uses, and defaults for the others.
"""

from __future__ import annotations

from dataclasses import fields

from tilewright.base.errors import InvalidValueError
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.families import (
    BACKWARD,
    COMBINE,
    CONVERT_DQ,
    DOT_DO_O,
    DQ_DK_DV,
    FORWARD,
    PAGEDKV,
    SPLITKV,
)
from tilewright.ops.fmha.problem import Problem

# Keys of one tile in CK Tile's own gradient kernels: for heads of at most 128 elements, and for larger ones.
_USUAL_HEAD, _USUAL_KEYS, _KEYS_OF_LARGE_HEADS = 128, 128, 64
# Possible numbers of keys in a tile.
_KEYS_OF_TILES = (16, 32, 64, 128, 256)

_SIZES = (
    *("mode", "dtype", "batch", "heads", "kv_heads", "seqlen_q", "seqlen_k", "total_q", "total_k"),
    *("hdim_q", "hdim_v", "layout"),
)
_SCORES = ("v_layout", "mask", "window_left", "window_right", "sink", "bias", "scale", "logits_cap")
_CACHE = ("page_size", "pages")
_QUANTISED = ("static_quant", "scale_p", "scale_o")
_DROPOUT = ("p_drop", "drop_seed", "drop_offset")
# The fields of the whole problem that each stage keeps.
_KEPT = {
    SPLITKV: (*_SIZES, *_SCORES, *_CACHE, *_QUANTISED, "num_splits"),
    COMBINE: (*_SIZES, *_QUANTISED, "num_splits", "lse"),
    PAGEDKV: (*_SIZES, *_SCORES, *_CACHE, *_QUANTISED, "lse", "min_seqlen_q"),
    DOT_DO_O: (*_SIZES, *_DROPOUT),
    DQ_DK_DV: (*_SIZES, *_SCORES, *_DROPOUT, "store_randval", "bias_gradient", "deterministic"),
    CONVERT_DQ: (*_SIZES, "deterministic"),
}


def plan_next_stage(problem: Problem, chosen: tuple[Config, ...]) -> Problem | None:
    """Return the problem of the next kernel after those chosen so far; None after the last."""
    if problem.family == BACKWARD:
        return _plan_backward_stage(problem, chosen)
    if problem.family == FORWARD and problem.num_splits > 0:
        return make_stage(problem, (SPLITKV, COMBINE)[len(chosen)]) if len(chosen) < 2 else None
    if chosen:
        return None
    return make_stage(problem, PAGEDKV) if problem.family == FORWARD and problem.paged else problem


def _plan_backward_stage(problem: Problem, chosen: tuple[Config, ...]) -> Problem | None:
    order = (DOT_DO_O, DQ_DK_DV, CONVERT_DQ)
    if len(chosen) == len(order):
        return None
    family = order[len(chosen)]
    return make_stage(problem, family, dq_parts=1 if family == DOT_DO_O else count_dq_parts(problem))


def count_dq_parts(problem: Problem) -> int:
    """Return the number of separate partial sums of dq.

    It is one, to which all key tiles add; in a deterministic problem one per tile. For kernels with unusual tiles, set
    the problem's dq_parts.
    """
    if not problem.deterministic or problem.dq_parts > 1:
        return problem.dq_parts
    usual = max(problem.hdim_q, problem.hdim_v) <= _USUAL_HEAD
    return -(-problem.seqlen_k // (_USUAL_KEYS if usual else _KEYS_OF_LARGE_HEADS))


def get_keys_per_part(problem: Problem) -> int:
    """Return the number of keys in one partial sum of dq: the tile size that gives the problem's number of parts."""
    if problem.dq_parts == 1:
        return problem.seqlen_k
    for keys in _KEYS_OF_TILES:
        if -(-problem.seqlen_k // keys) == problem.dq_parts:
            return keys
    tiles = ", ".join(map(str, _KEYS_OF_TILES))
    raise InvalidValueError(
        f"dq_parts = {problem.dq_parts} does not match {problem.seqlen_k} keys in tiles of any of {tiles} keys: "
        "pass the number of the kernel's tiles"
    )


def make_stage(problem: Problem, family: str, *, dq_parts: int = 1) -> Problem:
    """Return the problem of one stage, with the fields that its family uses."""
    kept = {field.name: getattr(problem, field.name) for field in fields(problem) if field.name in _KEPT[family]}
    return Problem(**{**kept, "family": family, "dq_parts": dq_parts})
