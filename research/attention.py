"""Attention over pages, as one kernel or in parts: which of the two is faster, by our estimate and as measured.

The file has times of Triton's unified attention in aiter: `2d` computes all keys of a tile of queries in one block,
`3d` cuts the keys into segments and joins them in a second kernel, as splitkv and combine do. Neither is a kernel of
ours: each is described by the config nearest to it, with the tiles that aiter picks (aiter/ops/triton/attention/
unified_attention.py, `select_2d_config` and `select_3d_config`, in a public version that may differ from the one that
was timed). So the figures judge the model, not our kernels.

What the file does not say: the GPU (MI300X by the times of long decoding, which are those of its bandwidth), and the
lengths of sequences but for the longest. All are taken to have as many keys as that, which is right for decoding.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from research.sources import measurements
from research.table import Correlation, Line, Remark
from tilewright import arch as archs
from tilewright.learn.efficiency import evaluate_random, evaluate_scores
from tilewright.ops import fmha
from tilewright.ops.fmha.estimate import COST

DATA = "attention, 2d or 3d"
FILES = ("aakif-2d-3d.csv", "pawel-2d-3d.csv")
GPU = archs.load("gfx942")
# Blocks that aiter wants for each unit, and the fewest and most segments (`unified_attention`, `select_3d_config`).
BLOCKS_PER_UNIT, SEGMENTS = 4, (8, 128)
# Rows of a tile of few queries, and from how many queries on it has 128.
ROWS, LONG = 16, 256

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shape:
    """One row of the file. Times are in µs, nan where there is none."""

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
        """Blocks of the 2d kernel, as aiter counts them."""
        return (self.tokens // (ROWS // (self.heads // self.kv_heads)) + self.sequences) * self.kv_heads

    @property
    def segments(self) -> int:
        wanted = -(-BLOCKS_PER_UNIT * GPU.compute.units // self.blocks)
        return min(max(1 << (wanted - 1).bit_length(), SEGMENTS[0]), SEGMENTS[1])

    def problem(self, family: str, num_splits: int = 0) -> fmha.Problem:
        """What a kernel of a family computes of it; only combine does not see the mask."""
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


def shapes() -> list[Shape]:
    """All shapes of both files for which both kernels were timed."""
    found = []
    for name in FILES:
        with measurements("aiter_attention_backends", name).open(newline="") as stream:
            found += [_shape(row) for row in csv.DictReader(stream)]
    return [shape for shape in found if not np.isnan(shape.us_2d + shape.us_3d)]


def _shape(row: Mapping[str, str]) -> Shape:
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
        us_2d=_us(row["triton_2d_ms"]),
        us_3d=_us(row["triton_3d_ms"]),
        us_paged=_us(row["ck_pagedkv_ms"]),
    )


def _us(text: str) -> float:
    return float(text) * 1e3 if text else float("nan")


@functools.cache
def _numbers(tile: tuple[int, int, int], hdim: int, pipeline: str, family: str = "splitkv") -> SimpleNamespace:
    """The numbers of a kernel with tiles of `rows` queries and `keys`, and so many waves along the queries or keys."""
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
def _joining(hdim: int, segments: int) -> SimpleNamespace:
    """aiter's `reduce_segments`: as combine, but a block joins one row and loads all of its parts at once."""
    config = fmha.config(
        family="combine", mode="group", dtype="bf16", pipeline="combine", block=(32, hdim), log_max_splits=3
    )
    numbers = COST.kernel_numbers(config, GPU, None)
    loaded = float(segments * hdim * 4)
    fetch = {"fetch": loaded / GPU.memory.l1_bytes_per_clock, "lines_bytes": loaded}
    return SimpleNamespace(**{**numbers, **fetch, "block_m": 1.0, "block_k": float(segments)})


def _estimated(problem: fmha.Problem, kernel: SimpleNamespace) -> float:
    return float(COST.estimate(SimpleNamespace(**COST.problem_numbers(problem)), kernel, GPU).us)


def estimate_2d(shape: Shape) -> float:
    """One kernel. For decoding it loads three tiles ahead; long prompts have large tiles."""
    if shape.queries >= LONG:
        kernel = _numbers((128, 64, 4), shape.hdim, "qr")
    elif shape.queries > 1:
        kernel = _numbers((ROWS, 64, 2), shape.hdim, "qr")
    else:
        kernel = _numbers((ROWS, 32, 2), shape.hdim, "qr_async")
    return _estimated(shape.problem("splitkv", num_splits=1), kernel)


def estimate_3d(shape: Shape) -> float:
    """Parts of the keys, and what joins them."""
    parts = shape.problem("splitkv", num_splits=shape.segments)
    joined = shape.problem("combine", num_splits=shape.segments)
    return _estimated(parts, _numbers((ROWS, 32, 2), shape.hdim, "qr")) + _estimated(
        joined, _joining(shape.hdim, shape.segments)
    )


def estimate_paged(shape: Shape) -> float:
    """CK Tile's own kernel over pages, with the faster of two tiles: which one was run is not known."""
    problem = shape.problem("pagedkv")
    tiles = ((128, 64, 4), (64, 64, 4))
    return min(_estimated(problem, _numbers(tile, shape.hdim, "qr_pagedkv", "pagedkv")) for tile in tiles)


def takes_2d(shape: Shape) -> bool:
    """aiter's own rule (`use_2d_kernel`)."""
    return shape.window >= 0 or shape.keys <= 512 or shape.blocks > BLOCKS_PER_UNIT * GPU.compute.units


def run(bounded: bool) -> list[Line | Remark]:  # noqa: ARG001  (every set has it; this one takes seconds)
    """Choices by kind of shape; nothing is trained, so all shapes are unseen."""
    every = shapes()
    found: list[Line | Remark] = []
    kinds = sorted({shape.kind for shape in every})
    for kind in (*kinds, "all"):
        these = [shape for shape in every if kind in (shape.kind, "all")]
        found += _choices(kind, these)
    decoding = [each for each in every if each.queries == 1 and each.window < 0 and not np.isnan(each.us_paged)]
    estimates = {
        "2d": ([estimate_2d(each) for each in decoding], [each.us_2d for each in decoding]),
        "3d": ([estimate_3d(each) for each in decoding], [each.us_3d for each in decoding]),
        "pagedkv of CK Tile": ([estimate_paged(each) for each in decoding], [each.us_paged for each in decoding]),
    }
    for name, (estimated, measured) in estimates.items():
        correlation = Correlation(_rank_correlation(estimated, measured), len(measured))
        found.append(Line(DATA, "decode, all keys", f"estimated time of {name}", correlation))
    return [*found, _ratios(estimates)]


def _choices(kind: str, these: Sequence[Shape]) -> list[Line]:
    us = np.array([(shape.us_2d, shape.us_3d) for shape in these]).ravel()
    problem = np.repeat(np.arange(len(these)), 2)
    estimated = np.array([(estimate_2d(shape), estimate_3d(shape)) for shape in these]).ravel()
    rule = np.array([(0, 1) if takes_2d(shape) else (1, 0) for shape in these]).ravel()
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


def _ratios(estimates: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Remark:
    rows = []
    for name, (estimated, measured) in estimates.items():
        low, middle, high = np.quantile(np.array(measured) / np.array(estimated), (0.1, 0.5, 0.9))
        rows.append((name, f"{low:.2f}", f"{middle:.2f}", f"{high:.2f}"))
    return Remark(f"{DATA}: measured over estimated time, decode, all keys", ("", "P10", "median", "P90"), tuple(rows))
