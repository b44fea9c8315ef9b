"""Compare estimated and measured times of tuned GEMMs. Choices cannot be evaluated: only winners are listed.

A rank correlation of 0.9 is weak evidence: times span five decades, and a roofline reaches it, too. The correlation and
the deviations within bands of sizes are more informative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from research.boost import Floats, Progress
from research.foreign import load_gpu, make_plain_tile, matrix_rate
from research.table import Correlation, Line, Remark, Target
from research.winners_data import Winners, exclude, load
from tilewright.arch import Arch
from tilewright.ops.cost_model import tiled

# Estimates microseconds from sizes, tile, bits of an element and GPU.
Estimator = Callable[[Mapping[str, Floats], Mapping[str, Floats], int, Arch], Floats]

DATA = "tuned GEMM winners"
TARGET = Target({"rank": 0.9})
PRODUCTS = {"304": "304 MI300X", "256": "256 MI350X, MI355X", "80": "80 MI308X", "64": "64 unknown", "96": "96 unknown"}
# Usual tiles, with k whole or in four parts: for kernels without a tile in the name, and for comparison.
USUAL = (
    *((16, 64, 256), (16, 128, 256), (32, 64, 256), (64, 64, 128)),
    *((64, 128, 128), (128, 128, 128), (128, 256, 64), (256, 256, 64)),
)
# Times below this share of the roofline's cannot be from this GPU.
IMPOSSIBLE = 0.3
BANDS = (1, 16, 64, 256, 1024, 4096, np.inf)
# Groups with fewer rows are not listed.
FEWEST = 30
FAR = 0.1  # a difference of log times that exceeds measurement noise


def run(bounded: bool) -> list[Line | Remark]:  # noqa: ARG001  (a few seconds either way)
    """Compute rank correlations by GPU, and tables of the estimate's deviations."""
    say, data = Progress(DATA), load()
    rows = len(data.us) + sum(many for _, many in data.left_out)
    roof = _estimate_all(data, _compute_roofline)
    impossible = data.us < IMPOSSIBLE * roof
    data, roof = exclude(data, f"faster than {IMPOSSIBLE:g} of the roofline", impossible), roof[~impossible]
    usual = _estimate_all(data, _estimate_usual_tiles)
    named = np.where(data.tile["block_m"] > 0, _estimate_all(data, _estimate_named_tile), usual)
    say(f"{len(data.us):,} of {rows:,} rows estimated")
    found: list[Line | Remark] = [
        Remark(
            f"{DATA}: left out of {rows:,} rows", ("what", "how many"), tuple((w, f"{n:,}") for w, n in data.left_out)
        )
    ]
    methods = {"analytical, kernel's tile": named, "analytical, best of usual tiles": usual, "roofline": roof}
    for name in sorted(set(data.gpu.tolist()), key=lambda each: -np.sum(data.gpu == each)):
        here = data.gpu == name
        for method, estimate in methods.items():
            result = Correlation(_rank_correlation(estimate[here], data.us[here]), int(here.sum()))
            label, known = f"{DATA}, {PRODUCTS.get(name, name)}", name in PRODUCTS and method.endswith("kernel's tile")
            line = TARGET.line if known else Line
            found.append(line(label, "no training", method, result))
    found += [_make_deviation_table(data, named, roof, kind, column) for kind, column in _make_columns(data).items()]
    found.append(_make_pairs_table(data, named))
    return found


def _iterate_parts(data: Winners) -> Iterator[tuple[Arch, int, NDArray[np.bool_]]]:
    """Yield the rows of each GPU and type."""
    for units, bits in sorted(set(zip(data.units.tolist(), data.bits.tolist(), strict=True))):
        yield load_gpu(int(units)), int(bits), (data.units == units) & (data.bits == bits)


def _estimate_all(data: Winners, estimator: Estimator) -> Floats:
    """Estimate all rows, for each GPU and type."""
    us = np.empty(len(data.us))
    for arch, bits, here in _iterate_parts(data):
        sizes = {name: column[here] for name, column in data.sizes.items()}
        us[here] = estimator(sizes, {name: column[here] for name, column in data.tile.items()}, bits, arch)
    return us


def _estimate_named_tile(sizes: Mapping[str, Floats], tile: Mapping[str, Floats], bits: int, arch: Arch) -> Floats:
    known = tile["block_m"] > 0
    block = {name: np.where(known, tile[name], 64.0) for name in ("block_m", "block_n", "block_k")}
    return _estimate(sizes, block, tile["split"], bits, arch)


def _estimate_usual_tiles(sizes: Mapping[str, Floats], tile: Mapping[str, Floats], bits: int, arch: Arch) -> Floats:  # noqa: ARG001
    made = []
    for sides in USUAL:
        block = {name: np.float64(side) for name, side in zip(("block_m", "block_n", "block_k"), sides, strict=True)}
        made += [_estimate(sizes, block, np.float64(split), bits, arch) for split in (1, 4)]
    return np.asarray(np.min(made, axis=0), float)


