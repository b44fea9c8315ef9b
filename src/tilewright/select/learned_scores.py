"""Scores of kernels from a bundle, based on their estimates."""

from __future__ import annotations

import numpy as np

from tilewright.arch.spec import Arch
from tilewright.base.errors import BundleError
from tilewright.ops import find_op
from tilewright.ops.cost_model.cost import Estimate, Facts
from tilewright.select.bundle import RELEVANCE, Bundle


def score_kernels(bundle: Bundle, p: Facts, columns: Facts, estimate: Estimate, arch: Arch) -> np.ndarray:
    """A score for each kernel, lower is better: the logarithm of its microseconds, up to a constant per problem.

    `columns` has the kernels' model inputs and `estimate` their estimates, both as arrays. A bundle that predicts only
    an order assigns the estimated times to the kernels in that order.
    """
    logarithm = np.log(np.atleast_1d(np.asarray(estimate.us, np.float64)))
    prediction = predict_mean(bundle, p, columns, estimate, arch, len(logarithm))
    if bundle.transform != RELEVANCE:
        return np.asarray(logarithm + prediction)
    scores = np.empty_like(logarithm)
    scores[np.argsort(-prediction, kind="stable")] = np.sort(logarithm)
    return scores


def predict_mean(bundle: Bundle, p: Facts, columns: Facts, estimate: Estimate, arch: Arch, kernels: int) -> np.ndarray:
    """The mean prediction of the bundle's models for each kernel."""
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
