"""Gradient boosting on rows of foreign kernels, trained on some folds and evaluated on the others."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Trees:
    """Training parameters. Scores are the mean over the seeds."""

    rounds: int
    leaves: int
    rate: float
    least_rows: int  # in a leaf
    columns: float  # share of columns that a tree uses
    rows: float = 0.8  # share of rows that a tree uses
    shrink: float = 1.0  # l2 penalty of leaf values
    seeds: tuple[int, ...] = (0,)

    def make_parameters(self, seed: int) -> dict[str, object]:
        return {
            "objective": "l2",
            "num_leaves": self.leaves,
            "learning_rate": self.rate,
            "min_child_samples": self.least_rows,
            "feature_fraction": self.columns,
            "bagging_fraction": self.rows,
            "bagging_freq": 1,
            "lambda_l2": self.shrink,
            "seed": seed,
            # Threads would wait for each other at every split, which is slow on a busy machine. Folds run in
            # parallel instead: see `run_parallel`.
            "num_threads": 1,
            "deterministic": True,
            "force_row_wise": True,
            "verbose": -1,
        }


def fit_predict(
    trees: Trees,
    train: tuple[NDArray[np.float32], Floats, Floats],
    test: NDArray[np.float32],
    categories: Sequence[int] = (),
) -> Floats:
    """Train on features, target and weight in `train`, and predict `test`: the mean over seeds."""
    import lightgbm

    features, target, weight = train
    total = np.zeros(len(test))
    for seed in trees.seeds:
        data = lightgbm.Dataset(
            features, target, weight=weight, categorical_feature=list(categories), params={"verbose": -1}
        )
        booster = lightgbm.train(trees.make_parameters(seed), data, trees.rounds)
        total += booster.predict(test, num_threads=1)
    return total / len(trees.seeds)


def select_training_rows(group: NDArray[np.int64], held_out: int, most: int | None = None) -> NDArray[np.bool_]:
    """Select the rows of all other groups, or of at most `most` groups drawn at random."""
    others = np.setdiff1d(group, [held_out])
    if most is not None:
        others = np.random.default_rng(held_out).permutation(others)[:most]
    return np.isin(group, others)


def run_parallel(tasks: Sequence[Callable[[], Result]]) -> list[Result]:
    """Run tasks that spend their time in LightGBM, as many at once as there are processors."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [future.result() for future in [pool.submit(task) for task in tasks]]


class Progress:
    """Prints the current step and the elapsed time to stderr."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._start = time.monotonic()

    def __call__(self, what: str) -> None:
        print(f"{self._name}: {what} ({time.monotonic() - self._start:.0f} s)", file=sys.stderr, flush=True)
