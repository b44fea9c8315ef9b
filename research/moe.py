"""Choose among kernels for fused mixture-of-experts: of all families, and of CK and CK Tile only.

A grouped GEMM is estimated as a batch of GEMMs of the mean size, one for each expert with rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from research.boost import Floats, Progress, Trees, fit_predict, run_parallel, select_training_rows
from research.foreign import estimate_columns, load_gpu, make_plain_tile, matrix_rate
from research.moe_data import BITS, STAGES, Candidates, has_enough, load
from research.table import Line, Remark, Target
from tilewright.learn.efficiency import Efficiency, evaluate_random, evaluate_scores, score_by_mean, score_by_nearest
from tilewright.learn.splits import check_apart
from tilewright.ops.cost_model import tiled

Integers = NDArray[np.int64]

DATA = "fused MoE"
LEAST = 5  # problems with fewer candidates are not evaluated
RESIDUAL = Trees(rounds=200, leaves=31, rate=0.06, least_rows=10, columns=0.6, rows=0.7)
SLOWDOWN = Trees(rounds=300, leaves=31, rate=0.05, least_rows=10, columns=0.8, shrink=0.0, seeds=(0, 1, 2))
ALL = Target({"mean": 0.94, "p10": 0.80})
CURVE = (2, 4, 8, 12)  # training configs, of 13
CK = Target({"mean": 0.990, "median": 1.0, "p10": 0.964})


@dataclass(frozen=True)
class Grouped:
    """Candidates as grouped GEMMs, with estimates of the cost model."""

    data: Candidates
    experts: Floats  # experts with rows
    rows: Floats  # rows of such an expert
    n: Floats
    k: Floats
    bits_a: Floats
    bits_b: Floats
    estimate: Floats
    seen: Mapping[str, Floats]  # features from the estimate


def make_grouped(data: Candidates) -> Grouped:
    """Compute the sizes and estimates of all candidates."""
    token, topk, expert = (data.numbers[name] for name in ("token", "topk", "expert"))
    # Rows go to random experts: this is the expected number of experts with rows.
    experts = np.maximum(1, expert * (1 - (1 - 1 / expert) ** (token * topk)))
    second = data.words["stage"] == "stage2"
    model, inter = data.numbers["model_dim"], data.numbers["inter_dim"]
    n, k = np.where(second, model, 2 * inter), np.where(second, inter, model)
    bits_a, bits_b = (np.array([BITS[word] for word in data.words[name]]) for name in ("q_dtype_a", "q_dtype_w"))
    sizes = {"m": token * topk / experts, "n": n, "k": k, "batch": experts}
    estimate, seen = _compute_estimates(data, sizes, bits_a, bits_b)
    return Grouped(data, experts, sizes["m"], n, k, bits_a, bits_b, estimate, seen)


def _compute_estimates(
    data: Candidates, sizes: Mapping[str, Floats], bits_a: Floats, bits_b: Floats
) -> tuple[Floats, dict[str, Floats]]:
    """Compute the estimate of each row and the features from it, for each GPU and pair of types."""
    us = np.empty(len(data.us))
    seen: dict[str, Floats] = {}
    kinds = np.column_stack([data.numbers["cu_num"], bits_a, bits_b])
    for kind in np.unique(kinds, axis=0):
        here, (units, wide_a, wide_b) = (kinds == kind).all(1), (int(each) for each in kind)
        arch = load_gpu(units)
        tile = {name: data.kernel[name][here] for name in ("block_m", "block_n", "block_k", "waves_m", "waves_n")}
        # Operands of different types are computed in the wider one.
        one = make_plain_tile(tile, float(wide_a), float(wide_b), matrix_rate(arch, max(wide_a, wide_b)))
        m, n, k, batch = (sizes[name][here] for name in ("m", "n", "k", "batch"))
        product = tiled.BatchedGemmSizes(
            m=m,
            n=n,
            k=k,
            batch=batch,
            split=data.kernel["split"][here],
            read_bytes=batch * k * (m * wide_a + n * wide_b) / 8,
            written_bytes=2 * batch * m * n,
        )
        estimate = tiled.estimate_problem(product, tiled.compute_loop_cost(one, arch), arch)
        us[here] = estimate.us
        for name, column in estimate_columns(estimate, m.shape).items():
            seen.setdefault(name, np.empty(len(us)))[here] = column
    return us, seen


def group_by_config(data: Candidates) -> Integers:
    """Group rows by model config.

    Top 4 of 128 experts and top 5 of 129 are the same model, without and with the expert that all rows share.
    """
    number, shared = data.numbers, data.numbers["expert"] == 129
    expert, topk = np.where(shared, 128, number["expert"]), np.where(shared, 4, number["topk"])
    return _number_groups(number["model_dim"], number["inter_dim"], expert, topk)


def group_by_config_and_scales(data: Candidates) -> Integers:
    """Group rows by config, kind of scales and shared expert, which is the usual split of this set.

    One model with several kinds of scales, or with and without its shared expert, is then on both sides.
    """
    sizes = (data.numbers[name] for name in ("model_dim", "inter_dim", "expert", "topk"))
    return _number_groups(*sizes, np.unique(data.words["q_type"], return_inverse=True)[1])


def _number_groups(*fields: NDArray[np.float64] | Integers) -> Integers:
    return np.unique(np.column_stack(fields), axis=0, return_inverse=True)[1].ravel()


MERGED, USUAL = "by config, near ones merged", "by config and scales"
SPLITS: Mapping[str, Callable[[Candidates], Integers]] = {
    MERGED: group_by_config,
    USUAL: group_by_config_and_scales,
}


def run(bounded: bool) -> list[Line | Remark]:
    """Evaluate all families and CK's own by both splits; `bounded` skips the easier split of all families."""
    say, every = Progress(DATA), load()
    found: list[Line | Remark] = [
        Remark(f"{DATA}: left out", ("what", "how many"), tuple((what, f"{many:,}") for what, many in every.left_out))
    ]
    whole = make_grouped(every.only(has_enough(every, LEAST, every.us)))
    ck = make_grouped(every.only(every.family("ck", "cktile") & has_enough(every, 2, every.us)))
    found += _make_lines(
        f"{DATA}, all families", whole, whole.data.us, [MERGED] if bounded else SPLITS, _make_all_lines
    )
    say("all families")
    found += _make_lines(f"{DATA}, CK and CK Tile", ck, _select_usable(ck.data), SPLITS, _make_ck_lines)
    say("CK and CK Tile")
    return found


