"""Draw the figures in docs/selection.md: `python -m research.plot_selection [NAME …]`.

The first figure needs only the package. The others need the public measurements in ../shared/data.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from tilewright import arch as archs
from tilewright.learn.plots import COLOURS, create_figure, save_figure
from tilewright.ops import find_op
from tilewright.ops.cost_model.cost import Estimate
from tilewright.select.portfolio import choose_portfolio, evaluate_portfolio

Floats = NDArray[np.float64]

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"

# The GEMM of the first figure: C (m×4096) = A (m×4096) · B (4096×4096) in fp16 on an MI300X.
GPU = "gfx942"
SIDE = 4096
GEMM = {"variant": "standard", "dtype_a": "fp16", "dtype_b": "fp16", "dtype_acc": "fp32", "dtype_c": "fp16"}
GEMM |= {"layout": "rcr", "pipeline": "compv3", "scheduler": "intrawave", "epilogue": "cshuffle"}
KERNELS = (
    {"block": (64, 64, 64), "waves": (2, 2, 1), "mma": (16, 16, 32)},
    {"block": (128, 128, 64), "waves": (2, 2, 1), "mma": (16, 16, 32)},
    {"block": (256, 256, 64), "waves": (4, 4, 1), "mma": (16, 16, 32)},
)
# Mean, median and P10 of AMD's model on the 231 convolutions, as AMD published them: README of their folder.
AMD = (93.05, 96.80, 79.21)
KEPT = 10  # kernels of a portfolio
HALVES = 20  # random divisions of the problems
SHOWN = 1  # the index of the kernel whose terms are drawn
TERMS = ("matrix", "lds", "vector", "latency", "l2", "memory", "launch")


def estimate_times(kernel: dict[str, tuple[int, int, int]], m: NDArray[np.int64]) -> Estimate:
    """Estimate the times of a kernel for every m."""
    op, arch = find_op("gemm"), archs.load(GPU)
    assert op.cost is not None
    config = op.make_config(**GEMM, **kernel)
    problems = [
        op.cost.problem_numbers(op.problem_type(m=int(each), n=SIDE, k=SIDE, dtype="fp16", layout="rcr")) for each in m
    ]
    columns = {name: np.array([numbers[name] for numbers in problems]) for name in problems[0]}
    return op.cost.estimate(
        SimpleNamespace(**columns), SimpleNamespace(**op.cost.kernel_numbers(config, arch, None)), arch
    )


def draw_terms(path: Path) -> None:
    """Draw the terms of one kernel's estimate, and the rates of three kernels, over m."""
    figure, (left, right) = create_figure(12.0, 4.8, columns=2)
    m = np.unique(np.concatenate([np.arange(1, 257), np.arange(256, 8193, 16)]))
    shown = estimate_times(KERNELS[SHOWN], m)
    for colour, name in zip(COLOURS, TERMS, strict=True):
        left.plot(m, np.broadcast_to(shown.terms[name], m.shape), color=colour, linewidth=1.4, label=name)
    left.plot(m, shown.us, color="black", linewidth=2.2, label="the estimate")
    left.set(xscale="log", yscale="log", xlabel="m, rows of C", ylabel="µs", ylim=(1, None))
    left.set_xticks([1, 16, 128, 1024, 8192], ["1", "16", "128", "1024", "8192"])
    left.set_title(f"block {'×'.join(map(str, KERNELS[SHOWN]['block']))}: the estimate and its main terms", fontsize=11)
    left.legend(frameon=False, fontsize=9, ncols=2, loc="upper left")
    rates = []
    for colour, kernel in zip(COLOURS, KERNELS, strict=False):
        rates.append(2e-6 * m * SIDE * SIDE / estimate_times(kernel, m).us)
        right.plot(m, rates[-1], color=colour, linewidth=1.4, label=f"block {'×'.join(map(str, kernel['block']))}")
    best = np.max(rates, axis=0)
    right.plot(m, best, color="black", linewidth=3.5, alpha=0.15, label="the best of them")
    right.set(xlabel="m, rows of C", ylabel="TFLOP/s", xlim=(0, 8192), ylim=(0, None))
    right.set_title("steps and tails: what three kernels should reach", fontsize=11)
    right.legend(frameon=False, fontsize=9, loc="lower right")
    figure.suptitle(f"C (m×{SIDE}) = A (m×{SIDE}) · B ({SIDE}×{SIDE}), fp16, {GPU}", fontsize=12)
    save_figure(figure, path)


