"""Choosing among kernels for fused mixture-of-experts: all families, and those of CK and CK Tile alone.

A grouped GEMM is estimated as a batch of products, one for each expert that has rows, all of the mean size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from research.boost import Floats, Progress, Trees, fit_predict, side_by_side, training_rows
from research.foreign import columns, gpu, plain_tile, rate
from research.moe_data import BITS, STAGES, Candidates, enough, load
from research.table import Line, Remark, Target
from tilewright.learn.baselines import score_by_mean, score_by_nearest
from tilewright.learn.efficiency import Efficiency, evaluate_random, evaluate_scores
from tilewright.learn.splits import check_apart
from tilewright.ops.cost_model import tiled

Integers = NDArray[np.int64]

DATA = "fused MoE"
LEAST = 5  # candidates of a problem that is judged
RESIDUAL = Trees(rounds=200, leaves=31, rate=0.06, least_rows=10, columns=0.6, rows=0.7)
SLOWDOWN = Trees(rounds=300, leaves=31, rate=0.05, least_rows=10, columns=0.8, shrink=0.0, seeds=(0, 1, 2))
ALL = Target({"mean": 0.94, "p10": 0.80})
CURVE = (2, 4, 8, 12)  # training configs, of 13
CK = Target({"mean": 0.990, "median": 1.0, "p10": 0.964})


@dataclass(frozen=True)
class Grouped:
    """Candidates as grouped GEMMs, with the estimates of the machine model."""

    data: Candidates
    experts: Floats  # that have rows
    rows: Floats  # of such an expert
    n: Floats
    k: Floats
    bits_a: Floats
    bits_b: Floats
    estimate: Floats
    seen: Mapping[str, Floats]  # what trees see of the estimate


def grouped(data: Candidates) -> Grouped:
    """Sizes and estimates of all candidates."""
    token, topk, expert = (data.numbers[name] for name in ("token", "topk", "expert"))
    # Each row goes to an expert by chance: how many experts have any, on average.
    experts = np.maximum(1, expert * (1 - (1 - 1 / expert) ** (token * topk)))
    second = data.words["stage"] == "stage2"
    model, inter = data.numbers["model_dim"], data.numbers["inter_dim"]
    n, k = np.where(second, model, 2 * inter), np.where(second, inter, model)
    bits_a, bits_b = (np.array([BITS[word] for word in data.words[name]]) for name in ("q_dtype_a", "q_dtype_w"))
    sizes = {"m": token * topk / experts, "n": n, "k": k, "batch": experts}
    estimate, seen = _estimates(data, sizes, bits_a, bits_b)
    return Grouped(data, experts, sizes["m"], n, k, bits_a, bits_b, estimate, seen)


def _estimates(
    data: Candidates, sizes: Mapping[str, Floats], bits_a: Floats, bits_b: Floats
) -> tuple[Floats, dict[str, Floats]]:
    """Of each row the estimate, and what trees see of it; made for each GPU and pair of types."""
    us = np.empty(len(data.us))
    seen: dict[str, Floats] = {}
    kinds = np.column_stack([data.numbers["cu_num"], bits_a, bits_b])
    for kind in np.unique(kinds, axis=0):
        here, (units, wide_a, wide_b) = (kinds == kind).all(1), (int(each) for each in kind)
        arch = gpu(units)
        tile = {name: data.kernel[name][here] for name in ("block_m", "block_n", "block_k", "waves_m", "waves_n")}
        # Operands of two types are computed in the wider one.
        one = plain_tile(tile, float(wide_a), float(wide_b), rate(arch, max(wide_a, wide_b)))
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
        for name, column in columns(estimate, m.shape).items():
            seen.setdefault(name, np.empty(len(us)))[here] = column
    return us, seen


def configs(data: Candidates) -> Integers:
    """Of each row its model config. 128 experts of which 4 are taken and 129 of which 5 are one model, without and with
    the expert that all rows share."""
    number, shared = data.numbers, data.numbers["expert"] == 129
    expert, topk = np.where(shared, 128, number["expert"]), np.where(shared, 4, number["topk"])
    return _groups(number["model_dim"], number["inter_dim"], expert, topk)


def configs_and_scales(data: Candidates) -> Integers:
    """Of each row its config with the kind of scales, the shared expert told apart: how the set is usually split.

    One model with several kinds of scales, or with and without its shared expert, is then on both sides.
    """
    sizes = (data.numbers[name] for name in ("model_dim", "inter_dim", "expert", "topk"))
    return _groups(*sizes, np.unique(data.words["q_type"], return_inverse=True)[1])


def _groups(*fields: NDArray[np.float64] | Integers) -> Integers:
    return np.unique(np.column_stack(fields), axis=0, return_inverse=True)[1].ravel()


MERGED, USUAL = "by config, near ones merged", "by config and scales"
SPLITS: Mapping[str, Callable[[Candidates], Integers]] = {
    MERGED: configs,
    USUAL: configs_and_scales,
}


def run(bounded: bool) -> list[Line | Remark]:
    """All families and CK's own, by both splits; `bounded` leaves out the easier split of all families."""
    say, every = Progress(DATA), load()
    found: list[Line | Remark] = [
        Remark(f"{DATA}: left out", ("what", "how many"), tuple((what, f"{many:,}") for what, many in every.left_out))
    ]
    whole = grouped(every.only(enough(every, LEAST, every.us)))
    ck = grouped(every.only(every.family("ck", "cktile") & enough(every, 2, every.us)))
    found += _lines(f"{DATA}, all families", whole, whole.data.us, [MERGED] if bounded else SPLITS, _all_lines)
    say("all families")
    found += _lines(f"{DATA}, CK and CK Tile", ck, _usable(ck.data), SPLITS, _ck_lines)
    say("CK and CK Tile")
    return found


