"""The rules of grouped GEMM kernels: those of the block GEMM, and the problems that a kernel supports.

The codes are those of GEMM's rules with the same meaning. Rules of `ops.block_gemm` that no config of this op can break
are left out: on other pipelines, on fixed vectors, and on split-K.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch, Shape
from tilewright.ops.block_gemm import fit
from tilewright.ops.block_gemm.rules import RULES as BLOCK_GEMM_RULES
from tilewright.ops.block_gemm.rules import adapt_rule
from tilewright.ops.grouped_gemm.config import COMMON_FIELDS, FIXED, SCALED, Config, view_gemm
from tilewright.ops.grouped_gemm.problem import Problem
from tilewright.ops.rule import Rejection, Rule, rule

MOST_TILES = 2**30
_SCALED_EXAMPLE = {"dtype_a": "fp8", "dtype_b": "fp8", "dtype_c": "bf16", "block": (128, 128, 64)}
_FIX = "use a kernel with pad_k or a smaller block k."
# The shared rules that apply, with the examples where GEMM's do not fit.
EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    **{code: {} for code in ("A101", "A102", "T201", "T202", "T203", "T204", "T206", "P301", "P313", "P317", "R401")},
    "A103": {"bad": {"layout": "rrr", "block": (256, 16, 16), "waves": (4, 1, 1), "mma": (64, 4, 16)}},
    "P314": {"good": {}, "bad": {"dtype_b": "fp16"}, "fix": "use the same type for A and B."},
}
FIT_EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "S502": {
        "good": {"layout": "crr", "problem": {"layout": "crr", "ragged": "k"}},
        "bad": {"layout": "crr", "problem": {"layout": "crr", "ragged": "k", "m": 200}},
    },
    "S503": {},
    "S504": {
        "why": "the last step along K would read beyond the matrix. (With crr K is contiguous in neither operand.)",
        "fix": _FIX,
    },
    "S505": {},
    "S507": {},
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
    """Types and layouts of problem and kernel must be the same.

    Why: they are compile-time values of the kernel.

    Fix: choose a kernel with the problem's values.
    """
    for name in COMMON_FIELDS:
        mine, wanted = getattr(config, name), getattr(problem, name)
        if mine != wanted:
            return Rejection(f"the kernel has {name} {mine}, the problem {wanted}", name)
    return None


@rule(
    "P348",
    "scales-without-cshuffle",
    reads=("dtype_a", "epilogue"),
    enforced_by="compiler",
    good=_SCALED_EXAMPLE,
    bad={**_SCALED_EXAMPLE, "epilogue": "default"},
    when={"dtype_a": SCALED},
)
def check_scaled_epilogue(config: Config, arch: Arch) -> Rejection | None:
    """8-bit operands need the cshuffle epilogue.

    Why: it multiplies by the scales of rows and columns. The default epilogue takes none.

    Fix: use the epilogue cshuffle.
    """
    if config.epilogue == "cshuffle":
        return None
    return Rejection(f"the epilogue {config.epilogue} takes no scales", "epilogue", "cshuffle")


_NEEDED = {"m": ("rcr", "rrr"), "n": ("rcr", "ccr"), "k": ("crr",)}


@rule(
    "S521",
    "ragged-contiguous",
    reads=("layout",),
    enforced_by="supports",
    good={},
    bad={"layout": "crr", "problem": {"layout": "crr"}},
)
def check_ragged_layout(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """The ragged dimension must not be contiguous in A or B.

    Why: a lane loads vectors along the contiguous dimension, and groups may begin and end anywhere along the ragged
    one. Their sizes are on the device, so that no check on the host can find a group that vectors do not fit. Ragged m
    needs a row-major A, ragged n a column-major B, and ragged k the layout crr.

    Fix: transpose the matrix in memory; `tilewright.grouped_matmul` does so.
    """
    for ragged, needed in _NEEDED.items():
        if problem.ragged == ragged and config.layout not in needed:
            return Rejection(f"ragged {ragged} needs layout {' or '.join(needed)}, not {config.layout}", "layout")
    return None


@rule(
    "S522",
    "ragged-columns",
    reads=("epilogue", "pad_n"),
    enforced_by="supports",
    good={"epilogue": "default", "pad_n": True, "problem": {"ragged": "n"}},
    bad={"pad_n": True, "problem": {"ragged": "n"}},
)
def check_ragged_columns(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """Ragged n needs pad_n and the default epilogue.

    Why: groups are ranges of columns of C, of any size. The cshuffle epilogue stores vectors of several columns, and
    without pad_n a tile is stored to its last column, beyond the group.

    Fix: use a kernel with pad_n and the epilogue default.
    """
    if problem.ragged != "n":
        return None
    if config.epilogue != "default":
        return Rejection(f"ragged n needs the epilogue default, not {config.epilogue}", "epilogue", "default")
    if not config.pad_n:
        return Rejection("ragged n needs pad_n True, not False", "pad_n", True)
    return None


@rule(
    "S523",
    "ragged-too-large",
    reads=("dtype_c", "block"),
    enforced_by="supports",
    good={},
    bad={"problem": {"m": 2**20, "n": 1024}},
)
def check_ragged_size(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """With ragged m or n, C and one more tile must not be larger than 2³¹ bytes.

    Why: a group may end anywhere in a tile. A store beyond the edge of C is suppressed by adding 2³¹ bytes to its
    offset.

    Fix: split the problem.
    """
    if problem.ragged not in ("m", "n"):
        return None
    most = fit.EDGE_SHIFT // find_dtype(config.dtype_c).storage_bytes
    span = (problem.m + config.block.m) * problem.stride_c + config.block.n
    if span <= most:
        return None
    return Rejection(f"C and one more tile span {span:,} elements, CK Tile addresses up to {most:,}", "stride_c")


@rule(
    "S524",
    "too-many-tiles",
    reads=("block",),
    enforced_by="supports",
    good={},
    bad={"problem": {"groups": 2**31}},
)
def check_tile_count(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """All groups together must have at most 2³⁰ tiles.

    Why: CK Tile counts tiles with 32-bit indices, and adds the number of work-groups to the index of a tile.

    Fix: split the problem, or use a larger block.
    """
    tiles = count_tiles(config.block, problem)
    if tiles <= MOST_TILES:
        return None
    return Rejection(f"the groups may have {tiles:,} tiles, the kernel supports up to {MOST_TILES:,}", "block")


def count_tiles(block: Shape, problem: Problem) -> int:
    """The most tiles that the groups can have, whatever their sizes are: each may have one that is partly filled."""
    rows, columns = -(-problem.m // block.m), -(-problem.n // block.n)
    if problem.ragged == "m":
        return (problem.m // block.m + problem.groups) * columns
    if problem.ragged == "n":
        return rows * (problem.n // block.n + problem.groups)
    return rows * columns * problem.groups


RULES: tuple[Rule, ...] = (
    *(adapt_rule(each, view_gemm, FIXED, EXAMPLES[each.code]) for each in BLOCK_GEMM_RULES if each.code in EXAMPLES),
    check_scaled_epilogue,
)
FIT_RULES: tuple[Rule, ...] = (
    check_problem,
    *(adapt_rule(each, view_gemm, FIXED, FIT_EXAMPLES[each.code]) for each in fit.RULES if each.code in FIT_EXAMPLES),
    check_ragged_layout,
    check_ragged_columns,
    check_ragged_size,
    check_tile_count,
)
