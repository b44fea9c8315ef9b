"""Features of a learned model of GEMM kernels. A change of names or meaning needs a new FEATURES_VERSION."""

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
from tilewright.ops.machine.numbers import Number

FEATURES_VERSION = 1
FLAGS = (*LOOP_FLAGS, "preshuffle", "persistent", "cshuffle")


def features(p: Facts, k: Facts, estimate: Estimate, arch: Arch) -> Mapping[str, Number]:
    """Sizes, the C tile, the GPU, and the estimate with its breakdown."""
    own = {**size_features(p), **block_features(k, FLAGS)}
    return {**own, **hardware_features(arch), **estimate_features(estimate)}
