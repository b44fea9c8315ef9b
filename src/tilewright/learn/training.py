"""Train trees from a data set and a training config, without access to the evaluation data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import InvalidValueError
from tilewright.base.events import Notice, emit, report_task
from tilewright.learn.dataset import Dataset, compute_medians, require_cost_model
from tilewright.learn.efficiency import evaluate_scores
from tilewright.learn.splits import make_folds, merge_near
from tilewright.learn.training_config import RANKER, TrainingConfig, draw_variants

# Lines of a tree that prediction reads. The others are training statistics (gains, weights, counts).
_TREE = (
    "num_leaves",
    "num_cat",
    "split_feature",
    "threshold",
    "decision_type",
    "left_child",
    "right_child",
    "leaf_value",
    "is_linear",
    "shrinkage",
)
# Sizes in bytes of the trees' texts: wrong after shortening, and not needed to read them one by one.
_HEAD_LESS = ("tree_sizes",)
_END = "end of trees"


def reduce_model_text(text: str) -> str:
    """The same model in about half the bytes: it still loads in LightGBM and predicts the same bits.

    Training parameters are left out, too: a bundle has them in its manifest, without those that depend on the machine.
    """
    body, _, _ = text.partition(f"\n{_END}")
    head, *trees = body.split("\nTree=")
    kept = [line for line in head.splitlines() if line.partition("=")[0] not in _HEAD_LESS]
    blocks = ["\n".join(kept).rstrip()]
    for tree in trees:
        number, *lines = tree.splitlines()
        wanted = [line for line in lines if line.partition("=")[0] in _TREE]
        blocks.append("\n".join([f"Tree={number}", *wanted]))
    return "\n\n".join([*blocks, _END]) + "\n"


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Below this many problems there is little to gain. On the public convolutions (13 kernels on gfx950) models of 5
# problems choose at 98.1 % of the best, of 40 at 98.7 %, of 184 at 99.3 %, and the estimate alone at 98.0 %; with
# single timings instead of medians it takes 20 to 40 problems to be as good as the estimate.
LEAST_PROBLEMS = 40
# Problems whose sizes differ by less than 3.5 % (2 to this power) are one problem to a model.
NEAR = 0.05
# Relevance of a ranker's rows: from 0 to this, the largest that LightGBM's own table of gains allows.
MOST_RELEVANT = 31


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained ensemble: one LightGBM text per seed, and its training parameters."""

    recipe: TrainingConfig
    rounds: int  # trees of each seed
    features: tuple[str, ...]
    features_version: int
    texts: tuple[str, ...]
    gain: Floats  # each feature's share of the gain of all splits

    @property
    def trees(self) -> int:
        return sum(text.count("\nTree=") for text in self.texts)


def group_near_problems(data: Dataset) -> Integers:
    """For each problem of a data set, the group that it shares with near duplicates."""
    return merge_near(data.points, NEAR)


def train(data: Dataset, recipe: TrainingConfig, *, tries: int = 1, few: bool = False) -> TrainedModel:
    """A model of all rows of a data set.

    With `tries` above 1, as many configs are compared by cross-validation inside the data, and the best one is used.
    Too few problems are an error, or a notice with `few`.
    """
    check_problems(data, few=few)
    return fit_model(data, recipe, tries=tries)


def fit_model(data: Dataset, recipe: TrainingConfig, *, tries: int = 1) -> TrainedModel:
    """A model of all rows, however few."""
    if tries > 1:
        recipe = tune_config(data, recipe, tries)
    rounds = find_best_rounds(data, recipe)
    boosters = [_train_booster(data, recipe, rounds, seed) for seed in recipe.seeds]
    gain = np.sum([booster.feature_importance("gain") for booster in boosters], axis=0)
    return TrainedModel(
        recipe=recipe,
        rounds=rounds,
        features=data.names,
        features_version=require_cost_model(data.op).features_version,
        texts=tuple(reduce_model_text(booster.model_to_string(num_iteration=rounds)) for booster in boosters),
        gain=gain / max(gain.sum(), 1e-300),
    )


def check_problems(data: Dataset, *, few: bool) -> None:
    """Reject too few problems, or warn that a model is not worth much."""
    problems = len(np.unique(data.problem))
    if problems >= LEAST_PROBLEMS:
        return
    fact = (
        f"there are {problems} problems of {data.op.name} on {data.arch.name}; below {LEAST_PROBLEMS} a learned model "
        "gains little over the estimate, and may choose worse"
    )
    if not few:
        raise InvalidValueError(f"{fact}. Measure more problems, or train anyway (few=True, --few).")
    emit(Notice(f"{fact}."))


def tune_config(data: Dataset, recipe: TrainingConfig, tries: int) -> TrainingConfig:
    """The config, out of `tries`, with the best choices in cross-validation inside the data."""
    found: list[tuple[float, TrainingConfig]] = []
    listed = draw_variants(recipe, tries)
    with report_task("tuning", len(listed)) as advance:
        for each in listed:
            _, scores = _cross_validate(data, each)
            found.append((evaluate_scores(data.problem, data.us, scores).mean, each))
            advance(f"{100 * found[-1][0]:.2f} %")
    return max(found, key=lambda pair: pair[0])[1]  # the first on a tie


