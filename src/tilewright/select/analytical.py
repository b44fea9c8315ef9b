"""Time estimates of kernels for a problem, from the op's cost model."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence
from typing import Any, cast

from tilewright.ops.cost_model.cost import CostModel, Estimate, Facts
from tilewright.select.pool import OpCandidates

# Below this number of kernels a loop is faster than arrays.
FEW = 4


def compute_problem_inputs(cost: CostModel, problem: Any) -> Facts:
    """The model inputs of a problem."""
    return Facts(**cost.problem_numbers(problem))


def estimate_times(part: OpCandidates, problem: Any, places: Sequence[int]) -> Sequence[float]:
    """Estimated microseconds of each kernel: an array if NumPy is installed, else a list of the same numbers."""
    cost = part.op.cost
    assert cost is not None
    facts, arch = compute_problem_inputs(cost, problem), part.pool.arch
    if len(places) < FEW or not has_numpy():
        return [float(cost.estimate(facts, part.rows[place], arch).us) for place in places]
    import numpy as np  # noqa: PLC0415  (an extra)

    us = cost.estimate(facts, part.gather_inputs(places), arch).us
    return cast("Sequence[float]", np.broadcast_to(us, (len(places),)))


def estimate_kernel(part: OpCandidates, problem: Any, place: int) -> Estimate:
    """The estimate of one kernel, with its terms."""
    cost = part.op.cost
    assert cost is not None
    return cost.estimate(compute_problem_inputs(cost, problem), part.rows[place], part.pool.arch)


@functools.cache
def has_numpy() -> bool:
    """Whether NumPy is installed, so that all kernels can be estimated at once."""
    return importlib.util.find_spec("numpy") is not None
