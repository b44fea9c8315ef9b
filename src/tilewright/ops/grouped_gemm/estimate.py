"""Estimated time of a grouped GEMM kernel: that of its tiles, and the launch that prepares them.

The sizes of groups are on the device. Without them, all groups that can have lines have the same number of lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.load import load
from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.ops.block_gemm import resources
from tilewright.ops.cost_model import tiled
from tilewright.ops.cost_model.arithmetic import Number, ceil_div, make_floats, maximum, minimum, where
from tilewright.ops.cost_model.block_gemm import PLAIN_ADDRESSES, compute_block_inputs
from tilewright.ops.cost_model.cost import CostModel, Estimate, Facts, ResourceUse
from tilewright.ops.cost_model.estimate_features import (
    LOOP_FLAGS,
    compute_block_features,
    compute_estimate_features,
    compute_hardware_features,
    compute_size_features,
)
from tilewright.ops.cost_model.model_inputs import CModelInputs
from tilewright.ops.grouped_gemm.config import Config, view_gemm
from tilewright.ops.grouped_gemm.problem import CALL, STACKED_BY, Problem
from tilewright.ops.kernel import Kernel

FLAGS = (*LOOP_FLAGS, "cshuffle")
LAUNCHES = 2.0  # the kernel that writes the arguments of groups, and the GEMM


def compute_problem_inputs(problem: Problem) -> Mapping[str, float]:
    """Sizes of a group of mean size, and the minimum of bytes that every kernel must move."""
    m, n, k, groups = problem.m, problem.n, problem.k, problem.groups
    bits_a, bits_b, bits_c = (find_dtype(name).bits for name in (problem.dtype_a, problem.dtype_b, problem.dtype_c))
    # No truth value of `ragged`: in C it is an expression. A group without rows or columns costs nothing, and there are
    # at least as many as the groups exceed the lines: few tokens use few experts.
    filled = where(problem.ragged == "m", minimum(groups, m), where(problem.ragged == "n", minimum(groups, n), groups))
    each = where(problem.ragged == "none", groups, 1)
    of_a, of_b, of_c = (where(problem.ragged == name, filled, each) for name in STACKED_BY)
    return make_floats(
        {
            "m": where(problem.ragged == "m", m / filled, m),
            "n": where(problem.ragged == "n", n / filled, n),
            "k": where(problem.ragged == "k", maximum(1.0, k / groups), k),
            "batch": filled,
            "split": 1,
            "read_bytes": (m * k * bits_a * of_a + k * n * bits_b * of_b) / 8,
            "written_bytes": m * n * bits_c * of_c / 8,
        }
    )


def compute_kernel_inputs(config: Config, arch: Arch, use: ResourceUse | None) -> Mapping[str, float]:
    """The cost of a work-group."""
    gemm = view_gemm(config)
    vectors = resources.vector_a(gemm, arch), resources.vector_b(gemm, arch)
    return compute_block_inputs(gemm, arch, use, PLAIN_ADDRESSES, vectors)


def compute_features(p: Facts, k: Facts, estimate: Estimate, arch: Arch) -> Mapping[str, Number]:
    """Sizes, the C tile, the GPU, and the estimate with its breakdown."""
    own = {**compute_size_features(p), **compute_block_features(k, FLAGS)}
    return {**own, **compute_hardware_features(arch), **compute_estimate_features(estimate)}


def estimate(p: Facts, k: Facts, arch: Arch) -> Estimate:
    """The time of a kernel for a problem."""
    sizes = tiled.BatchedGemmSizes(
        **{"m": p.m, "n": p.n, "k": p.k, "batch": p.batch, "launches": LAUNCHES},
        read_bytes=p.read_bytes,
        written_bytes=p.written_bytes,
    )
    return tiled.estimate_problem(sizes, k, arch)


def estimate_groups(kernel: Kernel, problem: Problem, sizes: Sequence[int]) -> Estimate:
    """The time of a kernel for groups of known sizes along the ragged dimension, such as the tokens of each expert.

    The estimate without sizes takes groups of equal sizes. Raises
    `InvalidValueError` if the sizes do not fit the problem.
    """
    if not isinstance(kernel.config, Config):
        raise InvalidValueError(f"{kernel} is a kernel of {kernel.op}, not of grouped_gemm.")
    lines = {"m": problem.m, "n": problem.n, "k": problem.k}.get(problem.ragged)
    if lines is None:
        raise InvalidValueError("The groups of this problem have the same sizes (ragged is none): leave out `sizes`.")
    if len(sizes) != problem.groups or min(sizes) < 0 or sum(sizes) > lines:
        raise InvalidValueError(
            f"The sizes of groups must be {problem.groups} numbers from 0 with a sum of at most {problem.ragged} = "
            f"{lines}; these are {len(sizes)} numbers from {min(sizes, default=0)} with the sum {sum(sizes)}."
        )
    arch = load(kernel.arch)
    pace = Facts(**compute_kernel_inputs(kernel.config, arch, None))
    return tiled.estimate_tiles(_count_tiles(problem, sizes, pace, arch), pace, arch)


def _count_tiles(problem: Problem, sizes: Sequence[int], pace: Facts, arch: Arch) -> tiled.TileCounts:
    """The tiles of groups of these sizes. A sum without terms has no steps, but its tile is stored."""
    m, n, k = ([size] * len(sizes) for size in (problem.m, problem.n, problem.k))
    m, n, k = (list(sizes) if problem.ragged == name else each for name, each in zip("mnk", (m, n, k), strict=True))
    tiles_m, tiles_n, steps = (
        [ceil_div(size, block) for size in each]
        for each, block in ((m, pace.block_m), (n, pace.block_n), (k, pace.block_k))
    )
    tiles = [rows * columns for rows, columns in zip(tiles_m, tiles_n, strict=True)]
    all_tiles = max(1.0, sum(tiles))
    elements = sum(rows * columns for rows, columns in zip(m, n, strict=True))
    in_steps = sum(count * of_tile for count, of_tile in zip(tiles, steps, strict=True))
    bits_a, bits_b, bits_c = (find_dtype(name).bits for name in (problem.dtype_a, problem.dtype_b, problem.dtype_c))
    # An operand of a group without tiles is not read.
    read_bits = sum(
        (rows * terms * bits_a + terms * columns * bits_b) * bool(count)
        for rows, columns, terms, count in zip(m, n, k, tiles, strict=True)
    )
    return tiled.TileCounts(
        tiles=all_tiles,
        steps=in_steps / all_tiles,
        extra_steps=pace.extra_steps,
        longest=max(steps) + pace.extra_steps,
        stored=elements / all_tiles * pace.store_bytes * arch.memory.store_cost,
        memory_bytes=(read_bits + elements * bits_c) / 8,
        launches=LAUNCHES,
        use_m=sum(m) / max(1.0, sum(tiles_m) * pace.block_m),
        use_n=sum(n) / max(1.0, sum(tiles_n) * pace.block_n),
        use_k=sum(k) / max(1.0, sum(steps) * pace.block_k),
    )


COST = CostModel(
    problem_numbers=compute_problem_inputs,
    kernel_numbers=compute_kernel_inputs,
    estimate=estimate,
    features=compute_features,
    in_c=CModelInputs(CALL),
)
