"""Features of a learned model of GEMM kernels. A change of names or meaning needs a new FEATURES_VERSION."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch.spec import Arch
from tilewright.ops.cost_model.arithmetic import Number
from tilewright.ops.cost_model.cost import Estimate, Facts
from tilewright.ops.cost_model.estimate_features import (
    LOOP_FLAGS,
    compute_block_features,
    compute_estimate_features,
    compute_hardware_features,
    compute_size_features,
)

FEATURES_VERSION = 1
FLAGS = (*LOOP_FLAGS, "preshuffle", "persistent", "cshuffle")


def compute_features(p: Facts, k: Facts, estimate: Estimate, arch: Arch) -> Mapping[str, Number]:
    """Sizes, the C tile, the GPU, and the estimate with its breakdown."""
    own = {**compute_size_features(p), **compute_block_features(k, FLAGS)}
    return {**own, **compute_hardware_features(arch), **compute_estimate_features(estimate)}
