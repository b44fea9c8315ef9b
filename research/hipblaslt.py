"""Choose among 6,410 Tensile kernels for 23 GEMMs on one die of an MI250X: a complete table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from research.boost import Floats, Progress, Trees, fit_predict, run_parallel, select_training_rows
from research.foreign import estimate_columns, make_tensile_tile
from research.hipblaslt_data import Sweep, load
from research.table import Line, Remark, Target
from tilewright.arch import load as load_gpu
from tilewright.learn.efficiency import Efficiency, evaluate_random, evaluate_scores, score_by_mean, score_by_nearest
from tilewright.learn.splits import check_apart, make_folds, merge_near
from tilewright.ops.cost_model import tiled

DATA = "hipBLASLt MI250X"
# A problem that is larger by half in any size is a different one.
NEAR = 0.6
# An n below this is one tile for every kernel, so it is ignored in distances.
SMALL_N = 16
# Slower kernels than this many times the best are treated equally in training.
SLOWEST = 6.0
# The share of rows for training: 6,410 kernels of few problems hardly differ.
ROWS = 0.3
TREES = Trees(rounds=150, leaves=31, rate=0.06, least_rows=40, columns=0.7, rows=0.7, shrink=5.0, seeds=(0, 1))
BOUNDED = Trees(rounds=60, leaves=31, rate=0.12, least_rows=40, columns=0.7, rows=0.7, shrink=5.0)
CURVE = (2, 4, 7, 14)  # training clusters, of 15
ANALYTICAL = Target({"mean": 0.85})
LEARNED = Target({"mean": 0.965, "p10": 0.92})


@dataclass(frozen=True)
class Table:
    """The sweep with estimates of the cost model, in arrays of problems × kernels."""

    sweep: Sweep
    estimate: Floats
    features: NDArray[np.float32]  # problems × kernels × features
    share: Floats  # efficiency
    target: Floats  # log(time / estimate), centred in each problem


def make_table() -> Table:
    """Compute the estimates and features of all pairs."""
    sweep, arch = load(), load_gpu("gfx90a")
    m, n, k = (sweep.problems[:, [axis]] for axis in range(3))
    sizes = tiled.BatchedGemmSizes(m=m, n=n, k=k, read_bytes=2 * (m + n) * k, written_bytes=2 * m * n)
    estimate = tiled.estimate_problem(
        sizes, tiled.compute_loop_cost(make_tensile_tile(sweep.kernels, arch), arch), arch
    )
    shape = sweep.us.shape
    seen = estimate_columns(estimate, shape) | {
        name: np.broadcast_to(each, shape) for name, each in sweep.kernels.items()
    }
    best = sweep.us.min(1, keepdims=True)
    share = best / sweep.us
    us = np.broadcast_to(estimate.us, shape)
    ratio = np.log(np.minimum(sweep.us, SLOWEST * best) / us)
    # Centred on the good kernels, which matter.
    target = ratio - np.average(ratio, axis=1, weights=share**3)[:, None]
    return Table(sweep, us, np.stack(list(seen.values()), 2).astype(np.float32), share, target)


def make_points(sweep: Sweep) -> Floats:
    """Make the problems' points for distances: logarithms of their sizes."""
    return np.log2(np.maximum(sweep.problems, [1, SMALL_N, 1]))


def find_clusters(sweep: Sweep) -> NDArray[np.int64]:
    """Find the cluster of near duplicates of each problem."""
    return merge_near(make_points(sweep), NEAR)


