"""Evaluate how well a training config or a bundle chooses on unseen problems, compared with baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import InvalidValueError
from tilewright.base.events import Notice, emit, report_task
from tilewright.learn.dataset import Dataset
from tilewright.learn.efficiency import (
    Efficiency,
    compute_efficiencies,
    evaluate_random,
    evaluate_scores,
    score_by_mean,
    score_by_nearest,
    score_randomly,
)
from tilewright.learn.splits import check_apart, compute_ward_clusters, make_folds
from tilewright.learn.training import (
    NEAR,
    TrainedModel,
    check_problems,
    compute_scores,
    fit_model,
    group_near_problems,
)
from tilewright.learn.training_config import TrainingConfig
from tilewright.select.bundle import RELEVANCE, Bundle

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LEARNED, ANALYTICAL = "learned", "analytical"
RANDOM, ONE_BEST, NEIGHBOUR = "random", "one best kernel", "nearest neighbour"
# The baselines need only times; the analytical model needs none.
METHODS = (LEARNED, ANALYTICAL, NEIGHBOUR, ONE_BEST, RANDOM)
UNSEEN = "Learned choices are made by models that have not seen the problem, nor one of nearly the same sizes."
FOLDS = 10
CLUSTERS = 20
SEED = 1


@dataclass(frozen=True, eq=False)
class Split:
    """The fold of each problem: a fold is evaluated by a model that was trained without it."""

    name: str
    doc: str
    fold: Integers

    def get_row_folds(self, data: Dataset) -> Integers:
        return self.fold[data.problem]


@dataclass(frozen=True, eq=False)
class SplitResult:
    """One split's figures by method, and the scores behind them."""

    split: Split
    figures: Mapping[str, Efficiency]
    scores: Mapping[str, Floats]  # of each row, lower is better

    def to_json(self) -> dict[str, Any]:
        figures = {name: found.to_json() for name, found in self.figures.items()}
        return {"split": self.split.doc, **figures}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The figures of a model's choices for each split, and those of the baselines."""

    data: Dataset
    subject: str  # the evaluated model
    seen: str  # what its models know about the problems that they are evaluated on
    judged: tuple[SplitResult, ...]
    gain: Mapping[str, float]  # each feature's share of the trees' total gain; empty if unknown

    def get_split(self, split: str) -> SplitResult:
        return next(each for each in self.judged if each.split.name == split)

    def to_json(self) -> dict[str, Any]:
        return {each.split.name: each.to_json() for each in self.judged}


def split_by_problem(data: Dataset, folds: int = FOLDS, seed: int = SEED) -> Split:
    """Folds of problems; near duplicates stay together."""
    groups = group_near_problems(data)
    number = min(folds, len(np.unique(groups)))
    fold = make_folds(groups, number, seed)
    check_apart(data.points, fold, NEAR)
    distinct = len(np.unique(groups))
    doc = f"{number} folds of {distinct} problems; sizes within {100 * (2**NEAR - 1):.1f} % count as one problem"
    return Split("by problem", doc, fold)


def split_by_cluster(data: Dataset, clusters: int = CLUSTERS, folds: int = FOLDS, seed: int = SEED) -> Split:
    """Folds of whole clusters of similar problems: Ward's linkage of the logarithms of their sizes."""
    groups = group_near_problems(data)
    count = min(clusters, len(np.unique(groups)))
    cluster = compute_ward_clusters(_compute_centres(data.points, groups), count)
    number = min(folds, count)
    fold = make_folds(cluster, number, seed)
    check_apart(data.points, fold, NEAR)
    axes = ", ".join(f"log2 {name}" for name in data.axes)
    doc = f"{number} folds of {count} whole clusters (Ward's linkage of {axes})"
    return Split("by cluster", doc, fold)


def _compute_centres(points: Floats, groups: Integers) -> Floats:
    """The centre of each problem's group: near duplicates share one point, and so one cluster."""
    count = np.bincount(groups)
    return np.stack([np.bincount(groups, axis) / count for axis in points.T], 1)[groups]


def make_default_splits(data: Dataset) -> tuple[Split, ...]:
    """By problem and by cluster."""
    return split_by_problem(data), split_by_cluster(data)


def evaluate_config(
    data: Dataset, recipe: TrainingConfig, splits: Sequence[Split] | None = None, *, tries: int = 1, few: bool = False
) -> Evaluation:
    """The figures of models trained with a config on each split; with `tries` every fold tunes its own."""
    check_problems(data, few=few)
    judged = []
    gains = []
    for split in splits if splits is not None else make_default_splits(data):
        found, models = predict_held_out(data, recipe, split, tries=tries)
        gains += [model.gain for model in models]
        judged.append(_evaluate_split(data, split, found))
    gain = dict(zip(data.names, np.mean(gains, axis=0).tolist(), strict=True))
    subject = f"{recipe.kind} of up to {recipe.rounds} rounds × {len(recipe.seeds)} seeds"
    return Evaluation(data, subject, UNSEEN, tuple(judged), gain)