def load_convolutions() -> tuple[Floats, Floats]:
    """Load measured and estimated times of 231 forward convolutions with the 30 kernels in AMD's file."""
    from research import conv_data

    found = conv_data.load()
    measured, estimated = np.full((2, found.problem.max() + 1, len(found.labels)), np.nan)
    measured[found.problem, found.label] = found.us
    estimated[found.problem, found.label] = found.data.estimate[found.pair]
    return measured, estimated


def evaluate_conv_choices() -> dict[str, Floats]:
    """Evaluate each method on each of the 231 convolutions; models are trained on other problems."""
    from research import conv, conv_data
    from tilewright.learn import evaluation
    from tilewright.learn.efficiency import compute_efficiencies, score_by_mean, score_by_nearest

    data = conv_data.load()
    split = evaluation.split_by_problem(data.by_label)
    fold = split.get_row_folds(data.by_label)
    points = data.by_label.points[data.by_label.problem[np.unique(data.problem, return_index=True)[1]]]
    estimate = np.log(data.data.estimate)[data.pair]
    compv5 = np.array([label[3] == "compv5" for label in data.labels])[data.label]
    scores = {
        "one best kernel": score_by_mean(data.problem, data.label, data.us, fold),
        "nearest neighbour": score_by_nearest(data.problem, data.label, data.us, fold, points),
        "estimate, unlucky of equals": estimate + 1e-9 * compv5,
        "estimate": estimate - 1e-9 * compv5,
        "estimate and learned": evaluation.predict_held_out(data.by_label, conv.LABELS, split)[0],
    }
    best = np.full(data.problem.max() + 1, np.inf)
    np.minimum.at(best, data.problem, data.us)
    random = np.bincount(data.problem, best[data.problem] / data.us) / np.bincount(data.problem)
    return {"random": random} | {
        name: compute_efficiencies(data.problem, data.us, each) for name, each in scores.items()
    }


def draw_cdf(path: Path) -> None:
    """Draw the distribution of efficiencies for each method."""
    figure, axes = create_figure(8.5, 5.0)
    styles = {"random": ("#999999", "-"), "one best kernel": (COLOURS[4], "-"), "nearest neighbour": (COLOURS[3], "-")}
    styles |= {"estimate, unlucky of equals": (COLOURS[0], ":"), "estimate": (COLOURS[0], "-")}
    styles |= {"estimate and learned": (COLOURS[2], "-")}
    for name, each in evaluate_conv_choices().items():
        colour, line = styles[name]
        share = np.arange(1, len(each) + 1) / len(each)
        axes.step(100 * np.sort(each), 100 * share, line, where="post", color=colour, linewidth=1.8)
        axes.lines[-1].set_label(f"{name}: {100 * each.mean():.1f}")
        low, middle = np.percentile(each, [10, 50])
        print(f"  {name}: {' / '.join(f'{100 * x:.2f}' for x in (each.mean(), middle, low, each.min()))}")
    mean, middle, low = AMD
    axes.plot(
        [low, middle], [10, 50], "D", color="black", markersize=6, label=f"AMD's trained model, published: {mean:g}"
    )
    axes.axhline(10, color="black", linewidth=0.7, linestyle="--", alpha=0.5)
    axes.annotate("P10", (56, 10), (0, 3), textcoords="offset points", size=9)
    axes.annotate("its P10", (low, 10), (-8, 8), textcoords="offset points", size=9, ha="right")
    axes.annotate("its median", (middle, 50), (-8, 6), textcoords="offset points", size=9, ha="right")
    axes.set(xlim=(55, 100.5), ylim=(0, 100), xlabel="efficiency of the choice, % of the best of 30 kernels")
    axes.set_ylabel("problems with at most that, %")
    axes.set_title("231 forward convolutions in bf16 on gfx950: mean efficiency in the legend", fontsize=11)
    axes.legend(frameon=False, loc="upper left", fontsize=9)
    save_figure(figure, path)


