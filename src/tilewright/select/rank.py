"""Rank kernels for a problem: by the op's cost model, corrected by a bundle, or in the order of registration."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tilewright.arch.spec import Arch
from tilewright.base.errors import BundleError
from tilewright.ops import find_op
from tilewright.ops.cost_model.cost import CostModel, Estimate, Facts
from tilewright.select.bundle import RELEVANCE, Bundle
from tilewright.select.pool import OpCandidates
from tilewright.select.selection import Candidate, Ranking, SelectorStep

if TYPE_CHECKING:
    import numpy as np  # an extra: `build` and `select` work without it

STEP = "first fit"


@dataclass(frozen=True, slots=True)
class FirstFit:
    """Keeps the order of the candidates: unpadded first, then higher priority, then order of registration."""

    def rank(self, problem: Any, arch: Arch, candidates: Sequence[Candidate]) -> Ranking:  # noqa: ARG002
        return Ranking(candidates, (SelectorStep(STEP, "priority, then the order of registration"),))


FIRST_FIT = FirstFit()


def score_kernels(bundle: Bundle, p: Facts, columns: Facts, estimate: Estimate, arch: Arch) -> np.ndarray:
    """A score for each kernel, lower is better: the logarithm of its microseconds, up to a constant per problem.

    `columns` has the kernels' model inputs and `estimate` their estimates, both as arrays. A bundle that predicts only
    an order assigns the estimated times to the kernels in that order.
    """
    import numpy as np  # noqa: PLC0415

    logarithm = np.log(np.atleast_1d(np.asarray(estimate.us, np.float64)))
    prediction = predict_mean(bundle, p, columns, estimate, arch, len(logarithm))
    if bundle.transform != RELEVANCE:
        return np.asarray(logarithm + prediction)
    scores = np.empty_like(logarithm)
    scores[np.argsort(-prediction, kind="stable")] = np.sort(logarithm)
    return scores


def predict_mean(bundle: Bundle, p: Facts, columns: Facts, estimate: Estimate, arch: Arch, kernels: int) -> np.ndarray:
    """The mean prediction of the bundle's models for each kernel."""
    import numpy as np  # noqa: PLC0415

    cost = find_op(bundle.op).cost
    if cost is None:
        raise BundleError(f"the bundle {bundle.name} is for {bundle.op}, which now has no features")
    rows = np.empty((kernels, len(bundle.features)))
    for i, column in enumerate(cost.features(p, columns, estimate, arch).values()):
        rows[:, i] = column
    total = bundle.forests[0].predict(rows)
    for forest in bundle.forests[1:]:
        total = total + forest.predict(rows)
    return np.asarray(total / len(bundle.forests))


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
    import numpy as np  # noqa: PLC0415

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
