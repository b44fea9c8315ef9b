"""Choose between paged attention as one kernel and in parts, by our estimate, and compare with measured times.

The files have times of Triton's unified attention in aiter: `2d` computes all keys of a query tile in one work-group,
`3d` splits the keys into segments and combines them in a second kernel, like splitkv and combine. They are not our
kernels: each is described by the nearest config, with the tiles that aiter selects (aiter/ops/triton/attention/
unified_attention.py, `select_2d_config` and `select_3d_config`, in a public version that may differ from the timed
one). So the figures judge the cost model, not our kernels.

The files name neither the GPU (the times of long decoding fit the bandwidth of MI300X) nor the lengths of sequences,
except the longest. We assume that all are as long, which is correct for decoding.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from research.sources import find_measurements
from research.table import Correlation, Line, Remark
from tilewright import arch as archs
from tilewright.learn.efficiency import evaluate_random, evaluate_scores
from tilewright.ops import fmha
from tilewright.ops.fmha.estimate import COST

DATA = "attention, 2d or 3d"
FILES = ("aakif-2d-3d.csv", "pawel-2d-3d.csv")
GPU = archs.load("gfx942")
# aiter's number of work-groups per compute unit, and its limits for segments (`unified_attention`, `select_3d_config`).
BLOCKS_PER_UNIT, SEGMENTS = 4, (8, 128)
# Rows of a tile for few queries, and the number of queries from which a tile has 128.
ROWS, LONG = 16, 256

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shape:
    """One row of a file. Times are in µs; nan if missing."""

    kind: str
    sequences: int
    tokens: int
    queries: int  # of the longest sequence
    keys: int
    heads: int
    kv_heads: int
    hdim: int
    window: int
    us_2d: float
    us_3d: float
    us_paged: float

    @property
    def blocks(self) -> int:
        """Work-groups of the 2d kernel, as aiter counts them."""
        return (self.tokens // (ROWS // (self.heads // self.kv_heads)) + self.sequences) * self.kv_heads

    @property
    def segments(self) -> int:
        wanted = -(-BLOCKS_PER_UNIT * GPU.compute.units // self.blocks)
        return min(max(1 << (wanted - 1).bit_length(), SEGMENTS[0]), SEGMENTS[1])

    def make_problem(self, family: str, num_splits: int = 0) -> fmha.Problem:
        """Make the problem for a family's kernel; only combine ignores the mask."""
        scored = family != "combine"
        return fmha.Problem(
            family=family,
            mode="group",
            dtype="bf16",
            batch=self.sequences,
            heads=self.heads,
            kv_heads=self.kv_heads,
            seqlen_q=self.queries,
            seqlen_k=self.keys,
            total_q=self.tokens,
            total_k=self.sequences * self.keys,
            hdim_q=self.hdim,
            mask="bottom_right" if scored else "none",
            window_left=self.window if scored else -1,
            num_splits=num_splits,
        )


def read_shapes() -> list[Shape]:
    """Read the shapes of both files with times of both kernels."""
    found = []
    for name in FILES:
        with find_measurements("aiter_attention_backends", name).open(newline="") as stream:
            found += [_parse_shape(row) for row in csv.DictReader(stream)]
    return [shape for shape in found if not np.isnan(shape.us_2d + shape.us_3d)]


def _parse_shape(row: Mapping[str, str]) -> Shape:
    number = {name: int(text) for name, text in row.items() if text.isdecimal()}
    window = int(row["window_size"].split(",")[0])
    return Shape(
        kind=f"{row['phase']}, {'window' if window >= 0 else 'all keys'}",
        sequences=number["num_seqs"],
        tokens=number["total_q_tokens"],
        queries=number["max_seqlen_q"],
        keys=number["max_seqlen_k"],
        heads=number["num_q_heads"],
        kv_heads=number["num_kv_heads"],
        hdim=number["head_size"],
        window=window,
        us_2d=_parse_us(row["triton_2d_ms"]),
        us_3d=_parse_us(row["triton_3d_ms"]),
        us_paged=_parse_us(row["ck_pagedkv_ms"]),
    )


def _parse_us(text: str) -> float:
    return float(text) * 1e3 if text else float("nan")


@functools.cache
def _make_kernel_numbers(
    tile: tuple[int, int, int], hdim: int, pipeline: str, family: str = "splitkv"
) -> SimpleNamespace:
    """Make the model inputs of a kernel: its tile has rows of queries, keys, and waves along one of them."""
    rows, keys, waves = tile
    along = (waves, 1, 1) if rows // waves >= ROWS else (1, waves, 1)
    config = fmha.config(
        family=family,
        mode="group",
        dtype="bf16",
        pipeline=pipeline,
        block=(rows, keys, 32, hdim, 32, hdim),
        waves=along * 2,
        mma=(16, 16, 16) * 2,
        mask_form="any",
        merge_heads=family == "splitkv",
    )
    return SimpleNamespace(**COST.kernel_numbers(config, GPU, None))


