"""Evaluate how well a training config or a bundle chooses on unseen problems, compared with baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import InvalidValueError
from tilewright.base.events import Noticed, emit, task
from tilewright.learn import training
from tilewright.learn.baselines import nearest_neighbour, one_best_kernel, random_choice
from tilewright.learn.dataset import Dataset
from tilewright.learn.efficiency import Efficiency, efficiencies, judge, judge_random
from tilewright.learn.recipe import Recipe
from tilewright.learn.splits import check_apart, folds_by, ward_clusters
from tilewright.learn.training import NEAR, Model, fitted, near_groups
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

    def of_rows(self, data: Dataset) -> Integers:
        return self.fold[data.problem]


@dataclass(frozen=True, eq=False)
class Judged:
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
    judged: tuple[Judged, ...]
    gain: Mapping[str, float]  # each feature's share of the trees' total gain; empty if unknown

    def by_name(self, split: str) -> Judged:
        return next(each for each in self.judged if each.split.name == split)

    def to_json(self) -> dict[str, Any]:
        return {each.split.name: each.to_json() for each in self.judged}


def by_problem(data: Dataset, folds: int = FOLDS, seed: int = SEED) -> Split:
    """Folds of problems; near duplicates stay together."""
    groups = near_groups(data)
    number = min(folds, len(np.unique(groups)))
    fold = folds_by(groups, number, seed)
    check_apart(data.points, fold, NEAR)
    distinct = len(np.unique(groups))
    doc = f"{number} folds of {distinct} problems; sizes within {100 * (2**NEAR - 1):.1f} % count as one problem"
    return Split("by problem", doc, fold)


def by_cluster(data: Dataset, clusters: int = CLUSTERS, folds: int = FOLDS, seed: int = SEED) -> Split:
    """Folds of whole clusters of similar problems: Ward's linkage of the logarithms of their sizes."""
    groups = near_groups(data)
    count = min(clusters, len(np.unique(groups)))
    cluster = ward_clusters(_centres(data.points, groups), count)
    number = min(folds, count)
    fold = folds_by(cluster, number, seed)
    check_apart(data.points, fold, NEAR)
    axes = ", ".join(f"log2 {name}" for name in data.axes)
    doc = f"{number} folds of {count} whole clusters (Ward's linkage of {axes})"
    return Split("by cluster", doc, fold)


def _centres(points: Floats, groups: Integers) -> Floats:
    """The centre of each problem's group: near duplicates share one point, and so one cluster."""
    count = np.bincount(groups)
    return np.stack([np.bincount(groups, axis) / count for axis in points.T], 1)[groups]


def default_splits(data: Dataset) -> tuple[Split, ...]:
    """By problem and by cluster."""
    return by_problem(data), by_cluster(data)


def evaluate_recipe(
    data: Dataset, recipe: Recipe, splits: Sequence[Split] | None = None, *, tries: int = 1, few: bool = False
) -> Evaluation:
    """The figures of models trained with a config on each split; with `tries` every fold tunes its own."""
    training.check_problems(data, few=few)
    judged = []
    gains = []
    for split in splits if splits is not None else default_splits(data):
        found, models = held_out(data, recipe, split, tries=tries)
        gains += [model.gain for model in models]
        judged.append(_judged(data, split, found))
    gain = dict(zip(data.names, np.mean(gains, axis=0).tolist(), strict=True))
    subject = f"{recipe.kind} of up to {recipe.rounds} rounds × {len(recipe.seeds)} seeds"
    return Evaluation(data, subject, UNSEEN, tuple(judged), gain)


def held_out(data: Dataset, recipe: Recipe, split: Split, *, tries: int = 1) -> tuple[Floats, list[Model]]:
    """The score of every row by a model that was trained without its fold, and those models."""
    found = np.empty(len(data))
    models = []
    with task(f"folds {split.name}", len(np.unique(split.fold))) as advance:
        for fold in np.unique(split.fold):
            model = fitted(data.kept(split.fold != fold), recipe, tries=tries)
            here = split.of_rows(data) == fold
            found[here] = training.scores(model, data.kept(split.fold == fold))
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
        emit(Noticed(f"the bundle applies to {applies.sum():,} of {len(applies):,} problems; the others are left out."))
        data = data.kept(applies)
    seen = "It is unknown whether the bundle was trained on some of these problems."
    if bundle.training.get("data_digest") == data.digest:
        seen = "The bundle was trained on these very rows, so its own figures here are too good."
        emit(Noticed(seen))
    prediction = np.mean([forest.predict(data.features) for forest in bundle.forests], axis=0)
    scores = -prediction if bundle.transform == RELEVANCE else np.log(data.estimate) + prediction
    folds = by_problem(data)
    doc = f"the bundle on {applies.sum()} problems; the baselines know the problems of other folds ({folds.doc})"
    judged = (_judged(data, Split("all problems", doc, folds.fold), scores),)
    return Evaluation(data, f"bundle {bundle.name}", seen, judged, bundle.training.get("importance", {}))


def _judged(data: Dataset, split: Split, learned: Floats) -> Judged:
    fold = split.of_rows(data)
    scores = {
        LEARNED: learned,
        ANALYTICAL: np.log(data.estimate),
        NEIGHBOUR: nearest_neighbour(data.problem, data.kernel, data.us, fold, data.points),
        ONE_BEST: one_best_kernel(data.problem, data.kernel, data.us, fold),
        RANDOM: random_choice(len(data), SEED),
    }
    figures = {name: judge(data.problem, data.us, score) for name, score in scores.items()}
    figures[RANDOM] = judge_random(data.problem, data.us)
    return Judged(split, figures, scores)


@dataclass(frozen=True)
class Point:
    """A point of a learning curve: mean efficiency with models of this many problems, and without a model."""

    problems: int
    learned: float
    analytical: float


def learning_curve(
    data: Dataset, recipe: Recipe, sizes: Sequence[int], *, repeats: int = 4, share: int = 5
) -> tuple[Point, ...]:
    """Means over `repeats` draws: models are trained on this many problems and evaluated on a `share`-th of all."""
    groups = near_groups(data)
    points = []
    with task("learning curve", len(sizes) * repeats) as advance:
        for size in sizes:
            found = []
            for draw in range(repeats):
                fold = folds_by(groups, share, SEED + draw)
                test, others = np.flatnonzero(fold == 0), np.flatnonzero(fold != 0)
                seen = np.random.default_rng(draw).permutation(others)[:size]
                found.append(_means(data, recipe, seen, test))
                advance()
            learned, analytical = np.mean(found, axis=0)
            points.append(Point(min(size, len(others)), float(learned), float(analytical)))
    return tuple(points)


def _means(data: Dataset, recipe: Recipe, seen: Integers, test: Integers) -> tuple[float, float]:
    judged = data.kept(test)
    model = fitted(data.kept(seen), recipe)
    learned, analytical = (
        float(efficiencies(judged.problem, judged.us, scores).mean())
        for scores in (training.scores(model, judged), np.log(judged.estimate))
    )
    return learned, analytical
