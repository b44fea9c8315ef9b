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

from tilewright.base.errors import InvalidValueError
from tilewright.ops.cost_model.arithmetic import maximum
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.kind import AttentionKind
from tilewright.ops.fmha.kinds.backward import BACKWARD
from tilewright.ops.fmha.kinds.combine import COMBINE
from tilewright.ops.fmha.kinds.convert_dq import CONVERT_DQ
from tilewright.ops.fmha.kinds.dot_do_o import DOT_DO_O
from tilewright.ops.fmha.kinds.dq_dk_dv import DQ_DK_DV
from tilewright.ops.fmha.kinds.forward import FORWARD
from tilewright.ops.fmha.kinds.pagedkv import PAGEDKV
from tilewright.ops.fmha.kinds.splitkv import SPLITKV
from tilewright.ops.fmha.problem import Problem

# Keys of one tile in CK Tile's own gradient kernels: for heads of at most 128 elements, and for larger ones.
_USUAL_HEAD, _USUAL_KEYS, _KEYS_OF_LARGE_HEADS = 128, 128, 64
# Possible numbers of keys in a tile.
_KEYS_OF_TILES = (16, 32, 64, 128, 256)


def plan_next_stage(problem: Problem, chosen: tuple[Config, ...]) -> Problem | None:
    """Return the problem of the next kernel after those chosen so far; None after the last."""
    stages = list_stages(problem)
    if not stages:
        return None if chosen else problem
    if len(chosen) == len(stages):
        return None
    kind = stages[len(chosen)]
    has_sums = "dq_acc" in (*kind.inputs, *kind.outputs)
    return make_stage(problem, kind, dq_parts=count_dq_parts(problem) if has_sums else 1)


def list_stages(problem: Problem) -> tuple[AttentionKind, ...]:
    """Return the kinds of a problem's kernels in order; empty if the problem is its only stage."""
    if problem.family == BACKWARD.name:
        return (DOT_DO_O, DQ_DK_DV, CONVERT_DQ)
    if problem.family == FORWARD.name and problem.num_splits > 0:
        return (SPLITKV, COMBINE)
    return (PAGEDKV,) if problem.family == FORWARD.name and problem.paged else ()


def count_dq_parts(problem: Problem) -> int:
    """Return the number of separate partial sums of dq.

    It is one, to which all key tiles add; in a deterministic problem one per tile. For kernels with unusual tiles, set
    the problem's dq_parts.
    """
    if not problem.deterministic or problem.dq_parts > 1:
        return problem.dq_parts
    usual = maximum(problem.hdim_q, problem.hdim_v) <= _USUAL_HEAD
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


def make_stage(problem: Problem, kind: AttentionKind, *, dq_parts: int = 1) -> Problem:
    """Return the problem of one stage, with the fields that its kind uses."""
    kept = {name: getattr(problem, name) for name in kind.keeps}
    return problem.make_other(**{**kept, "family": kind.name, "dq_parts": dq_parts})
