"""The rules of sorting kernels, M1xx, and the problems that they compute, S5xx: the same checks as `supports`."""

from __future__ import annotations

import sys

from tilewright.arch.spec import Arch
from tilewright.ops.moe_sorting.config import COMMON_FIELDS, LDS_BYTES, Config, count_step
from tilewright.ops.moe_sorting.problem import Problem
from tilewright.ops.rule import Rejection, collect_rules
from tilewright.ops.rule_forms import RuleGroup, examples, one_of, same_fields

MAX_INDEX = 2**31 - 1  # CK Tile's index_t is a 32-bit integer
_SORTING = RuleGroup()


def count_most_experts(config: Config) -> int:
    """The most columns of the table in LDS: it has the tokens of a step, and two rows of sums."""
    return LDS_BYTES // 4 // (count_step(config) + 2) - 1


TILE = one_of(
    "M101",
    "tile-not-known",
    "`tile` is 1, 2, 4 or 8.",
    {"tile": (1, 2, 4, 8)},
    "{name} is {value}, must be one of {allowed}",
    nearest=4,
    enforced_by="compiler",
    good={"tile": 2},
    bad={"tile": 3},
    why="CK Tile has no other (`SubTokenTile`).",
    fix="use the next smaller power of two.",
)
SAME_PROBLEM = same_fields(
    "S501",
    "other-problem",
    "Problem and kernel must both have a mask or not, and both keep empty experts or not.",
    COMMON_FIELDS,
    enforced_by="tilewright",
    good={},
    bad={"problem": {"masked": True}},
    why="they are compile-time values of the kernel.",
    fix="choose a kernel with the problem's values.",
)


@examples(good={"tile": 1, "problem": {"experts": 512}}, bad={"tile": 8, "problem": {"experts": 256}})
@_SORTING.rule("S502", "problem-too-large", "supports", ("tile",))
def check_sizes(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """The table of experts and of the tokens that are counted at once fits into LDS, and numbers of entries
    have 31 bits.

    Why: one work-group counts the tokens of all experts in the table, and CK Tile computes places of entries with 32
    bits.

    Fix: use a kernel with a smaller tile for more experts; divide the tokens among several calls.
    """
    most = count_most_experts(config)
    if problem.experts > most:
        step = count_step(config)
        return Rejection(
            f"{problem.experts} experts with {step} tokens exceed {LDS_BYTES} bytes of LDS, at most {most}", "tile", 1
        )
    if problem.tokens * problem.k + problem.experts * problem.unit > MAX_INDEX:
        return Rejection(f"{problem.experts} experts with blocks of {problem.unit} exceed {MAX_INDEX} entries")
    return None


_ALL = collect_rules(sys.modules[__name__])
RULES = tuple(each for each in _ALL if each.code.startswith("M"))
FIT_RULES = tuple(each for each in _ALL if each.code.startswith("S"))