def run(bounded: bool) -> list[Line | Remark]:
    """Evaluate the analytical model, and the learned one by problem and by cluster; `bounded`: only by cluster."""
    say, data = Progress(DATA), make_table()
    sweep = data.sweep
    found: list[Line | Remark] = [
        Remark(f"{DATA}: left out", ("what", "how many"), tuple((what, f"{many:,}") for what, many in sweep.left_out)),
        Line(DATA, "none", "random", evaluate_random(_list_problems(sweep), sweep.us.ravel())),
        ANALYTICAL.line(DATA, "no training", "analytical", _evaluate(sweep, data.estimate)),
    ]
    cluster = find_clusters(sweep)
    splits = {
        "leave one problem out": np.arange(len(cluster)),
        f"leave one of {cluster.max() + 1} clusters out": cluster,
    }
    if bounded:
        splits.popitem()
        splits = {f"five folds of {cluster.max() + 1} clusters": make_folds(cluster, 5, seed=0)}
    for split, group in splits.items():
        for method, score in _score_baselines(sweep, group).items():
            found.append(Line(DATA, split, method, _evaluate(sweep, score)))
        result = _evaluate(sweep, learn_scores(data, group, BOUNDED if bounded else TREES))
        say(f"{split}: mean {result.mean:.4f}, P10 {result.p10:.4f}")
        found.append((Line if bounded else LEARNED.line)(DATA, split, "LightGBM over analytical", result))
    return found


def check_split(sweep: Sweep, group: NDArray[np.int64]) -> None:
    """Raise `LeakageError` unless near duplicates are in one group."""
    check_apart(make_points(sweep), group, NEAR)


def learn_scores(data: Table, group: NDArray[np.int64], trees: Trees, most: int | None = None) -> Floats:
    """Score each pair by a model that was trained on other groups, at most `most` of them."""
    score, generator = np.log(data.estimate), np.random.default_rng(0)
    groups = [(each, np.flatnonzero(group == each)) for each in np.unique(group)]
    tasks = []
    for each, test in groups:
        train = np.flatnonzero(select_training_rows(group, each, most))
        drawn = generator.random((len(train), score.shape[1])) < ROWS
        tasks.append(partial(_predict_fold, data, group, train, test, drawn, trees))
    for (_, test), predicted in zip(groups, run_parallel(tasks), strict=True):
        score[test] += predicted
    return score


def _predict_fold(
    data: Table,
    group: NDArray[np.int64],
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    drawn: NDArray[np.bool_],
    trees: Trees,
) -> Floats:
    off = mean_deviation(data, group, train, test)
    seen = np.concatenate([data.features, off[:, :, None].astype(np.float32)], 2)
    rows = seen[train][drawn], data.target[train][drawn], data.share[train][drawn] ** 2
    flat = fit_predict(trees, rows, seen[test].reshape(-1, seen.shape[2]))
    return flat.reshape(len(test), -1)


def mean_deviation(data: Table, group: NDArray[np.int64], train: NDArray[np.int64], test: NDArray[np.int64]) -> Floats:
    """Return the mean deviation of a kernel from its estimate in the training problems.

    A training row's own group is left out, so that trees do not overrate this feature.
    """
    weight = data.share[train] ** 2
    total, weights = (weight * data.target[train]).sum(0), weight.sum(0)
    off = np.zeros_like(data.target)
    off[test] = total / weights
    for own in np.unique(group[train]):
        rows = group[train] == own
        rest = weights - weight[rows].sum(0)
        off[train[rows]] = (total - (weight[rows] * data.target[train][rows]).sum(0)) / rest
    return off


def _score_baselines(sweep: Sweep, group: NDArray[np.int64]) -> dict[str, Floats]:
    problem, us = _list_problems(sweep), sweep.us.ravel()
    kernel = np.tile(np.arange(sweep.us.shape[1]), len(sweep.us))
    fold = group[problem]
    return {
        "one best kernel": score_by_mean(problem, kernel, us, fold),
        "nearest neighbour": score_by_nearest(problem, kernel, us, fold, np.log2(sweep.problems)),
    }


def _list_problems(sweep: Sweep) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(sweep.us)), sweep.us.shape[1])


def _evaluate(sweep: Sweep, score: Floats) -> Efficiency:
    return evaluate_scores(_list_problems(sweep), sweep.us.ravel(), score.ravel())


def make_curve() -> Remark:
    """Make the learning curve by number of training clusters, with fewer trees than in the table."""
    data = make_table()
    cluster, rows = find_clusters(data.sweep), []
    for most in CURVE:
        got = _evaluate(data.sweep, learn_scores(data, cluster, BOUNDED, most))
        rows.append((str(most), f"{100 * got.mean:.1f}", f"{100 * got.p10:.1f}"))
    return Remark(f"{DATA}: learning curve by cluster", ("training clusters", "mean", "P10"), tuple(rows))