@functools.cache
def _make_combine_numbers(hdim: int, segments: int) -> SimpleNamespace:
    """Make the model inputs of aiter's `reduce_segments`: like combine, but one row per work-group, read at once."""
    config = fmha.config(
        family="combine", mode="group", dtype="bf16", pipeline="combine", block=(32, hdim), log_max_splits=3
    )
    numbers = COST.kernel_numbers(config, GPU, None)
    loaded = float(segments * hdim * 4)
    fetch = {"fetch": loaded / GPU.memory.l1_bytes_per_clock, "lines_bytes": loaded}
    return SimpleNamespace(**{**numbers, **fetch, "block_m": 1.0, "block_k": float(segments)})


def _estimate(problem: fmha.Problem, kernel: SimpleNamespace) -> float:
    return float(COST.estimate(SimpleNamespace(**COST.problem_numbers(problem)), kernel, GPU).us)


def estimate_2d(shape: Shape) -> float:
    """Estimate the single kernel. It prefetches three tiles for decoding, and has large tiles for long prompts."""
    if shape.queries >= LONG:
        kernel = _make_kernel_numbers((128, 64, 4), shape.hdim, "qr")
    elif shape.queries > 1:
        kernel = _make_kernel_numbers((ROWS, 64, 2), shape.hdim, "qr")
    else:
        kernel = _make_kernel_numbers((ROWS, 32, 2), shape.hdim, "qr_async")
    return _estimate(shape.make_problem("splitkv", num_splits=1), kernel)


def estimate_3d(shape: Shape) -> float:
    """Estimate the kernel for segments of keys, and the one that combines them."""
    parts = shape.make_problem("splitkv", num_splits=shape.segments)
    joined = shape.make_problem("combine", num_splits=shape.segments)
    return _estimate(parts, _make_kernel_numbers((ROWS, 32, 2), shape.hdim, "qr")) + _estimate(
        joined, _make_combine_numbers(shape.hdim, shape.segments)
    )


def estimate_paged(shape: Shape) -> float:
    """Estimate CK Tile's paged kernel with the faster of two tiles: the files do not name the tile."""
    problem = shape.make_problem("pagedkv")
    tiles = ((128, 64, 4), (64, 64, 4))
    return min(_estimate(problem, _make_kernel_numbers(tile, shape.hdim, "qr_pagedkv", "pagedkv")) for tile in tiles)


def aiter_uses_2d(shape: Shape) -> bool:
    """Whether aiter's own rule (`use_2d_kernel`) selects the 2d kernel."""
    return shape.window >= 0 or shape.keys <= 512 or shape.blocks > BLOCKS_PER_UNIT * GPU.compute.units


def run(bounded: bool) -> list[Line | Remark]:  # noqa: ARG001  (every set has it; this one takes seconds)
    """Evaluate choices by kind of shape. Nothing is trained."""
    every = read_shapes()
    found: list[Line | Remark] = []
    kinds = sorted({shape.kind for shape in every})
    for kind in (*kinds, "all"):
        these = [shape for shape in every if kind in (shape.kind, "all")]
        found += _evaluate_choices(kind, these)
    decoding = [each for each in every if each.queries == 1 and each.window < 0 and not np.isnan(each.us_paged)]
    estimates = {
        "2d": ([estimate_2d(each) for each in decoding], [each.us_2d for each in decoding]),
        "3d": ([estimate_3d(each) for each in decoding], [each.us_3d for each in decoding]),
        "pagedkv of CK Tile": ([estimate_paged(each) for each in decoding], [each.us_paged for each in decoding]),
    }
    for name, (estimated, measured) in estimates.items():
        correlation = Correlation(_rank_correlation(estimated, measured), len(measured))
        found.append(Line(DATA, "decode, all keys", f"estimated time of {name}", correlation))
    return [*found, _make_ratios(estimates)]


def _evaluate_choices(kind: str, these: Sequence[Shape]) -> list[Line]:
    us = np.array([(shape.us_2d, shape.us_3d) for shape in these]).ravel()
    problem = np.repeat(np.arange(len(these)), 2)
    estimated = np.array([(estimate_2d(shape), estimate_3d(shape)) for shape in these]).ravel()
    rule = np.array([(0, 1) if aiter_uses_2d(shape) else (1, 0) for shape in these]).ravel()
    scores = {
        "always 2d": np.tile([0, 1], len(these)),
        "always 3d": np.tile([1, 0], len(these)),
        "aiter's rule": rule,
        "analytical": estimated,
    }
    lines = [Line(DATA, kind, "random", evaluate_random(problem, us))]
    return [*lines, *(Line(DATA, kind, name, evaluate_scores(problem, us, score)) for name, score in scores.items())]


def _rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(first, second).statistic)


def _make_ratios(estimates: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Remark:
    rows = []
    for name, (estimated, measured) in estimates.items():
        low, middle, high = np.quantile(np.array(measured) / np.array(estimated), (0.1, 0.5, 0.9))
        rows.append((name, f"{low:.2f}", f"{middle:.2f}", f"{high:.2f}"))
    return Remark(f"{DATA}: measured over estimated time, decode, all keys", ("", "P10", "median", "P90"), tuple(rows))
