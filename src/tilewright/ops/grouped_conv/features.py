"""Features of a learned model of convolution kernels. A change of names or meaning needs a new FEATURES_VERSION."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch.spec import Arch
from tilewright.ops.cost_model.arithmetic import Number, log2
from tilewright.ops.cost_model.cost import Estimate, Facts
from tilewright.ops.cost_model.estimate_features import (
    LOOP_FLAGS,
    compute_block_features,
    compute_estimate_features,
    compute_hardware_features,
    compute_size_features,
)

FEATURES_VERSION = 1
FLAGS = (
    "forward",
    "backward_data",
    "backward_weight",
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
