"""Estimated time of a grouped GEMM kernel: that of products of the mean size, and the launch that prepares them.

The sizes of groups are on the device, so that the estimate cannot depend on them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.cost_model import tiled
from tilewright.ops.cost_model.arithmetic import Number, make_floats, maximum, where
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

FLAGS = (*LOOP_FLAGS, "cshuffle")
LAUNCHES = 2.0  # the kernel that writes the arguments of groups, and the GEMM


def compute_problem_inputs(problem: Problem) -> Mapping[str, float]:
    """Sizes of a group of mean size, and the minimum of bytes that every kernel must move."""
    m, n, k, groups = problem.m, problem.n, problem.k, problem.groups
    bits_a, bits_b, bits_c = (find_dtype(name).bits for name in (problem.dtype_a, problem.dtype_b, problem.dtype_c))
    # No truth value of `ragged`: in C it is an expression.
    each = where(problem.ragged == "none", groups, 1)
    of_a, of_b, of_c = (where(problem.ragged == name, groups, each) for name in STACKED_BY)
    return make_floats(
        {
            "m": where(problem.ragged == "m", maximum(1.0, m / groups), m),
            "n": where(problem.ragged == "n", maximum(1.0, n / groups), n),
            "k": where(problem.ragged == "k", maximum(1.0, k / groups), k),
            "batch": groups,
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


COST = CostModel(
    problem_numbers=compute_problem_inputs,
    kernel_numbers=compute_kernel_inputs,
    estimate=estimate,
    features=compute_features,
    in_c=CModelInputs(CALL),
)