def _lines(
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


def _usable(data: Candidates) -> Floats:
    """Times that are judged: right results, in problems with enough of them."""
    return np.where(enough(data, LEAST, data.us_right), data.us_right, np.nan)


def _all_lines(name: str, table: Grouped, us: Floats, split: str, group: Integers) -> list[Line | Remark]:
    found = _baseline_lines(name, table, us, split, group)
    found.append(
        ALL.line(name, split, "LightGBM over analytical", _judged(table, us, residual(table, group, RESIDUAL)))
    )
    return found


def _ck_lines(name: str, table: Grouped, us: Floats, split: str, group: Integers) -> list[Line | Remark]:
    """Trained on runs of any error: their times are as good. Judged on kernels that could be used."""
    found = _baseline_lines(name, table, us, split, group)
    trees = slowdown(table, group, SLOWDOWN)
    found.append(Line(name, split, "LightGBM over analytical", _judged(table, us, residual(table, group, RESIDUAL))))
    found.append(Line(name, split, "LightGBM", _judged(table, us, trees)))
    both = trees + np.log(_neighbour(table, group))
    # The figures to hold were taken with this split: near duplicates are on both sides.
    line = CK.line if split == USUAL else Line
    found.append(line(name, split, "LightGBM and neighbour", _judged(table, us, both)))
    return found


def _judged(table: Grouped, us: Floats, score: Floats) -> Efficiency:
    return evaluate_scores(table.data.problem, us, score)


def _baseline_lines(name: str, table: Grouped, us: Floats, split: str, group: Integers) -> list[Line | Remark]:
    data = table.data
    scores = {
        "one best kernel": score_by_mean(data.problem, data.name, data.us, group),
        "nearest neighbour": _neighbour(table, group),
    }
    return [Line(name, split, method, _judged(table, us, score)) for method, score in scores.items()]


def _neighbour(table: Grouped, group: Integers) -> Floats:
    """How much slower than the best a kernel was in the nearest problem of another group."""
    data, rows = table.data, neighbour_points(table)
    points = np.zeros((data.problem.max() + 1, rows.shape[1]))
    points[data.problem] = rows
    return score_by_nearest(data.problem, data.name, data.us, group, points)


def neighbour_points(table: Grouped) -> Floats:
    """Where a row's problem lies: sizes by their logarithm; stage, GPU and types far apart."""
    data = table.data
    sizes = [np.log2(each) for each in (data.numbers["token"], table.n, table.k, table.experts)]
    kinds = [table.bits_a / 2, table.bits_b / 2, 4 * (data.numbers["cu_num"] == 256)]
    return np.column_stack([*sizes, *kinds, *(8 * (data.words["stage"] == stage) for stage in STAGES[1:])])


def check(data: Candidates, group: Integers) -> None:
    """`LeakageError` unless a config, with and without its shared expert, is in one group."""
    number = data.numbers
    sizes = np.log2(np.column_stack([number["model_dim"], number["inter_dim"], number["expert"]]))
    # One expert more of 128 is 0.011. The nearest other config has half as many experts again: 0.58.
    check_apart(sizes, group, 0.1)


def residual(table: Grouped, group: Integers, trees: Trees, most: int | None = None) -> Floats:
    """Scores of trees that correct the estimate; trained on `most` groups at most."""
    data = table.data
    log_us, log_estimate = np.log(data.us), np.log(table.estimate)
    best = _best(data)
    weight = best / data.us / np.sqrt(np.bincount(data.problem)[data.problem])
    target, features = _centred(data, log_us - log_estimate), residual_features(table)
    return log_estimate + _held_out(features, target, weight / weight.mean(), group, trees, most)


def slowdown(table: Grouped, group: Integers, trees: Trees) -> Floats:
    """Scores of trees that predict log(time / best time) from fields and sizes, the estimate being one of them."""
    data, kernel = table.data, table.data.kernel
    words = [np.unique(data.words[name], return_inverse=True)[1] for name in ("stage", "act_type", "q_type")]
    numbers = ("token", "model_dim", "inter_dim", "expert", "topk", "cu_num", "block_m")
    names = ("family", "block_m", "block_n", "block_k", "threads", "waves_m", "waves_n", "pipeline", "per_unit")
    seen = [data.numbers[name] for name in numbers] + [kernel[name] for name in names] + words
    seen += [table.bits_a, table.bits_b, table.rows, np.ceil(table.rows / kernel["block_m"]), table.n, table.k]
    seen += [table.experts, _centred(data, np.log(table.estimate))]
    target = np.log(data.us / _best(data))
    return _held_out(np.column_stack(seen).astype(np.float32), target, np.ones(len(target)), group, trees)


def residual_features(table: Grouped) -> NDArray[np.float32]:
    """The estimate, the kernel, and what is known of the problem but n and k: of so few configs they are the names."""
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


def _held_out(
    features: NDArray[np.float32],
    target: Floats,
    weight: Floats,
    group: Integers,
    trees: Trees,
    most: int | None = None,
) -> Floats:
    def fold(each: int) -> Floats:
        train = training_rows(group, each, most)
        return fit_predict(trees, (features[train], target[train], weight[train]), features[group == each])

    groups = np.unique(group)
    score = np.zeros(len(target))
    for each, predicted in zip(groups, side_by_side([partial(fold, each) for each in groups]), strict=True):
        score[group == each] = predicted
    return score


def _best(data: Candidates) -> Floats:
    best = np.full(data.problem.max() + 1, np.inf)
    np.minimum.at(best, data.problem, data.us)
    return best[data.problem]


def _centred(data: Candidates, values: Floats) -> Floats:
    mean = np.bincount(data.problem, values) / np.bincount(data.problem)
    return values - mean[data.problem]


def curve() -> Remark:
    """Learning curve of all families: how many configs are trained on."""
    every = load()
    table = grouped(every.only(enough(every, LEAST, every.us)))
    group, rows = configs(table.data), []
    for most in CURVE:
        got = _judged(table, table.data.us, residual(table, group, RESIDUAL, most))
        rows.append((str(most), f"{100 * got.mean:.1f}", f"{100 * got.p10:.1f}"))
    return Remark(f"{DATA}, all families: learning curve by config", ("training configs", "mean", "P10"), tuple(rows))
