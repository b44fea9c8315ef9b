"""The cost model of GEMM kernels."""

from __future__ import annotations

from tilewright.ops.cost_model.cost import CostModel
from tilewright.ops.gemm.estimate import compute_kernel_inputs, compute_problem_inputs, estimate
from tilewright.ops.gemm.features import FEATURES_VERSION, compute_features
from tilewright.ops.gemm.model_inputs import C_NUMBERS

COST = CostModel(
    problem_numbers=compute_problem_inputs,
    kernel_numbers=compute_kernel_inputs,
    estimate=estimate,
    features=compute_features,
    features_version=FEATURES_VERSION,
    in_c=C_NUMBERS,
)
