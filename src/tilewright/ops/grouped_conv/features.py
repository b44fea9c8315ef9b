"""Features of a learned model of convolution kernels. A change of names or meaning needs a new FEATURES_VERSION."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch.spec import Arch
from tilewright.ops.machine.cost import Estimate, Facts
from tilewright.ops.machine.estimate_features import (
    LOOP_FLAGS,
    block_features,
    estimate_features,
    hardware_features,
    size_features,
)
from tilewright.ops.machine.numbers import Number, log2

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


def features(p: Facts, k: Facts, estimate: Estimate, arch: Arch) -> Mapping[str, Number]:
    """Sizes of the convolution and of the GEMM inside it, the C tile, the GPU, and the estimate with its breakdown."""
    return {
        **size_features(p),
        "log_channels": log2(p.channels),
        "taps": p.taps,
        "log_image": log2(p.image),
        "stride": p.stride,
        **block_features(k, FLAGS),
        **hardware_features(arch),
        **estimate_features(estimate),
    }
