"""The rules of kernels with scales: those of the block GEMM, and the problems that a kernel supports.

The codes are those of GEMM's rules with the same meaning. Rules of `ops.block_gemm` that no config of this op can break
are left out: on other pipelines, on fixed vectors, and on split-K.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arch.spec import Arch, Shape
from tilewright.ops.block_gemm import fit
from tilewright.ops.block_gemm.rules import RULES as BLOCK_GEMM_RULES
from tilewright.ops.block_gemm.rules import adapt_rule
from tilewright.ops.gemm_quant.config import (
    COMMON_FIELDS,
    FIXED,
    GROUP_COLUMNS,
    GROUP_K,
    GROUP_ROWS,
    GROUPED,
    Config,
    count_scale_vector,
    view_gemm,
)
from tilewright.ops.gemm_quant.problem import Problem
from tilewright.ops.rule import Rejection, Rule, rule
from tilewright.ops.rule_forms import since, until

_SMALL_MMA = {"mma": (16, 16, 32)}
# The shared rules that apply, with the examples where GEMM's do not fit.
EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "A101": {"good": _SMALL_MMA, "bad": {"mma": (32, 32, 4)}},
    "A102": {"good": {"waves": (2, 2, 1)}, "bad": {"waves": (8, 4, 1), "block": (256, 128, 64)}},
    "A103": {"good": {"layout": "rrr"}, "bad": {"layout": "rrr", "mma": (32, 32, 32)}},
    "T201": {"good": {}, "bad": {"block": (96, 128, 64)}},
    "T202": {"good": {}, "bad": {"block": (128, 128, 96)}},
    "T203": {"good": {}, "bad": {"block": (128, 96, 64), "waves": (4, 1, 1), "layout": "rrr"}},
    "T204": {"good": {}, "bad": {"waves": (1, 2, 2)}},
    "T206": {"good": {"waves": (4, 4, 1), **_SMALL_MMA}, "bad": {"waves": (4, 2, 1), **_SMALL_MMA}},
    "P301": {},
    "P313": {"good": {}, "bad": {"block": (192, 128, 64), "waves": (4, 1, 1), **_SMALL_MMA}},
    "P314": {
        "good": {"dtype_b": "bf8", "pipeline": "compv6"},
        "bad": {"dtype_b": "bf8"},
        "fix": "use the pipeline compv6.",
    },
    "P317": {"good": {}, "bad": {"block": (64, 48, 64), "waves": (1, 3, 1), **_SMALL_MMA}},
    "R401": {"good": {"block": (64, 64, 256)}, "bad": {"block": (64, 512, 128), "waves": (2, 8, 1)}},
}
FIT_EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "S502": {},
    "S503": {},
    "S504": {
        "good": {"pad_k": True, "problem": {"k": 208}},
        "bad": {"problem": {"k": 208}},
        "why": "the last step along K would read beyond the matrix. (With crr K is contiguous in neither operand.)",
        "fix": "use a kernel with pad_k or a smaller block k.",
    },
    "S505": {"good": {"pad_k": True, "problem": {"k": 208}}, "bad": {"pad_k": True, "problem": {"k": 200}}},
    "S507": {},
    "S508": {
        "good": {"pipeline": "compv6", "problem": {"k": 128}},
        "bad": {"pipeline": "compv6", "problem": {"k": 64}},
    },
}


@rule(
    "S501",
    "other-problem",
    reads=COMMON_FIELDS,
    enforced_by="tilewright",
    good={},
    bad={"problem": {"dtype_c": "fp16"}},
)
def check_problem(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """Kind of scales, types and layouts of problem and kernel must be the same.

    Why: they are compile-time values of the kernel.

    Fix: choose a kernel with the problem's values.
    """
    for name in COMMON_FIELDS:
        mine, wanted = getattr(config, name), getattr(problem, name)
        if mine != wanted:
            return Rejection(f"the kernel has {name} {mine}, the problem {wanted}", name)
    return None


GROUP_LOOP = {"layout": "rcr", "pipeline": "compv3"}
_GROUP_EXAMPLE = {"quant": "b128x128", "block": (64, 128, 128), "mma": (16, 16, 32)}


@rule(
    "P331",
    "group-loop",
    reads=("quant", *GROUP_LOOP),
    enforced_by="compiler",
    good=_GROUP_EXAMPLE,
    bad={**_GROUP_EXAMPLE, "layout": "rrr"},
    when={"quant": GROUPED},
)
def check_group_loop(config: Config, arch: Arch) -> Rejection | None:
    """Scales of groups need layout rcr and the pipeline compv3.

    Why: CK Tile has this loop only for them. With a row-major B or a column-major A it does not compile, or, with the
    headers of 2026-06 and scales of both operands, has not been tried.

    Fix: use rcr and compv3.
    """
    for name, needed in GROUP_LOOP.items():
        value = getattr(config, name)
        if value != needed:
            return Rejection(f"{name} is {value}, scales of groups need {needed}", name, needed)
    return None


@rule(
    "T231",
    "group-not-in-block",
    reads=("quant", "block"),
    enforced_by="compiler",
    good=_GROUP_EXAMPLE,
    bad={**_GROUP_EXAMPLE, "block": (64, 64, 128)},
    when={"quant": GROUPED},
)
def check_group_in_block(config: Config, arch: Arch) -> Rejection | None:
    """A block must consist of whole groups: block k of 128 elements, block n of the columns of a group.

    Why: the loop applies the scales of a step's groups to its sums.

    Fix: use a block with multiples of 128.
    """
    columns = GROUP_COLUMNS.get(config.quant, 1)
    if config.block.k % GROUP_K:
        return Rejection(f"block k = {config.block.k} is not a multiple of the group's {GROUP_K}", "block")
    if config.block.n % columns:
        return Rejection(f"block n = {config.block.n} is not a multiple of the group's {columns} columns", "block")
    return None


# CK Tile's WarpGemmDispatcher has these mma with C transposed in no type, with the headers of 2025-11.
NOT_TRANSPOSED = ((32, 32, 32), (16, 16, 64), (32, 32, 64))
_ROW_GROUP_EXAMPLE = {**_GROUP_EXAMPLE, "quant": "a1x128"}


@until("2026-06")
@rule(
    "P344",
    "mma-not-transposed",
    reads=("quant", "mma"),
    enforced_by="compiler",
    good=_ROW_GROUP_EXAMPLE,
    bad={**_ROW_GROUP_EXAMPLE, "mma": (16, 16, 64)},
    when={"quant": tuple(GROUP_ROWS)},
)
def check_transposed_mma(config: Config, arch: Arch) -> Rejection | None:
    """Scales of groups of A need an mma that CK Tile has with C transposed: not 16x16x64, 32x32x32 or 32x32x64.

    Why: a lane must hold elements of one row of C, to which one scale belongs. CK Tile's form that is not transposed
    takes scales from wrong rows if a wave has several mma tiles along M.

    Fix: use 16x16x32, 32x32x16, or 16x16x128 on gfx950; or CK Tile's headers of 2026-06.
    """
    if config.mma not in NOT_TRANSPOSED:
        return None
    return Rejection(f"CK Tile has no mma {config.mma} with C transposed", "mma")


@since("2026-06")
@rule(
    "P345",
    "transposed-mma-missing",
    reads=("quant", "mma", "dtype_a"),
    enforced_by="compiler",
    good=_ROW_GROUP_EXAMPLE,
    bad={**_ROW_GROUP_EXAMPLE, "mma": (32, 32, 32), "dtype_a": "bf8", "dtype_b": "bf8"},
    when={"quant": tuple(GROUP_ROWS)},
)
def check_newer_transposed_mma(config: Config, arch: Arch) -> Rejection | None:
    """With the headers of 2026-06, scales of groups of A need another mma than 32x32x64, and than 32x32x32 for bf8.

    Why: CK Tile has two equally special forms of the former with C transposed, so that the compiler cannot choose, and
    none of the latter.

    Fix: use the mma 32x32x16.
    """
    if config.mma != (32, 32, 64) and (config.mma != (32, 32, 32) or config.dtype_a != "bf8"):
        return None
    message = f"CK Tile has no mma {config.mma} of {config.dtype_a} with C transposed"
    return Rejection(message, "mma", Shape(32, 32, 16))


@since("2026-06")
@rule(
    "P347",
    "groups-of-both-on-rdna",
    reads=("quant",),
    enforced_by="device",
    good={**_GROUP_EXAMPLE, "mma": (16, 16, 16)},
    bad={**_GROUP_EXAMPLE, "mma": (16, 16, 16), "quant": "a1x128_b128x128"},
    arch="gfx1201",
    when={"quant": tuple(set(GROUP_ROWS) & set(GROUP_COLUMNS))},
)
def check_waves_of_both(config: Config, arch: Arch) -> Rejection | None:
    """Scales of groups of A and of B need a GPU with waves of 64 lanes.

    Why: on the emulated gfx1201, results are wrong if K has a single step of the loop. The cause is not known.

    Fix: use gfx942 or gfx950.
    """
    if arch.wave_size == 64:
        return None
    return Rejection(f"{arch.name} has waves of {arch.wave_size} lanes", "quant")


@until("2026-06")
@rule(
    "P346",
    "no-groups-of-both",
    reads=("quant",),
    enforced_by="compiler",
    good=_GROUP_EXAMPLE,
    bad={**_GROUP_EXAMPLE, "quant": "a1x128_b128x128"},
    when={"quant": tuple(set(GROUP_ROWS) & set(GROUP_COLUMNS))},
)
def check_groups_of_both(config: Config, arch: Arch) -> Rejection | None:
    """Scales of groups of A and of B need CK Tile's headers since 2026-06.

    Why: earlier headers have loops for scales of groups of one operand.

    Fix: use newer headers (TILEWRIGHT_CK), or scales of groups of B.
    """
    return Rejection(f"{config.quant} needs CK Tile's headers since 2026-06, not {arch.ck.generation}", "quant")


@rule(
    "S531",
    "groups-not-aligned",
    reads=("quant", "block", "waves"),
    enforced_by="supports",
    good={**_GROUP_EXAMPLE, "quant": "b1x128", "block": (64, 128, 256), "problem": {"quant": "b1x128", "k": 512}},
    bad={
        **{**_GROUP_EXAMPLE, "quant": "b1x128", "block": (64, 128, 256), "pad_k": True},
        "problem": {"quant": "b1x128", "k": 384},
    },
    when={"quant": GROUPED},
    group_key=lambda config, arch: count_scale_vector(config, arch) if config.quant in GROUPED else 1,
)
def check_group_count(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """The number of groups along K must be a multiple of the scales that a lane loads at once.

    Why: a lane loads complete vectors of scales.

    Fix: use a block k of 128, with which vectors have one scale.
    """
    vector, groups = count_scale_vector(config, arch), -(-problem.k // GROUP_K)
    if groups % vector == 0:
        return None
    return Rejection(f"K = {problem.k} has {groups} groups, a lane loads {vector} scales at once", "block")


@since("2026-06")
@rule(
    "S512",
    "partial-m",
    reads=("quant", "block", "pad_m"),
    enforced_by="supports",
    good={},
    bad={"problem": {"m": 200}},
)
def check_whole_m(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """With the headers of 2026-06, M must be a multiple of the block, unless a kernel with scales of groups pads M.

    Why: the built kernel rejects other M. With these headers, other scales have been tried with a single kernel.

    Fix: use a smaller block, pad_m with scales of groups, or CK Tile's headers of 2025-11.
    """
    if problem.m % config.block.m == 0 or (config.quant in GROUPED and config.pad_m):
        return None
    return Rejection(f"M = {problem.m} is not a multiple of block m = {config.block.m}", "block")


RULES: tuple[Rule, ...] = (
    *(adapt_rule(each, view_gemm, FIXED, EXAMPLES[each.code]) for each in BLOCK_GEMM_RULES if each.code in EXAMPLES),
    check_group_loop,
    check_group_in_block,
    check_transposed_mma,
    check_newer_transposed_mma,
    check_groups_of_both,
    check_waves_of_both,
)
FIT_RULES: tuple[Rule, ...] = (
    check_problem,
    *(adapt_rule(each, view_gemm, FIXED, FIT_EXAMPLES[each.code]) for each in fit.RULES),
    check_whole_m,
    check_group_count,
)
