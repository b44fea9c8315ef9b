"""The kernels of a problem, one after the other: which problem each of them computes.

| problem                     | stages                         | tensors between them |
|-----------------------------|--------------------------------|----------------------|
| forward with num_splits     | splitkv, combine               | o_acc, lse_acc       |
| forward with pages          | pagedkv                        |                      |
| backward                    | dot_do_o, dq_dk_dv, convert_dq | d, dq_acc            |
| any other                   | itself                         |                      |

A stage has the fields of the whole problem that its family has a use for, and the defaults of the others.
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

# Keys of one tile of CK Tile's own gradient kernels: for heads of at most so many elements, and for larger ones.
_USUAL_HEAD, _USUAL_KEYS, _KEYS_OF_LARGE_HEADS = 128, 128, 64
# What a tile of keys may have.
_KEYS_OF_TILES = (16, 32, 64, 128, 256)

_SIZES = (
    *("mode", "dtype", "batch", "heads", "kv_heads", "seqlen_q", "seqlen_k", "total_q", "total_k"),
    *("hdim_q", "hdim_v", "layout"),
)
_SCORES = ("v_layout", "mask", "window_left", "window_right", "sink", "bias", "scale", "logits_cap")
_CACHE = ("page_size", "pages")
_QUANTISED = ("static_quant", "scale_p", "scale_o")
_DROPOUT = ("p_drop", "drop_seed", "drop_offset")
# What each stage keeps of the whole problem.
_KEPT = {
    SPLITKV: (*_SIZES, *_SCORES, *_CACHE, *_QUANTISED, "num_splits"),
    COMBINE: (*_SIZES, *_QUANTISED, "num_splits", "lse"),
    PAGEDKV: (*_SIZES, *_SCORES, *_CACHE, *_QUANTISED, "lse", "min_seqlen_q"),
    DOT_DO_O: (*_SIZES, *_DROPOUT),
    DQ_DK_DV: (*_SIZES, *_SCORES, *_DROPOUT, "store_randval", "bias_gradient", "deterministic"),
    CONVERT_DQ: (*_SIZES, "deterministic"),
}


def next_stage(problem: Problem, chosen: tuple[Config, ...]) -> Problem | None:
    """The problem of the next kernel, when kernels with these configs were chosen so far; None after the last."""
    if problem.family == BACKWARD:
        return _of_backward(problem, chosen)
    if problem.family == FORWARD and problem.num_splits > 0:
        return stage(problem, (SPLITKV, COMBINE)[len(chosen)]) if len(chosen) < 2 else None
    if chosen:
        return None
    return stage(problem, PAGEDKV) if problem.family == FORWARD and problem.paged else problem


def _of_backward(problem: Problem, chosen: tuple[Config, ...]) -> Problem | None:
    order = (DOT_DO_O, DQ_DK_DV, CONVERT_DQ)
    if len(chosen) == len(order):
        return None
    family = order[len(chosen)]
    return stage(problem, family, dq_parts=1 if family == DOT_DO_O else dq_parts(problem))


def dq_parts(problem: Problem) -> int:
    """Partial sums of dq that the stages of a gradient keep apart.

    One, to which all tiles of keys add; in a deterministic problem one for each tile. Kernels with other tiles than
    the usual ones need a problem that says how many they have.
    """
    if not problem.deterministic or problem.dq_parts > 1:
        return problem.dq_parts
    usual = max(problem.hdim_q, problem.hdim_v) <= _USUAL_HEAD
    return -(-problem.seqlen_k // (_USUAL_KEYS if usual else _KEYS_OF_LARGE_HEADS))


def keys_of_a_part(problem: Problem) -> int:
    """How many keys one partial sum of dq is over: the only tile size, of those that there are, with so many parts."""
    if problem.dq_parts == 1:
        return problem.seqlen_k
    for keys in _KEYS_OF_TILES:
        if -(-problem.seqlen_k // keys) == problem.dq_parts:
            return keys
    tiles = ", ".join(map(str, _KEYS_OF_TILES))
    raise InvalidValueError(
        f"dq_parts = {problem.dq_parts} is not the number of tiles that {problem.seqlen_k} keys have, for any of "
        f"{tiles} keys: give the number of tiles of the kernel"
    )


def stage(problem: Problem, family: str, *, dq_parts: int = 1) -> Problem:
    """The problem of one stage: what its family has a use for."""
    kept = {field.name: getattr(problem, field.name) for field in fields(problem) if field.name in _KEPT[family]}
    return Problem(**{**kept, "family": family, "dq_parts": dq_parts})