def evaluate_halves(choosing: Floats, judging: Floats, keep: int) -> float:
    """Return the mean efficiency on half of the problems of kernels chosen for the other half."""
    reached = []
    for seed in range(HALVES):
        order = np.random.default_rng(seed).permutation(len(judging))
        reached.append(
            evaluate_portfolio(judging[order[1::2]], choose_portfolio(choosing[order[::2]], keep).order).coverage[-1]
        )
    return float(np.mean(reached))


def evaluate_leave_one_out(times: Floats, keep: int) -> float:
    """Return the mean efficiency on each problem of kernels chosen for the others."""
    others = [choose_portfolio(np.delete(times, i, axis=0), keep).order for i in range(len(times))]
    return float(np.mean([evaluate_portfolio(times[[i]], order).coverage[-1] for i, order in enumerate(others)]))


def draw_portfolio(path: Path) -> None:
    """Draw the mean efficiency over the number of kernels in a portfolio, for two sets of measurements."""
    from research import hipblaslt

    figure, (left, right) = create_figure(12.0, 4.6, columns=2)
    counts = range(1, KEPT + 1)
    measured, estimated = load_convolutions()
    table = hipblaslt.make_table()
    gemms = table.sweep.us
    curves = {
        left: {
            "chosen by measured times": [choose_portfolio(measured, n).coverage[-1] for n in counts],
            "chosen by estimates, nothing measured": [
                evaluate_portfolio(measured, choose_portfolio(estimated, n).order).coverage[-1] for n in counts
            ],
            "measured times of the other half of the problems": [
                evaluate_halves(measured, measured, n) for n in counts
            ],
        },
        right: {
            "chosen by measured times": [choose_portfolio(gemms, n).coverage[-1] for n in counts],
            "chosen by estimates, nothing measured": [
                evaluate_portfolio(gemms, choose_portfolio(table.estimate, n).order).coverage[-1] for n in counts
            ],
            "measured times of the other problems": [evaluate_leave_one_out(gemms, n) for n in counts],
        },
    }
    for axes, lines in curves.items():
        for (label, shares), colour, marker in zip(lines.items(), COLOURS, "osv", strict=False):
            axes.plot(counts, 100 * np.array(shares), marker=marker, markersize=4.5, color=colour, label=label)
            print(f"  {label}: {' '.join(f'{100 * share:.1f}' for share in shares)}")
        axes.set(xlabel="kernels kept", ylabel="mean efficiency of the best of them, %", xticks=counts)
        axes.legend(frameon=False, loc="lower right", fontsize=9)
    left.set_ylim(75, 101)
    right.set_ylim(55, 101)
    left.set_title("231 convolutions × 30 kernels of CK Tile, gfx950", fontsize=11)
    right.set_title("23 GEMMs × 6,410 kernels of hipBLASLt, one die of an MI250X", fontsize=11)
    save_figure(figure, path)


PICTURES = {
    "select-gemm-terms.png": draw_terms,
    "select-conv-cdf.png": draw_cdf,
    "select-portfolio.png": draw_portfolio,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*PICTURES, []], metavar="PICTURE", help=", ".join(PICTURES))
    parser.add_argument("--folder", type=Path, default=IMAGES)
    given = parser.parse_args()
    for name in given.names or PICTURES:
        PICTURES[name](given.folder / name)
        print(given.folder / name)


if __name__ == "__main__":
    main()
