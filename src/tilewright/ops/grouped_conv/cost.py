"""The cost model of convolution kernels."""

from __future__ import annotations

from tilewright.ops.grouped_conv.c_numbers import C_NUMBERS
from tilewright.ops.grouped_conv.estimate import estimate, kernel_numbers, problem_numbers
from tilewright.ops.grouped_conv.features import FEATURES_VERSION, features
from tilewright.ops.machine.cost import CostModel

COST = CostModel(
    problem_numbers=problem_numbers,
    kernel_numbers=kernel_numbers,
    estimate=estimate,
    features=features,
    features_version=FEATURES_VERSION,
    in_c=C_NUMBERS,
)
