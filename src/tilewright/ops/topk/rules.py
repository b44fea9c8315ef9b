"""The rules of top-k kernels, K1xx, and the problems that they compute, S5xx: the same checks as `supports`."""

from __future__ import annotations

import sys

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.rule import Rejection, collect_rules
from tilewright.ops.rule_forms import RuleGroup, examples, same_fields
from tilewright.ops.topk.config import COMMON_FIELDS, Config, count_lanes
from tilewright.ops.topk.problem import Problem

MAX_BYTES = 2**32 - 1  # the size of a buffer descriptor has 32 bits (make_wave_buffer_resource)
MAX_INDEX = 2**31 - 1  # CK Tile's index_t is a 32-bit integer
MOST_HELD = 64  # of the 256 registers of a lane, for three values of each element
_TOPK = RuleGroup()


def count_most_elements(config: Config) -> int:
    """The most elements of x, with the gaps between rows."""
    return min(MAX_INDEX, MAX_BYTES // find_dtype(config.dtype).storage_bytes)


@examples(good={"experts": 16}, bad={"experts": 24})
@_TOPK.rule("K101", "lanes-of-a-row", "compiler", ("experts", "vector"))
def check_lanes(config: Config, arch: Arch) -> Rejection | None:
    """A row is divided into vectors, a power of two of elements, and its lanes are a power of two, or the whole wave.

    Why: a lane holds whole vectors, a wave computes several rows, each with as many lanes, and lanes are combined in
    pairs.

    Fix: use a power of two of experts, or a multiple of the wave size: rows may be shorter.
    """
    vector = config.vector
    if vector & (vector - 1) != 0:
        return Rejection(f"vector is {vector}, must be a power of two", "vector", 1 << (vector.bit_length() - 1))
    if config.experts % vector != 0:
        nearest = (config.experts // vector + 1) * vector
        return Rejection(f"{config.experts} experts are not a multiple of the vector {vector}", "experts", nearest)
    lanes = count_lanes(config, arch)
    if arch.wave_size % lanes == 0:
        return None
    return Rejection(
        f"{config.experts} experts take {lanes} lanes, which do not divide a wave of {arch.wave_size}",
        "experts",
        vector << (lanes - 1).bit_length(),
    )


@examples(good={"experts": 192}, bad={"experts": 96})
@_TOPK.rule("K102", "row-not-in-waves", "device", ("experts", "vector"))
def check_whole_waves(config: Config, arch: Arch) -> Rejection | None:
    """A row that takes a whole wave is a multiple of wave size × vector.

    Why: every lane holds the same number of vectors. CK Tile rounds it down (`IssuesPerRow`), so that the end of a row
    is ignored: the kernel compiles, and its results are wrong.

    Fix: use more experts: rows may be shorter.
    """
    step = arch.wave_size * config.vector
    if config.experts <= step or config.experts % step == 0:
        return None
    return Rejection(
        f"{config.experts} experts are not a multiple of {step}, the elements that a wave loads at once",
        "experts",
        (config.experts // step + 1) * step,
    )


@examples(good={"threads": 128}, bad={"threads": 32})
@_TOPK.rule("K103", "no-whole-waves", "tilewright", ("threads",))
def check_threads(config: Config, arch: Arch) -> Rejection | None:
    """The threads of a work-group are whole waves.

    Why: a row is computed by one wave; the rows of a work-group are divided among its waves.

    Fix: use a multiple of the wave size.
    """
    if config.threads % arch.wave_size == 0:
        return None
    nearest = max(1, config.threads // arch.wave_size) * arch.wave_size
    return Rejection(
        f"{config.threads} threads are not a multiple of the wave size {arch.wave_size}", "threads", nearest
    )


@examples(good={"dtype": "fp32", "vector": 4}, bad={"dtype": "fp32", "vector": 8})
@_TOPK.rule("K104", "vector-too-long", "tilewright", ("dtype", "vector"))
def check_vector_length(config: Config, arch: Arch) -> Rejection | None:
    """A vector has at most 16 bytes.

    Why: no load instruction has more.

    Fix: use a smaller vector.
    """
    size = find_dtype(config.dtype).storage_bytes
    if config.vector * size <= 16:
        return None
    return Rejection(
        f"a vector of {config.vector} {config.dtype} has {config.vector * size} bytes, at most 16", "vector", 16 // size
    )


@examples(good={"experts": 1024, "rows": 4}, bad={"experts": 2048, "rows": 4})
@_TOPK.rule("K105", "lane-holds-too-much", "tilewright", ("experts", "rows", "vector"))
def check_held(config: Config, arch: Arch) -> Rejection | None:
    """A lane holds at most 64 elements.

    Why: values, those that are left and candidates with their indices are in registers; more would be moved to memory.

    Fix: use fewer rows or experts.
    """
    lanes = count_lanes(config, arch)
    held = config.rows * config.experts // max(1, lanes)
    if held <= MOST_HELD:
        return None
    return Rejection(
        f"{config.rows} rows of {config.experts} experts in {lanes} lanes are {held} elements of a lane, at most "
        f"{MOST_HELD}",
        "rows",
        max(1, config.rows * MOST_HELD // held),
    )


SAME_PROBLEM = same_fields(
    "S501",
    "other-problem",
    "Activation and type of problem and kernel must be the same.",
    COMMON_FIELDS,
    enforced_by="tilewright",
    good={},
    bad={"problem": {"dtype": "bf16"}},
    why="they are compile-time values of the kernel.",
    fix="choose a kernel with the problem's values.",
)


@examples(good={"problem": {"experts": 60}}, bad={"problem": {"experts": 65}})
@_TOPK.rule("S502", "row-too-long", "supports", ("experts",))
def check_length(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """A kernel holds a whole row.

    Why: elements beyond the kernel's `experts` would be ignored.

    Fix: use a kernel with more experts.
    """
    if problem.experts <= config.experts:
        return None
    return Rejection(f"a row has {problem.experts} elements, the kernel holds {config.experts}", "experts")


@examples(good={"vector": 4, "problem": {"experts": 60}}, bad={"vector": 4, "problem": {"experts": 62}})
@_TOPK.rule("S503", "unsuitable-row", "supports", ("dtype", "vector"))
def check_row(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """Rows and their distance are multiples of the vector, and x does not exceed 2³¹ - 1 elements and 4 GiB.

    Why: rows are loaded in whole vectors, and CK Tile computes offsets with 32 bits.

    Fix: use a kernel with a smaller vector, or divide the rows among several calls.
    """
    for name in ("experts", "stride_x"):
        value = getattr(problem, name)
        if value % config.vector != 0:
            return Rejection(f"{name} is {value}, must be a multiple of vector {config.vector}", "vector", 1)
    most = count_most_elements(config)
    if problem.stride_x > most // problem.rows:
        return Rejection(f"{problem.rows} rows with stride_x {problem.stride_x} exceed {most} elements")
    return None


_ALL = collect_rules(sys.modules[__name__])
RULES = tuple(each for each in _ALL if each.code.startswith("K"))
FIT_RULES = tuple(each for each in _ALL if each.code.startswith("S"))