def _make_lines(
    name: str,
    table: Grouped,
    us: Floats,
    splits: Iterable[str],
    learned: Callable[[str, Grouped, Floats, str, Integers], list[Line | Remark]],
) -> list[Line | Remark]:
    problem = table.data.problem
    found: list[Line | Remark] = [
        Line(name, "none", "random", evaluate_random(problem, us)),
        Line(name, "no training", "analytical", evaluate_scores(problem, us, table.estimate)),
    ]
    for split in splits:
        found += learned(name, table, us, split, SPLITS[split](table.data))
    return found


def _select_usable(data: Candidates) -> Floats:
    """Select the times to evaluate: correct results, in problems with enough of them."""
    return np.where(has_enough(data, LEAST, data.us_right), data.us_right, np.nan)


def _make_all_lines(name: str, table: Grouped, us: Floats, split: str, group: Integers) -> list[Line | Remark]:
    found = _make_baseline_lines(name, table, us, split, group)
    found.append(
        ALL.line(name, split, "LightGBM over analytical", _evaluate(table, us, learn_residual(table, group, RESIDUAL)))
    )
    return found


def _make_ck_lines(name: str, table: Grouped, us: Floats, split: str, group: Integers) -> list[Line | Remark]:
    """Train on runs with any error, whose times are valid, and evaluate usable kernels only."""
    found = _make_baseline_lines(name, table, us, split, group)
    trees = learn_slowdown(table, group, SLOWDOWN)
    found.append(
        Line(name, split, "LightGBM over analytical", _evaluate(table, us, learn_residual(table, group, RESIDUAL)))
    )
    found.append(Line(name, split, "LightGBM", _evaluate(table, us, trees)))
    both = trees + np.log(_score_neighbour(table, group))
    # The target figures are for this split, which has near duplicates on both sides.
    line = CK.line if split == USUAL else Line
    found.append(line(name, split, "LightGBM and neighbour", _evaluate(table, us, both)))
    return found


def _evaluate(table: Grouped, us: Floats, score: Floats) -> Efficiency:
    return evaluate_scores(table.data.problem, us, score)


def _make_baseline_lines(name: str, table: Grouped, us: Floats, split: str, group: Integers) -> list[Line | Remark]:
    data = table.data
    scores = {
        "one best kernel": score_by_mean(data.problem, data.name, data.us, group),
        "nearest neighbour": _score_neighbour(table, group),
    }
    return [Line(name, split, method, _evaluate(table, us, score)) for method, score in scores.items()]


def _score_neighbour(table: Grouped, group: Integers) -> Floats:
    """Score kernels by their slowdown in the nearest problem of another group."""
    data, rows = table.data, make_neighbour_points(table)
    points = np.zeros((data.problem.max() + 1, rows.shape[1]))
    points[data.problem] = rows
    return score_by_nearest(data.problem, data.name, data.us, group, points)


def make_neighbour_points(table: Grouped) -> Floats:
    """Make the points of problems for distances: logarithms of sizes, with stage, GPU and types far apart."""
    data = table.data
    sizes = [np.log2(each) for each in (data.numbers["token"], table.n, table.k, table.experts)]
    kinds = [table.bits_a / 2, table.bits_b / 2, 4 * (data.numbers["cu_num"] == 256)]
    return np.column_stack([*sizes, *kinds, *(8 * (data.words["stage"] == stage) for stage in STAGES[1:])])


