"""Estimated time of a GEMM kernel: model inputs, features and the cost model."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.cost_model import tiled
from tilewright.ops.cost_model.arithmetic import Number, make_floats
from tilewright.ops.cost_model.block_gemm import ACCESS_BITS, PLAIN_ADDRESSES, compute_block_inputs
from tilewright.ops.cost_model.cost import CostModel, Estimate, Facts, ResourceUse
from tilewright.ops.cost_model.estimate_features import (
    LOOP_FLAGS,
    compute_block_features,
    compute_estimate_features,
    compute_hardware_features,
    compute_size_features,
)
from tilewright.ops.cost_model.model_inputs import CModelInputs
from tilewright.ops.gemm.call import CALL
from tilewright.ops.gemm.config import Config
from tilewright.ops.gemm.kind import find_kind
from tilewright.ops.gemm.problem import Problem

FEATURES_VERSION = 1
FLAGS = (*LOOP_FLAGS, "preshuffle", "persistent", "cshuffle")


def compute_features(p: Facts, k: Facts, estimate: Estimate, arch: Arch) -> Mapping[str, Number]:
    """Sizes, the C tile, the GPU, and the estimate with its breakdown."""
    own = {**compute_size_features(p), **compute_block_features(k, FLAGS)}
    return {**own, **compute_hardware_features(arch), **compute_estimate_features(estimate)}


def compute_problem_inputs(problem: Problem) -> Mapping[str, float]:
    """Sizes, and the minimum of bytes that every kernel must move."""
    m, n, k, batch = problem.m, problem.n, problem.k, problem.batch
    bits_a, bits_b, bits_c = (find_dtype(name).bits for name in (problem.dtype_a, problem.dtype_b, problem.dtype_c))
    read = m * k * bits_a + k * n * bits_b + m * n * bits_c * problem.num_d
    return make_floats(
        {
            "m": m,
            "n": n,
            "k": k,
            "batch": batch,
            "split": problem.k_batch,
            "read_bytes": batch * read / 8,
            "written_bytes": batch * m * n * bits_c / 8,
        }
    )


def compute_kernel_inputs(config: Config, arch: Arch, use: ResourceUse | None) -> Mapping[str, float]:
    """The cost of a work-group, and fields for learned models."""
    numbers = compute_block_inputs(config, arch, use, PLAIN_ADDRESSES, _choose_vectors(config, arch))
    # D tensors are read at the end, at the rate of loads.
    numbers["store_bytes"] *= 1 + config.num_d / arch.memory.store_cost
    return {
        **numbers,
        "preshuffle": float(find_kind(config).reordered_b),
        "persistent": float(config.persistent),
    }


def _choose_vectors(config: Config, arch: Arch) -> tuple[int, int]:
    if config.vector is not None:
        return resources.fixed_vectors(config, config.vector, arch)
    if find_kind(config).reordered_b:
        return resources.vector_a(config, arch), ACCESS_BITS // find_dtype(config.dtype_b).bits
    return resources.vector_a(config, arch), resources.vector_b(config, arch)


def estimate(p: Facts, k: Facts, arch: Arch) -> Estimate:
    """The time of a kernel for a problem."""
    sizes = tiled.BatchedGemmSizes(
        m=p.m,
        n=p.n,
        k=p.k,
        batch=p.batch,
        split=p.split,
        read_bytes=p.read_bytes,
        written_bytes=p.written_bytes,
    )
    return tiled.estimate_problem(sizes, k, arch)


COST = CostModel(
    problem_numbers=compute_problem_inputs,
    kernel_numbers=compute_kernel_inputs,
    estimate=estimate,
    features=compute_features,
    features_version=FEATURES_VERSION,
    in_c=CModelInputs(CALL),
)
