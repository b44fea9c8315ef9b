"""Estimated time of a kernel with scales: that of the GEMM before them.

Scales are at most 3 % of the operands, and neighbours share them, so that they come from the caches. Those of groups
are multiplied with the sums of each step, by a vector instruction for each element of C and group along K.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.cost_model import tiled
from tilewright.ops.cost_model.arithmetic import Number, make_floats
from tilewright.ops.cost_model.block_gemm import PLAIN_ADDRESSES, AddressCost, compute_block_inputs
from tilewright.ops.cost_model.cost import CostModel, Estimate, Facts, ResourceUse
from tilewright.ops.cost_model.estimate_features import (
    LOOP_FLAGS,
    compute_block_features,
    compute_estimate_features,
    compute_hardware_features,
    compute_size_features,
)
from tilewright.ops.cost_model.model_inputs import CModelInputs
from tilewright.ops.gemm_quant.config import GROUP_K, GROUPED, Config, view_gemm
from tilewright.ops.gemm_quant.problem import CALL, Problem

FLAGS = (*LOOP_FLAGS, "cshuffle")


def compute_problem_inputs(problem: Problem) -> Mapping[str, float]:
    """Sizes, and the minimum of bytes that every kernel must move."""
    m, n, k = problem.m, problem.n, problem.k
    bits_a, bits_b, bits_c = (find_dtype(name).bits for name in (problem.dtype_a, problem.dtype_b, problem.dtype_c))
    return make_floats(
        {
            "m": m,
            "n": n,
            "k": k,
            "batch": 1,
            "split": 1,
            "read_bytes": (m * k * bits_a + k * n * bits_b) / 8,
            "written_bytes": m * n * bits_c / 8,
        }
    )


def compute_kernel_inputs(config: Config, arch: Arch, use: ResourceUse | None) -> Mapping[str, float]:
    """The cost of a work-group."""
    gemm = view_gemm(config)
    vectors = resources.vector_a(gemm, arch), resources.vector_b(gemm, arch)
    return compute_block_inputs(gemm, arch, use, _count_instructions(config, arch), vectors)


def _count_instructions(config: Config, arch: Arch) -> AddressCost:
    """The vector instructions of a wave, with those that apply scales of groups."""
    if config.quant not in GROUPED:
        return PLAIN_ADDRESSES
    block = config.block
    sums = block.m * block.n / resources.block_threads(view_gemm(config), arch)
    return dataclasses.replace(PLAIN_ADDRESSES, step=PLAIN_ADDRESSES.step + sums * (block.k / GROUP_K))


def compute_features(p: Facts, k: Facts, estimate: Estimate, arch: Arch) -> Mapping[str, Number]:
    """Sizes, the C tile, the GPU, and the estimate with its breakdown."""
    own = {**compute_size_features(p), **compute_block_features(k, FLAGS)}
    return {**own, **compute_hardware_features(arch), **compute_estimate_features(estimate)}


def estimate(p: Facts, k: Facts, arch: Arch) -> Estimate:
    """The time of a kernel for a problem."""
    sizes = tiled.BatchedGemmSizes(m=p.m, n=p.n, k=p.k, read_bytes=p.read_bytes, written_bytes=p.written_bytes)
    return tiled.estimate_problem(sizes, k, arch)


COST = CostModel(
    problem_numbers=compute_problem_inputs,
    kernel_numbers=compute_kernel_inputs,
    estimate=estimate,
    features=compute_features,
    in_c=CModelInputs(CALL),
)
