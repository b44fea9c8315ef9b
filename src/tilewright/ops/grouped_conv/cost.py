"""The cost model of convolution kernels."""

from __future__ import annotations

from tilewright.ops.cost_model.cost import CostModel
from tilewright.ops.grouped_conv.estimate import compute_kernel_inputs, compute_problem_inputs, estimate
from tilewright.ops.grouped_conv.features import FEATURES_VERSION, compute_features
from tilewright.ops.grouped_conv.model_inputs import C_NUMBERS

COST = CostModel(
    problem_numbers=compute_problem_inputs,
    kernel_numbers=compute_kernel_inputs,
    estimate=estimate,
    features=compute_features,
    features_version=FEATURES_VERSION,
    in_c=C_NUMBERS,
)
