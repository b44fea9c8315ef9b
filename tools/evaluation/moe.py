"""Choosing among kernels for fused mixture-of-experts: all families, and those of CK and CK Tile alone.

A grouped GEMM is estimated as a batch of products, one for each expert that has rows, all of the mean size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from evaluation.boost import Floats, Progress, Trees, fit_predict, side_by_side
from evaluation.foreign import columns, gpu, plain_tile, rate
from evaluation.moe_data import BITS, STAGES, Candidates, enough, load
from evaluation.table import Line, Remark, Target
from tilewright.learn.baselines import nearest_neighbour, one_best_kernel
from tilewright.learn.efficiency import Efficiency, judge, judge_random
from tilewright.learn.splits import check_apart
from tilewright.ops.machine import tiled

Integers = NDArray[np.int64]

DATA = "fused MoE"
LEAST = 5  # candidates of a problem that is judged
RESIDUAL = Trees(rounds=200, leaves=31, rate=0.06, least_rows=10, columns=0.6, rows=0.7)
PLAIN = Trees(rounds=300, leaves=31, rate=0.05, least_rows=10, columns=0.8, shrink=0.0, seeds=(0, 1, 2))
ALL = Target({"mean": 0.94, "p10": 0.80})
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
    us = np.empty(len(data.us))
    seen: dict[str, Floats] = {}
    for units in np.unique(data.numbers["cu_num"]):
        for bits in np.unique(bits_b):
            here = (data.numbers["cu_num"] == units) & (bits_b == bits)
            if not here.any():
                continue
            arch = gpu(int(units))
            tile = {name: data.kernel[name][here] for name in ("block_m", "block_n", "block_k", "waves_m", "waves_n")}
            m, n, k, batch = (sizes[name][here] for name in ("m", "n", "k", "batch"))
            # Operands of two types are computed in the wider one.
            wider = int(max(bits, bits_a[here].min()))
            pace = tiled.pace(plain_tile(tile, bits_a[here], bits_b[here], rate(arch, wider)), arch)
            read = batch * k * (m * bits_a[here] + n * bits_b[here]) / 8
            product = tiled.Sizes(
                m=m,
                n=n,
                k=k,
                batch=batch,
                split=data.kernel["split"][here],
                read_bytes=read,
                written_bytes=2 * batch * m * n,
            )
            estimate = tiled.estimate(product, pace, arch)
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


SPLITS: Mapping[str, Callable[[Candidates], Integers]] = {
    "by config": configs,
    "by config and scales": configs_and_scales,
}


def run(bounded: bool) -> list[Line | Remark]:
    """All families and CK's own, by both splits; `bounded` leaves out the easier split of all families."""
    say, every = Progress(DATA), load()
    found: list[Line | Remark] = [
        Remark(f"{DATA}: left out", ("what", "how many"), tuple((what, f"{many:,}") for what, many in every.left_out))
    ]
    whole = grouped(every.only(enough(every, LEAST, every.us)))
    ck = grouped(every.only(every.family("ck", "cktile") & enough(every, 2, every.us)))
    for data, us, lines in (("all families", whole.data.us, _all_lines), ("CK and CK Tile", None, _ck_lines)):
        table = whole if us is not None else ck
        judged = table.data.us if us is not None else _usable(table.data)
        name = f"{DATA}, {data}"
        problem = table.data.problem
        found.append(Line(name, "none", "random", judge_random(problem, judged)))
        found.append(Line(name, "no training", "analytical", judge(problem, judged, table.estimate)))
        for split, group in SPLITS.items():
            if bounded and split != "by config" and data == "all families":
                continue
            found += lines(name, table, judged, split, group(table.data))
            say(f"{data}, {split}")
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
    plain, over = plain_fields(table, group, PLAIN), residual(table, group, RESIDUAL)
    found.append(Line(name, split, "LightGBM over analytical", _judged(table, us, over)))
    found.append(CK.line(name, split, "LightGBM, plain fields", _judged(table, us, plain)))
    both = _centred(table.data, plain) + _centred(table.data, over)
    found.append(Line(name, split, "mean of both", _judged(table, us, both)))
    return found


def _judged(table: Grouped, us: Floats, score: Floats) -> Efficiency:
    return judge(table.data.problem, us, score)


def _baseline_lines(name: str, table: Grouped, us: Floats, split: str, group: Integers) -> list[Line | Remark]:
    data = table.data
    points = np.zeros((data.problem.max() + 1, 9))
    points[data.problem] = neighbour_points(table)
    scores = {
        "one best kernel": one_best_kernel(data.problem, data.name, data.us, group),
        "nearest neighbour": nearest_neighbour(data.problem, data.name, data.us, group, points),
    }
    return [Line(name, split, method, _judged(table, us, score)) for method, score in scores.items()]


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
    # One expert more of 128 is 0.011; the nearest other config differs by half as much again in some size.
    check_apart(sizes, group, 0.1)


def residual(table: Grouped, group: Integers, trees: Trees) -> Floats:
    """Scores of trees that correct the estimate."""
    data = table.data
    log_us, log_estimate = np.log(data.us), np.log(table.estimate)
    best = _best(data)
    weight = best / data.us / np.sqrt(np.bincount(data.problem)[data.problem])
    score = _held_out(
        residual_features(table), _centred(data, log_us - log_estimate), weight / weight.mean(), group, trees
    )
    return log_estimate + score


def plain_fields(table: Grouped, group: Integers, trees: Trees) -> Floats:
    """Scores of trees that see the fields of problem and kernel as they are, and no estimate."""
    data = table.data
    words = [np.unique(data.words[name], return_inverse=True)[1] for name in ("stage", "act_type", "q_type")]
    names = ("token", "model_dim", "inter_dim", "expert", "topk", "cu_num", "block_m")
    kernel = ("family", "block_m", "block_n", "block_k", "threads", "waves_m", "waves_n", "pipeline", "per_unit")
    seen = [data.numbers[name] for name in names] + [data.kernel[name] for name in kernel]
    features = np.column_stack([*seen, table.bits_a, table.bits_b, *words]).astype(np.float32)
    slowdown = np.log(data.us / _best(data))
    return _held_out(features, slowdown, np.ones(len(slowdown)), group, trees)


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


def _held_out(features: NDArray[np.float32], target: Floats, weight: Floats, group: Integers, trees: Trees) -> Floats:
    def fold(each: int) -> Floats:
        train = group != each
        return fit_predict(trees, (features[train], target[train], weight[train]), features[~train])

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
