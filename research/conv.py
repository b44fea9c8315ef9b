"""Choose among CK Tile's forward convolutions on gfx950: the set for which AMD published its own model.

Its 30 labels are 13 kernels (see `conv_data`), so it is evaluated twice. By label, to compare with AMD's figures: each
label is a separate choice, and the fastest of 30 single timings is the best. Two labels of one kernel differ by noise
and by the order of measuring, which a model can learn from the label. By kernel, with the median of a kernel's timings:
as users of our kernels see it, and as the shipped bundle is trained.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from research.boost import Progress
from research.conv_data import Floats, Labelled, load
from research.table import Line, Remark, Target
from tilewright.learn import evaluation
from tilewright.learn.dataset import Dataset
from tilewright.learn.efficiency import (
    Efficiency,
    compute_efficiencies,
    evaluate_random,
    evaluate_scores,
    score_by_mean,
    score_by_nearest,
)
from tilewright.learn.evaluation import Split
from tilewright.learn.training import fit_model, predict
from tilewright.learn.training_config import TrainingConfig

DATA = "CK Tile conv gfx950"
LABELS = TrainingConfig(rounds=200, learning_rate=0.05, patience=0, seeds=(0, 1, 2))
# The training config of the shipped bundle.
KERNELS = TrainingConfig(rounds=150, learning_rate=0.1, patience=0, seeds=(0, 1))
ANALYTICAL = Target({"mean": 0.931})
BY_PROBLEM = Target({"mean": 0.985, "p10": 0.95})
BY_CLUSTER = Target({"mean": 0.965})
PUBLISHED = ("93.05", "96.80", "79.21", "21.6", "70.6")
# Breaks ties between rows of one kernel.
TIE = 1e-9
CURVE = (5, 10, 20, 40, 80, 184)


def run(bounded: bool) -> list[Line | Remark]:
    """Evaluate analytical and learned choices, by label and by kernel; `bounded` trains one seed instead of three."""
    say, data = Progress(DATA), load()
    found: list[Line | Remark] = [
        Remark("AMD's own model on the same 231 problems", ("mean", "median", "P10", "top-1", "top-5"), (PUBLISHED,)),
        *_evaluate_untrained(data),
    ]
    labels, kernels = (replace(each, seeds=(0,)) if bounded else each for each in (LABELS, KERNELS))
    for split, target in ((evaluation.split_by_problem, BY_PROBLEM), (evaluation.split_by_cluster, BY_CLUSTER)):
        found += _evaluate_by_label(data, split(data.by_label), labels, target)
        say(f"labels, {split(data.by_label).name}")
        found += _evaluate_by_kernel(data, split(data.data), kernels)
    if not bounded:
        found += [
            *_evaluate_other_splits(data),
            _measure_noise(data),
            _make_curve(data.data, kernels),
            _evaluate_unseen_kernels(data.data, kernels),
        ]
    return found


def evaluate_labels(data: Labelled, split: str, method: str, scores: Floats, target: Target | None) -> list[Line]:
    """Evaluate all 231 problems and the 167 plausible ones; equal scores keep the order of labels."""
    lines = []
    for name, rows in (("231", np.ones(len(data.us), bool)), ("167", data.plausible[data.problem])):
        result = evaluate_scores(data.problem[rows], data.us[rows], scores[rows], data.label[rows])
        title = f"{DATA}, 30 labels, {name}"
        made = Line(title, split, method, result) if target is None else target.line(title, split, method, result)
        lines.append(made)
    return lines


def _evaluate_untrained(data: Labelled) -> list[Line]:
    """Evaluate random choices and the analytical one, with each of a kernel's two labels, and among kernels."""
    estimate = np.log(data.data.estimate)
    lines = []
    for name, rows in (("231", np.ones(len(data.us), bool)), ("167", data.plausible[data.problem])):
        lines.append(
            Line(f"{DATA}, 30 labels, {name}", "none", "random", evaluate_random(data.problem[rows], data.us[rows]))
        )
    for pipeline in ("compv5", "compv3"):
        scores = estimate[data.pair] - TIE * _has_pipeline(data, pipeline)
        lines += evaluate_labels(data, "no training", f"analytical, ties to {pipeline}", scores, ANALYTICAL)
    lines.append(ANALYTICAL.line(f"{DATA}, 13 kernels", "no training", "analytical", _judge(data.data, estimate)))
    return lines


def _evaluate_by_label(data: Labelled, split: Split, recipe: TrainingConfig, target: Target) -> list[Line]:
    fold = split.get_row_folds(data.by_label)
    points = data.by_label.points[data.by_label.problem[np.unique(data.problem, return_index=True)[1]]]
    one = score_by_mean(data.problem, data.label, data.us, fold)
    near = score_by_nearest(data.problem, data.label, data.us, fold, points)
    learned, _ = evaluation.predict_held_out(data.by_label, recipe, split)
    return [
        *evaluate_labels(data, split.name, "one best label", one, None),
        *evaluate_labels(data, split.name, "nearest neighbour", near, None),
        *evaluate_labels(data, split.name, "learned", learned, target),
    ]