def check_split(data: Candidates, group: Integers) -> None:
    """Raise `LeakageError` unless a config, with and without its shared expert, is in one group."""
    number = data.numbers
    sizes = np.log2(np.column_stack([number["model_dim"], number["inter_dim"], number["expert"]]))
    # One expert more than 128 is a distance of 0.011. The nearest other config has 1.5 times as many experts: 0.58.
    check_apart(sizes, group, 0.1)


def learn_residual(table: Grouped, group: Integers, trees: Trees, most: int | None = None) -> Floats:
    """Score rows by trees that correct the estimate, trained on at most `most` groups."""
    data = table.data
    log_us, log_estimate = np.log(data.us), np.log(table.estimate)
    best = _find_best(data)
    weight = best / data.us / np.sqrt(np.bincount(data.problem)[data.problem])
    target, features = _centre(data, log_us - log_estimate), make_residual_features(table)
    return log_estimate + _predict_held_out(features, target, weight / weight.mean(), group, trees, most)


def learn_slowdown(table: Grouped, group: Integers, trees: Trees) -> Floats:
    """Score rows by trees that predict log(time / best time) from fields, sizes and the estimate."""
    data, kernel = table.data, table.data.kernel
    words = [np.unique(data.words[name], return_inverse=True)[1] for name in ("stage", "act_type", "q_type")]
    numbers = ("token", "model_dim", "inter_dim", "expert", "topk", "cu_num", "block_m")
    names = ("family", "block_m", "block_n", "block_k", "threads", "waves_m", "waves_n", "pipeline", "per_unit")
    seen = [data.numbers[name] for name in numbers] + [kernel[name] for name in names] + words
    seen += [table.bits_a, table.bits_b, table.rows, np.ceil(table.rows / kernel["block_m"]), table.n, table.k]
    seen += [table.experts, _centre(data, np.log(table.estimate))]
    target = np.log(data.us / _find_best(data))
    return _predict_held_out(np.column_stack(seen).astype(np.float32), target, np.ones(len(target)), group, trees)


def make_residual_features(table: Grouped) -> NDArray[np.float32]:
    """Make features from estimate, kernel and problem, except n and k: they would identify the few configs."""
    data, kernel = table.data, table.data.kernel
    least = np.full(data.problem.max() + 1, np.inf)
    np.minimum.at(least, data.problem, table.estimate)
    out = table.rows * table.experts * table.n
    extra = [
        np.log2(table.estimate / least[data.problem]),
        np.log2(table.rows),
        np.ceil(table.rows / kernel["block_m"]),
        data.numbers["block_m"] / kernel["block_m"],
        np.log2(data.numbers["token"]),
        np.log2(out),
        np.log2(out / table.estimate),
        np.log2(kernel["block_m"] * kernel["block_n"]),
        np.log2(kernel["block_m"] * kernel["block_n"] / kernel["threads"]),
        table.bits_a,
        table.bits_b,
        data.numbers["cu_num"],
        np.array([STAGES.index(stage) for stage in data.words["stage"]]),
    ]
    return np.column_stack([*table.seen.values(), *kernel.values(), *extra]).astype(np.float32)


def _predict_held_out(
    features: NDArray[np.float32],
    target: Floats,
    weight: Floats,
    group: Integers,
    trees: Trees,
    most: int | None = None,
) -> Floats:
    def fold(each: int) -> Floats:
        train = select_training_rows(group, each, most)
        return fit_predict(trees, (features[train], target[train], weight[train]), features[group == each])

    groups = np.unique(group)
    score = np.zeros(len(target))
    for each, predicted in zip(groups, run_parallel([partial(fold, each) for each in groups]), strict=True):
        score[group == each] = predicted
    return score


def _find_best(data: Candidates) -> Floats:
    best = np.full(data.problem.max() + 1, np.inf)
    np.minimum.at(best, data.problem, data.us)
    return best[data.problem]


def _centre(data: Candidates, values: Floats) -> Floats:
    mean = np.bincount(data.problem, values) / np.bincount(data.problem)
    return values - mean[data.problem]


def make_curve() -> Remark:
    """Make the learning curve of all families by number of training configs."""
    every = load()
    table = make_grouped(every.only(has_enough(every, LEAST, every.us)))
    group, rows = group_by_config(table.data), []
    for most in CURVE:
        got = _evaluate(table, table.data.us, learn_residual(table, group, RESIDUAL, most))
        rows.append((str(most), f"{100 * got.mean:.1f}", f"{100 * got.p10:.1f}"))
    return Remark(f"{DATA}, all families: learning curve by config", ("training configs", "mean", "P10"), tuple(rows))
