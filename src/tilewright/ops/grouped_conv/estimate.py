"""Estimated time of a convolution kernel: that of the GEMM inside it, with additional address arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.cost_model import tiled
from tilewright.ops.cost_model.arithmetic import Number, log2, make_floats
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
from tilewright.ops.grouped_conv.call import CALL
from tilewright.ops.grouped_conv.config import Config
from tilewright.ops.grouped_conv.implicit_gemm import ImplicitGemm, compute_gemm_sizes
from tilewright.ops.grouped_conv.kind import find_kind
from tilewright.ops.grouped_conv.kinds import KINDS
from tilewright.ops.grouped_conv.problem import Problem

FEATURES_VERSION = 1
FLAGS = (
    *(kind.name for kind in KINDS),
    *LOOP_FLAGS,
    "cshuffle",
    "merge_groups",
    "two_stage",
    "explicit_gemm",
    "vector_a",
    "vector_b",
    "vector_c",
)


def compute_features(p: Facts, k: Facts, estimate: Estimate, arch: Arch) -> Mapping[str, Number]:
    """Sizes of the convolution and of the GEMM inside it, the C tile, the GPU, and the estimate with its breakdown."""
    return {
        **compute_size_features(p),
        "log_channels": log2(p.channels),
        "taps": p.taps,
        "log_image": log2(p.image),
        "stride": p.stride,
        **compute_block_features(k, FLAGS),
        **compute_hardware_features(arch),
        **compute_estimate_features(estimate),
    }


def compute_problem_inputs(problem: Problem) -> Mapping[str, float]:
    """Sizes of the GEMM of one group, and the minimum of bytes that every kernel must move."""
    sizes, parts = find_kind(problem).split_gemm(problem, compute_gemm_sizes(problem))
    counts = problem.count_elements(problem.n)
    types = (problem.dtype_a, problem.dtype_b, problem.dtype_c)
    a, b, c = (count * find_dtype(name).bits / 8 for count, name in zip(counts, types, strict=True))
    return make_floats(
        {
            "m": sizes.m,
            "n": sizes.n,
            "k": sizes.k,
            "batch": problem.g * parts,
            "split": problem.k_batch,
            "read_bytes": a + b,
            "written_bytes": c,
            "written": counts[2],
            "channels": problem.group_channels[0],
            "taps": math.prod(problem.filter_size),
            "image": math.prod(problem.output_size),
            "stride": math.prod(problem.stride),
        }
    )


def compute_kernel_inputs(config: Config, arch: Arch, use: ResourceUse | None) -> Mapping[str, float]:
    """The cost of a work-group, and fields for learned models."""
    view = ImplicitGemm(config)
    vectors = resources.fixed_vectors(view, config.vector, arch)
    code = PLAIN_ADDRESSES if config.explicit_gemm else find_kind(config).address_cost
    return {
        **compute_block_inputs(view, arch, use, code, vectors),
        "merge_groups": float(config.merge_groups),
        "two_stage": float(config.two_stage),
        "split_image": float(config.split_image),
        "explicit_gemm": float(config.explicit_gemm),
        "vector_a": float(config.vector.m),
        "vector_b": float(config.vector.n),
        "vector_c": float(config.vector.k),
        **{kind.name: float(find_kind(config) is kind) for kind in KINDS},
    }


def estimate(p: Facts, k: Facts, arch: Arch) -> Estimate:
    """The time of a kernel for a problem.

    Merged groups are computed as one product of which only the diagonal is used. With two stages, fp32 sums are written
    and added, then read and written again by another kernel. The pieces of a split image are two launches.
    """
    sizes = tiled.BatchedGemmSizes(
        m=p.m * k.merge_groups,
        n=p.n * k.merge_groups,
        k=p.k,
        batch=p.batch / k.merge_groups,
        split=p.split,
        read_bytes=p.read_bytes + k.two_stage * 4 * p.written,
        written_bytes=p.written_bytes + k.two_stage * 4 * p.written,
        launches=1 + k.two_stage + k.split_image,
    )
    return tiled.estimate_problem(sizes, k, arch)


COST = CostModel(
    problem_numbers=compute_problem_inputs,
    kernel_numbers=compute_kernel_inputs,
    estimate=estimate,
    features=compute_features,
    features_version=FEATURES_VERSION,
    in_c=CModelInputs(CALL, length="ndim"),
)