def predict_held_out(
    data: Dataset, recipe: TrainingConfig, split: Split, *, tries: int = 1
) -> tuple[Floats, list[TrainedModel]]:
    """The score of every row by a model that was trained without its fold, and those models."""
    found = np.empty(len(data))
    models = []
    with report_task(f"folds {split.name}", len(np.unique(split.fold))) as advance:
        for fold in np.unique(split.fold):
            model = fit_model(data.select_problems(split.fold != fold), recipe, tries=tries)
            here = split.get_row_folds(data) == fold
            found[here] = compute_scores(model, data.select_problems(split.fold == fold))
            models.append(model)
            advance()
    return found, models


def evaluate_bundle(data: Dataset, bundle: Bundle) -> Evaluation:
    """The figures of a bundle on a table, with a warning if the bundle was trained on that table."""
    if (bundle.op, data.arch.name in bundle.archs) != (data.op.name, True):
        raise InvalidValueError(
            f"the bundle {bundle.name} is for {bundle.op} on {', '.join(bundle.archs)}, the rows are of "
            f"{data.op.name} on {data.arch.name}"
        )
    applies = np.array([bundle.applies(data.op.name, data.arch.name, each) for each in data.problems], bool)
    if not applies.any():
        raise InvalidValueError(f"the bundle {bundle.name} applies to none of the {len(data.problems)} problems")
    if not applies.all():
        emit(Notice(f"the bundle applies to {applies.sum():,} of {len(applies):,} problems; the others are left out."))
        data = data.select_problems(applies)
    seen = "It is unknown whether the bundle was trained on some of these problems."
    if bundle.training.get("data_digest") == data.digest:
        seen = "The bundle was trained on these very rows, so its own figures here are too good."
        emit(Notice(seen))
    prediction = np.mean([forest.predict(data.features) for forest in bundle.forests], axis=0)
    scores = -prediction if bundle.transform == RELEVANCE else np.log(data.estimate) + prediction
    folds = split_by_problem(data)
    doc = f"the bundle on {applies.sum()} problems; the baselines know the problems of other folds ({folds.doc})"
    judged = (_evaluate_split(data, Split("all problems", doc, folds.fold), scores),)
    return Evaluation(data, f"bundle {bundle.name}", seen, judged, bundle.training.get("importance", {}))


def _evaluate_split(data: Dataset, split: Split, learned: Floats) -> SplitResult:
    fold = split.get_row_folds(data)
    scores = {
        LEARNED: learned,
        ANALYTICAL: np.log(data.estimate),
        NEIGHBOUR: score_by_nearest(data.problem, data.kernel, data.us, fold, data.points),
        ONE_BEST: score_by_mean(data.problem, data.kernel, data.us, fold),
        RANDOM: score_randomly(len(data), SEED),
    }
    figures = {name: evaluate_scores(data.problem, data.us, score) for name, score in scores.items()}
    figures[RANDOM] = evaluate_random(data.problem, data.us)
    return SplitResult(split, figures, scores)


@dataclass(frozen=True)
class CurvePoint:
    """A point of a learning curve: mean efficiency with models of this many problems, and without a model."""

    problems: int
    learned: float
    analytical: float


def compute_learning_curve(
    data: Dataset, recipe: TrainingConfig, sizes: Sequence[int], *, repeats: int = 4, share: int = 5
) -> tuple[CurvePoint, ...]:
    """Means over `repeats` draws: models are trained on this many problems and evaluated on a `share`-th of all."""
    groups = group_near_problems(data)
    points = []
    with report_task("learning curve", len(sizes) * repeats) as advance:
        for size in sizes:
            found = []
            for draw in range(repeats):
                fold = make_folds(groups, share, SEED + draw)
                test, others = np.flatnonzero(fold == 0), np.flatnonzero(fold != 0)
                seen = np.random.default_rng(draw).permutation(others)[:size]
                found.append(_compute_means(data, recipe, seen, test))
                advance()
            learned, analytical = np.mean(found, axis=0)
            points.append(CurvePoint(min(size, len(others)), float(learned), float(analytical)))
    return tuple(points)


def _compute_means(data: Dataset, recipe: TrainingConfig, seen: Integers, test: Integers) -> tuple[float, float]:
    judged = data.select_problems(test)
    model = fit_model(data.select_problems(seen), recipe)
    learned, analytical = (
        float(compute_efficiencies(judged.problem, judged.us, scores).mean())
        for scores in (compute_scores(model, judged), np.log(judged.estimate))
    )
    return learned, analytical
