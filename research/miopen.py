"""Choose among the solvers that MIOpen's find-db lists for a convolution on gfx90a.

The file lists at most the four fastest solvers, so every figure is *among listed solvers*. Solvers are whole
algorithms, not tiles: there is no estimate of ours for them, only trees that see the problem and the solver's name.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from research.boost import Floats, Progress, Trees, fit_predict, run_parallel
from research.miopen_data import FindDb, load
from research.table import Line, Remark, Target
from tilewright.arch import load as load_gpu
from tilewright.learn.efficiency import evaluate_random, evaluate_scores, score_by_mean, score_by_nearest
from tilewright.learn.splits import check_apart, make_folds, merge_near

DATA = "MIOpen gfx90a"
# Geometries whose sizes all differ by less than 19 % (2 to this power) count as one layer.
NEAR = 0.25
# The distance between different kinds, which are never neighbours.
APART = 100.0
TREES = Trees(rounds=250, leaves=255, rate=0.12, least_rows=20, columns=0.7)
BOUNDED = Trees(rounds=100, leaves=63, rate=0.15, least_rows=20, columns=0.7)
TARGETS = {"by problem": Target({"mean": 0.97, "p10": 0.88})}
# The share of families in a bounded run, and the shares of training families in a learning curve.
SAMPLE = 0.12
CURVE = (0.03, 0.1, 0.3, 1.0)


def run(bounded: bool) -> list[Line | Remark]:
    """Evaluate both splits with the baselines; `bounded` uses a fixed sample of the families."""
    say = Progress(DATA)
    db = load()
    family = find_families(db)
    found: list[Line | Remark] = [_make_excluded_remark(db)]
    kept = np.ones(len(db.problems), bool)
    if bounded:
        names = np.unique(family)
        kept = np.isin(family, names[np.random.default_rng(0).random(len(names)) < SAMPLE])
    data = f"{DATA}, {kept.sum():,} problems" + (" (sample)" if bounded else "")
    rows = kept[db.problem]
    found.append(Line(data, "none", "random", evaluate_random(db.problem[rows], db.us[rows])))
    for split, group in (("by problem", np.arange(len(family))), ("by family of geometries", family)):
        fold = np.full(len(family), -1)
        fold[kept] = make_folds(group[kept], 2, seed=7)
        for method, score in _compute_scores(db, fold, BOUNDED if bounded else TREES):
            result = evaluate_scores(db.problem[rows], db.us[rows], score[rows])
            target = TARGETS.get(split) if method == "LightGBM" and not bounded else None
            found.append(target.line(data, split, method, result) if target else Line(data, split, method, result))
            say(f"{split}, {method}: mean {result.mean:.4f}, P10 {result.p10:.4f}")
    return found


def find_families(db: FindDb) -> NDArray[np.int64]:
    """Find each problem's family: geometries that differ by less than 19 %, in any batch, type and direction."""
    return merge_near(make_geometry_points(db), NEAR)


def make_geometry_points(db: FindDb) -> Floats:
    """Make the points of geometries for distances: logarithms of sizes, with different kinds far apart."""
    sizes = [np.log2(db.field(name)) for name in ("c", "k", "d", "h", "w")]
    kinds = ("dims", "fd", "fh", "fw", "sd", "sh", "sw", "dd", "dh", "dw", "g")
    return np.column_stack(sizes + [APART * db.field(name) for name in kinds])


def check_split(db: FindDb, fold: NDArray[np.int64]) -> None:
    """Raise `LeakageError` unless every family is in one fold."""
    check_apart(make_geometry_points(db), fold, NEAR)


def _compute_scores(db: FindDb, fold: NDArray[np.int64], trees: Trees) -> list[tuple[str, Floats]]:
    """Score each row by each method; rows of problems without a fold keep 0."""
    rows = np.flatnonzero(fold[db.problem] >= 0)
    problem, solver, us, row_fold = (each[rows] for each in (db.problem, db.solver, db.us, fold[db.problem]))
    features = make_problem_features(db)
    near = score_by_nearest(problem, solver, us, row_fold, _make_neighbour_points(db), only_fastest=True)
    learned = np.zeros(len(rows))
    folds = np.unique(row_fold)
    tasks = [partial(_learn, db, features, rows[row_fold != each], rows[row_fold == each], trees) for each in folds]
    for each, predicted in zip(folds, run_parallel(tasks), strict=True):
        learned[row_fold == each] = predicted
    methods = {
        "one best solver": score_by_mean(problem, solver, us, row_fold),
        "nearest neighbour": near,
        "LightGBM": learned,
    }
    found = []
    for name, score in methods.items():
        whole = np.zeros(len(db.us))
        whole[rows] = score
        found.append((name, whole))
    return found