def _evaluate_by_kernel(data: Labelled, split: Split, recipe: TrainingConfig) -> list[Line]:
    """Evaluate choices among kernels, and the same choices among labels, with the label compv5 of a kernel."""
    found = evaluation.evaluate_config(data.data, recipe, [split]).judged[0]
    names = [name for name in reversed(evaluation.METHODS) if name != evaluation.ANALYTICAL]
    lines = [Line(f"{DATA}, 13 kernels", split.name, name, found.figures[name]) for name in names]
    scores = found.scores[evaluation.LEARNED][data.pair] - TIE * _has_pipeline(data, "compv5")
    return [*lines, *evaluate_labels(data, split.name, "learned among kernels, run as compv5", scores, None)]


def _has_pipeline(data: Labelled, pipeline: str) -> NDArray[np.bool_]:
    """For each row, whether its label names this pipeline."""
    return np.array([label[3] == pipeline for label in data.labels])[data.label]


def _evaluate_other_splits(data: Labelled) -> list[Line]:
    """Evaluate other random folds, and few large clusters, of which one is left out at a time."""
    splits = {f"by problem, draw {seed}": evaluation.split_by_problem(data.by_label, seed=seed) for seed in (2, 3)}
    splits["by cluster, 8, one out"] = evaluation.split_by_cluster(data.by_label, clusters=8, folds=8)
    lines = []
    for name, split in splits.items():
        learned, _ = evaluation.predict_held_out(data.by_label, LABELS, split)
        target = BY_CLUSTER if split.name == "by cluster" else BY_PROBLEM
        lines += evaluate_labels(data, name, "learned", learned, target)
    return lines


def _measure_noise(data: Labelled) -> Remark:
    """Evaluate the truly best kernel among labels, and the choice by one measurement of each."""
    best = np.full(len(data.data.problems), np.inf)
    np.minimum.at(best, data.data.problem, data.data.us)
    right = data.data.us == best[data.data.problem]
    rows = []
    for pipeline, other in (("compv5", "compv3"), ("compv3", "compv5")):
        scores = np.where(right[data.pair], 0.0, 1.0) - TIE * _has_pipeline(data, pipeline)
        rows.append((f"best kernel by its median, {pipeline} of it", *_format_two(data, scores)))
        once = np.full(len(data.us), np.inf)
        measured = {(p, k): us for p, k, us, name in _list_named(data) if name == other}
        for i, (p, k, _, name) in enumerate(_list_named(data)):
            if name == pipeline:
                once[i] = measured[p, k]
        rows.append((f"chosen by one timing ({other}), run as {pipeline}", *_format_two(data, once)))
    return Remark("What noise leaves to reach among 30 labels, 231 problems", ("choice", "mean", "P10"), tuple(rows))


def _list_named(data: Labelled) -> list[tuple[int, int, float, str]]:
    kernel = data.by_label.kernel
    return [
        (int(data.problem[i]), int(kernel[i]), float(data.us[i]), data.labels[data.label[i]][3])
        for i in range(len(data.us))
    ]


def _format_two(data: Labelled, scores: Floats) -> tuple[str, str]:
    each = compute_efficiencies(data.problem, data.us, scores)
    return f"{100 * each.mean():.2f}", f"{100 * np.percentile(each, 10):.2f}"


def _make_curve(data: Dataset, recipe: TrainingConfig) -> Remark:
    points = evaluation.compute_learning_curve(data, replace(recipe, seeds=(0,)), CURVE)
    rows = tuple((str(p.problems), f"{100 * p.learned:.2f}", f"{100 * p.analytical:.2f}") for p in points)
    return Remark("Learning curve among 13 kernels (mean)", ("problems trained on", "learned", "analytical"), rows)


def _evaluate_unseen_kernels(data: Dataset, recipe: TrainingConfig) -> Remark:
    """Evaluate models on kernels that were left out of training: can a bundle rank kernels that it has not seen?"""
    alone = [_evaluate_without(data, recipe, [kernel]) for kernel in range(len(data.kernels))]
    rows = [
        ("one kernel, mean over all", "1", f"{np.mean(alone):.2f}"),
        ("one kernel, worst", "1", f"{min(alone):.2f}"),
    ]
    fields = [{"m": k.config.block.m, "n": k.config.block.n, "k": k.config.block.k} for k in data.kernels]  # type: ignore[attr-defined]
    for axis in "mnk":
        for size in sorted({own[axis] for own in fields}):
            members = [i for i, own in enumerate(fields) if own[axis] == size]
            rows.append(
                (f"block {axis} = {size}", str(len(members)), f"{_evaluate_without(data, recipe, members):.2f}")
            )
    rows.append(("none, analytical", "0", f"{100 * _judge(data, np.log(data.estimate)).mean:.2f}"))
    columns = ("never seen in training", "kernels", "mean of the choices among all 13")
    return Remark("Kernels that a model has not seen", columns, tuple(rows))


def _evaluate_without(data: Dataset, recipe: TrainingConfig, kernels: list[int]) -> float:
    """Return the mean efficiency, in per cent, of models trained without some kernels, for choices among all."""
    split, scores, unseen = (
        evaluation.split_by_problem(data, folds=5),
        np.log(data.estimate),
        np.isin(data.kernel, kernels),
    )
    for fold in np.unique(split.fold):
        test = split.get_row_folds(data) == fold
        model = fit_model(data.select_rows(~test & ~unseen), replace(recipe, seeds=(0,)))
        scores[test] += predict(model, data.select_rows(test))
    return 100 * _judge(data, scores).mean


def _judge(data: Dataset, scores: Floats) -> Efficiency:
    return evaluate_scores(data.problem, data.us, scores, data.kernel)