def find_best_rounds(data: Dataset, recipe: TrainingConfig) -> int:
    """The number of rounds to train: where the loss on grouped folds inside the data is least."""
    return recipe.rounds if recipe.patience == 0 else _cross_validate(data, recipe)[0]


def predict(model: TrainedModel, data: Dataset) -> Floats:
    """The mean of the seeds' predictions for each row."""
    import lightgbm  # noqa: PLC0415

    boosters = [lightgbm.Booster(model_str=text) for text in model.texts]
    threads: dict[str, Any] = {"num_threads": model.recipe.threads}
    return np.asarray(np.mean([b.predict(data.features, **threads) for b in boosters], axis=0), np.float64)


def compute_scores(model: TrainedModel, data: Dataset) -> Floats:
    """The score of each row, lower is better: the same as the selector computes from a bundle of this model."""
    return to_scores(model.recipe, predict(model, data), data.estimate)


def to_scores(recipe: TrainingConfig, predictions: Floats, estimate: Floats) -> Floats:
    """Predictions as scores: log µs for a regressor, and negated for a ranker, whose best is the largest."""
    return -predictions if recipe.kind == RANKER else np.log(estimate) + predictions


def compute_target(data: Dataset) -> Floats:
    """log(time / estimate), less its median over the problem's rows: only the order is learned."""
    ratio = np.log(data.us / data.estimate)
    found = compute_medians(data.problem, ratio)
    return np.asarray(ratio - found.median[found.place], np.float64)


def _make_parameters(recipe: TrainingConfig, seed: int) -> dict[str, Any]:
    own = {
        "objective": "regression",
        "metric": "l2",
        "learning_rate": recipe.learning_rate,
        "num_leaves": recipe.leaves,
        "min_data_in_leaf": recipe.least_in_leaf,
        "feature_fraction": recipe.feature_share,
        "bagging_fraction": recipe.row_share,
        "bagging_freq": 0 if recipe.row_share == 1 else 1,
        "lambda_l2": recipe.l2,
        "seed": seed,
        "num_threads": recipe.threads,
        # Sums in one order, independent of the number of threads.
        "deterministic": True,
        "force_row_wise": True,
        # Features have no missing values, and the readers of our bundles do not support them.
        "use_missing": False,
        "verbose": -1,
    }
    if recipe.kind == RANKER:
        gains = list(range(MOST_RELEVANT + 1))  # linear: the relevance includes the power already
        own |= {"objective": "lambdarank", "metric": "ndcg", "eval_at": [1], "label_gain": gains}
    return own


def _make_lightgbm_data(data: Dataset, recipe: TrainingConfig) -> Any:
    """Rows in LightGBM's format. The rows of a problem are consecutive, as a ranker's queries must be."""
    import lightgbm  # noqa: PLC0415

    order = np.argsort(data.problem, kind="stable")
    share = (data.best / data.us) ** recipe.weight_power
    more: dict[str, Any]
    if recipe.kind == RANKER:
        _, queries = np.unique(data.problem, return_counts=True)
        label, more = np.rint(MOST_RELEVANT * share), {"group": queries}
    else:
        label, more = compute_target(data), {"weight": share[order]}
    return lightgbm.Dataset(
        data.features[order],
        label[order],
        feature_name=list(data.names),
        free_raw_data=False,
        params=_make_parameters(recipe, recipe.seeds[0]),
        **more,
    )


def _train_booster(data: Dataset, recipe: TrainingConfig, rounds: int, seed: int) -> Any:
    import lightgbm  # noqa: PLC0415

    return lightgbm.train(_make_parameters(recipe, seed), _make_lightgbm_data(data, recipe), rounds)


def _cross_validate(data: Dataset, recipe: TrainingConfig) -> tuple[int, Floats]:
    """The best number of rounds over grouped folds, and each row's score by the model without its fold."""
    import lightgbm  # noqa: PLC0415

    order = np.argsort(data.problem, kind="stable")
    groups = group_near_problems(data)[data.problem[order]]
    number = min(recipe.folds, len(np.unique(groups)))
    fold = make_folds(groups, number, recipe.seeds[0])
    parts = [(np.flatnonzero(fold != i), np.flatnonzero(fold == i)) for i in range(number)]
    stopping: list[Any] = [lightgbm.early_stopping(recipe.patience, verbose=False)] if recipe.patience else []
    result = lightgbm.cv(
        _make_parameters(recipe, recipe.seeds[0]),
        _make_lightgbm_data(data, recipe),
        recipe.rounds,
        folds=parts,
        return_cvbooster=True,
        callbacks=stopping,
    )
    made: Any = result["cvbooster"]
    rounds = made.best_iteration if recipe.patience and made.best_iteration > 0 else recipe.rounds
    predictions = np.empty(len(data))
    for booster, (_, test) in zip(made.boosters, parts, strict=True):
        rows = order[test]
        predictions[rows] = booster.predict(data.features[rows], num_iteration=rounds, num_threads=recipe.threads)
    return rounds, to_scores(recipe, predictions, data.estimate)
