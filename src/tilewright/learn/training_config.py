"""The training config of a model: every parameter that the result depends on, except for the data."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from tilewright.base.errors import InvalidValueError, choose

REGRESSOR, RANKER = "regressor", "ranker"
KINDS = (REGRESSOR, RANKER)


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Hyper-parameters of a LightGBM ensemble. The same data and config give the same bytes.

    A regressor learns log(time / estimate), centred per problem; a ranker (lambdarank) learns only the order. `rounds`
    is the maximum number of trees per seed: the number is chosen by cross-validation inside the training data, which
    stops `patience` rounds after the best; with patience 0 all of them are trained. The prediction is the mean over
    `seeds`.
    """

    kind: str = REGRESSOR
    rounds: int = 150
    patience: int = 20
    learning_rate: float = 0.1
    leaves: int = 15
    least_in_leaf: int = 20
    feature_share: float = 0.6  # of the features, drawn for each tree
    row_share: float = 0.7  # of the rows, drawn for each tree
    l2: float = 1.0
    # A row's weight is (best / time) to this power: a model need not know how slow the slow kernels are.
    weight_power: float = 6.0
    folds: int = 5  # of the cross-validation inside the training data
    seeds: tuple[int, ...] = (0, 1)
    threads: int = 1

    def __post_init__(self) -> None:
        choose("kind of model", self.kind, KINDS)
        for name, least in (("rounds", 1), ("patience", 0), ("leaves", 2), ("least_in_leaf", 1), ("folds", 2)):
            if getattr(self, name) < least:
                raise InvalidValueError(f"{name} is {getattr(self, name)}, must be at least {least}")
        for name in ("feature_share", "row_share", "learning_rate"):
            if not 0 < getattr(self, name) <= 1:
                raise InvalidValueError(f"{name} is {getattr(self, name)}, must be above 0 and at most 1")
        if not self.seeds:
            raise InvalidValueError("seeds is empty: a model needs at least one")

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "seeds": list(self.seeds)}

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> TrainingConfig:
        """The training config in a manifest; an unknown key is an error."""
        for name in values:
            choose("field of a recipe", name, (f.name for f in fields(TrainingConfig)))
        return TrainingConfig(**{**values, "seeds": tuple(values["seeds"])})


# The values that tuning tries: around the defaults, which are good on the public convolution data.
GRID: Mapping[str, tuple[Any, ...]] = {
    "learning_rate": (0.05, 0.1, 0.15),
    "leaves": (7, 15, 31),
    "least_in_leaf": (10, 20, 40),
    "feature_share": (0.4, 0.6, 0.8),
    "row_share": (0.5, 0.7, 0.9),
    "l2": (0.0, 1.0, 10.0),
    "weight_power": (3.0, 6.0, 9.0),
}


def draw_variants(recipe: TrainingConfig, number: int, seed: int = 0) -> tuple[TrainingConfig, ...]:
    """The config itself and others drawn from the grid, `number` in all; deterministic for a seed."""
    every = list(itertools.product(*GRID.values()))
    drawn = np.random.default_rng(seed).permutation(len(every))
    made = [recipe, *(replace(recipe, **dict(zip(GRID, every[i], strict=True))) for i in drawn)]
    return tuple(dict.fromkeys(made))[: max(1, number)]