def _estimate(sizes: Mapping[str, Floats], block: Mapping[str, object], split: object, bits: int, arch: Arch) -> Floats:
    m, n, k, batch = (sizes[name] for name in ("m", "n", "k", "batch"))
    # Names rarely contain the waves: assume four, in a row along n if the tile has few rows.
    flat = np.asarray(block["block_m"]) < 32
    waves = {"waves_m": np.where(flat, 1.0, 2.0), "waves_n": np.where(flat, 4.0, 2.0)}
    tile = make_plain_tile({**block, **waves}, float(bits), float(bits), matrix_rate(arch, bits))
    product = tiled.BatchedGemmSizes(
        m=m,
        n=n,
        k=k,
        batch=batch,
        split=split,
        read_bytes=batch * (m + n) * k * bits / 8,
        written_bytes=2 * batch * m * n,
    )
    return np.asarray(tiled.estimate_problem(product, tiled.compute_loop_cost(tile, arch), arch).us, float)


def _compute_roofline(sizes: Mapping[str, Floats], tile: Mapping[str, Floats], bits: int, arch: Arch) -> Floats:  # noqa: ARG001
    m, n, k, batch = (sizes[name] for name in ("m", "n", "k", "batch"))
    compute = arch.compute
    peak = matrix_rate(arch, bits) * compute.units * compute.simds_per_unit * compute.clock_mhz
    moved = batch * ((m + n) * k * bits / 8 + 2 * m * n)
    return np.maximum(2 * batch * m * n * k / peak, moved / (arch.memory.bandwidth_gbs * 1e3))


def _make_columns(data: Winners) -> dict[str, NDArray[np.str_]]:
    """Make the columns by which deviations are grouped."""
    band = np.searchsorted(BANDS, data.sizes["m"])
    lower = [1, *(int(each) + 1 for each in BANDS[:-1])]
    texts = [
        f"{low} to {int(high)}" if np.isfinite(high) else f"{low} and more"
        for low, high in zip(lower, BANDS, strict=True)
    ]
    texts[0] = "1"
    return {"rows of A": np.array(texts)[band], "op": data.op, "family of kernels": data.family}


def _make_deviation_table(data: Winners, estimate: Floats, roof: Floats, kind: str, column: NDArray[np.str_]) -> Remark:
    rows, ratio = [], data.us / estimate
    for name in sorted(set(data.gpu.tolist()), key=lambda each: -np.sum(data.gpu == each)):
        for value in sorted(set(column[data.gpu == name].tolist()), key=_sort_key):
            here = (data.gpu == name) & (column == value)
            if here.sum() < FEWEST:
                continue
            ranks = [f"{_rank_correlation(each[here], data.us[here]):.3f}" for each in (estimate, roof)]
            spread = [f"{each:.2f}" for each in np.percentile(ratio[here], [10, 50, 90])]
            rows.append((PRODUCTS.get(name, name), value, f"{here.sum():,}", *ranks, *spread))
    columns = ("units", kind, "rows", "rank", "rank of roofline", "measured / estimated: P10", "median", "P90")
    return Remark(f"{DATA}: where the estimate is off, by {kind}", columns, tuple(rows))


def _sort_key(text: str) -> tuple[int, str]:
    """Sort bands by number, other words alphabetically."""
    head = text.partition(" ")[0]
    return int(head) if head.isdigit() else 0, text


def _make_pairs_table(data: Winners, estimate: Floats) -> Remark:
    """Count how often the estimate orders two kernels of a problem with clearly different times correctly."""
    known = data.tile["block_m"] > 0
    keys = np.column_stack([*data.sizes.values(), data.bits, np.unique(data.gpu + data.op, return_inverse=True)[1]])
    problem = np.unique(keys[known], axis=0, return_inverse=True)[1].ravel()
    order = np.argsort(problem, kind="stable")
    measured, guessed, problem = np.log(data.us[known][order]), np.log(estimate[known][order]), problem[order]
    right = wrong = alike = 0
    # The rows of a problem are adjacent: compare each with the following ones at every distance.
    for step in range(1, int(np.bincount(problem).max())):
        gap, guess = (each[step:] - each[:-step] for each in (measured, guessed))
        clear = (problem[step:] == problem[:-step]) & (np.abs(gap) > FAR)
        right += int((clear & (guess * gap > 0)).sum())
        wrong += int((clear & (guess * gap < 0)).sum())
        alike += int((clear & (guess == 0)).sum())
    columns = ("pairs", "same estimate: names differ in what it does not see", "of the others: ordered right")
    row = (f"{right + wrong + alike:,}", f"{alike:,}", f"{100 * right / (right + wrong):.0f} %")
    return Remark(f"{DATA}: two kernels of a problem, more than 10 % apart", columns, (row,))


def _rank_correlation(estimate: Floats, us: Floats) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(estimate, us)[0])