def _learn(
    db: FindDb, features: NDArray[np.float32], train: NDArray[np.int64], test: NDArray[np.int64], trees: Trees
) -> Floats:
    """Predict logarithms of times, centred in each problem, because only differences matter."""
    number = np.unique(db.problem[train], return_inverse=True)[1]
    log_us, count = np.log(db.us[train]), np.bincount(number)
    target = log_us - (np.bincount(number, log_us) / count)[number]
    best = np.full(len(count), np.inf)
    np.minimum.at(best, number, db.us[train])
    # Slow solvers have less weight: the model must only separate them from fast ones.
    weight = np.sqrt(best[number] / db.us[train])

    def columns(rows: NDArray[np.int64]) -> NDArray[np.float32]:
        extra = np.column_stack([db.solver[rows], np.log2(db.workspace[rows] + 1)])
        return np.hstack([features[db.problem[rows]], extra.astype(np.float32)])

    return fit_predict(trees, (columns(train), target, weight), columns(test), [features.shape[1]])


def make_problem_features(db: FindDb) -> NDArray[np.float32]:
    """Make the features of problems: sizes, the sizes of the implicit GEMM, and a roofline."""
    f = {name: db.field(name) for name in ("n", "c", "d", "h", "w", "k", "do", "ho", "wo", "fd", "fh", "fw", "g")}
    taps, places = f["fd"] * f["fh"] * f["fw"], f["do"] * f["ho"] * f["wo"]
    source = f["n"] * f["c"] * f["d"] * f["h"] * f["w"]
    result = f["n"] * f["k"] * places
    weights = f["k"] * f["c"] * taps / f["g"]
    macs = result * f["c"] * taps / f["g"]
    direction, out, depth, pixels = db.field("direction"), f["k"] / f["g"], f["c"] / f["g"] * taps, f["n"] * places
    m = np.where(direction == 1, depth, out)
    n = np.where(direction == 2, depth, pixels)
    k = np.select([direction == 0, direction == 1], [depth, out], pixels)
    gpu = load_gpu("gfx90a")
    single = db.field("dtype") == 0
    moved = (source + result + weights) * np.where(single, 4, 2)
    rate = np.where(single, gpu.peak_tflops["fp32"], gpu.peak_tflops["fp16"]) * 1e6
    roof = np.maximum(2 * macs / rate, moved / (gpu.memory.bandwidth_gbs * 1e3)) + gpu.compute.launch_us
    plain = [*f.values(), *(db.field(name) for name in ("direction", "dtype", "channels_last", "dims"))]
    plain += [db.field(name) for name in ("sd", "sh", "sw", "dh", "pd", "ph", "pw")]
    # Vector widths and tiles depend on divisibility.
    plain += [f["c"] % 32, f["k"] % 32, f["ho"] * f["wo"] % 32]
    tiles = np.ceil(m / 128) * np.ceil(n / 128)
    fill = m * n / (np.ceil(m / 64) * np.ceil(n / 64) * 64 * 64)
    logs = [f["c"] / f["g"], out, places, macs, macs / f["n"], moved, macs / moved, source, result, weights]
    logs += [source / result, m, n, k, tiles, fill, roof]
    return np.column_stack(plain + [np.log2(each) for each in logs]).astype(np.float32)


def _make_neighbour_points(db: FindDb) -> Floats:
    """Make the points for nearest neighbours: same direction, type, layout and kind, then similar sizes."""
    kinds = [APART * db.field(name) for name in ("direction", "dtype", "channels_last", "dims")]
    shape = [2 * db.field(name) for name in ("fd", "fh", "fw", "sh", "sw")]
    sizes = [np.log2(db.field(name)) for name in ("g", "n", "c", "k", "d", "h", "w", "ho", "wo")]
    return np.column_stack(kinds + shape + sizes)


def _make_excluded_remark(db: FindDb) -> Remark:
    return Remark(f"{DATA}: left out", ("what", "how many"), tuple((what, f"{many:,}") for what, many in db.left_out))


def make_curve() -> Remark:
    """Make the learning curve: an eighth of the families is evaluated, a growing share of the others is trained on."""
    say, db = Progress(DATA), load()
    family, features = find_families(db), make_problem_features(db)
    names = np.random.default_rng(7).permutation(family.max() + 1)
    judged, others = names[: len(names) // 8], names[len(names) // 8 :]
    test = np.flatnonzero(np.isin(family, judged)[db.problem])
    rows = []
    for share in CURVE:
        trained = np.isin(family, others[: round(share * len(others))])
        score = _learn(db, features, np.flatnonzero(trained[db.problem]), test, TREES)
        got = evaluate_scores(db.problem[test], db.us[test], score)
        rows.append((f"{trained.sum():,}", f"{100 * got.mean:.2f}", f"{100 * got.p10:.2f}"))
        say(f"curve, {trained.sum():,} problems: mean {got.mean:.4f}")
    return Remark(f"{DATA}: learning curve by family of geometries", ("training problems", "mean", "P10"), tuple(rows))
