"""Compare estimated and measured times of CK Tile's kernels with scales that won a tuning run of aiter.

A name has the whole tile of its kernel, so that `gemm_quant` estimates this very tile. Only winners are listed: ranks
can be compared, efficiencies cannot. Kernels with scales of groups, or with preshuffled B, are estimated as the kernel
with a scale for each row and column that has the same tile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from research.boost import Floats, Progress
from research.foreign import load_gpu
from research.sources import DATA as SOURCES
from research.sources import MissingDataError
from research.table import Correlation, Line, Remark, Target
from tilewright.arch import Arch
from tilewright.arch.spec import Shape
from tilewright.ops.aiter_table import LIBRARY, read_aiter_table
from tilewright.ops.builtin_sets import find_space
from tilewright.ops.gemm_quant import OP, Config, Problem, config
from tilewright.ops.rule import find_violations

DATA = "scaled GEMM winners of CK Tile"
FOLDER = SOURCES / "aiter_configs_2026-08"
TARGET = Target({"rank": 0.9})
# The families of tables, by the start of a name in FOLDER or by a part of it: the first that matches counts.
FAMILIES = ("a8w8_blockscale_bpreshuffle", "a8w8_blockscale", "a8w8_bpreshuffle")
# block, waves and mma at the end of a name, before its options.
_TILE = re.compile(r"_(\d+x\d+x\d+)_(\d+x\d+x\d+)_(\d+x\d+x\d+)_(?:intrawave|default)")
_TYPES: dict[str, Any] = {"quant": "rowcol", "dtype_a": "fp8", "dtype_b": "fp8", "dtype_c": "bf16", "layout": "rcr"}
FIRST = 5
FEWEST = 8  # a rank correlation of fewer rows means nothing

Tile = tuple[Shape, Shape, Shape]


@dataclass(frozen=True)
class Winner:
    """One row: the units of the GPU, the table's family and file, the problem, the kernel's tile and its time."""

    units: int
    family: str
    file: str
    problem: Problem
    tile: Tile
    us: float


def run(bounded: bool) -> list[Line | Remark]:  # noqa: ARG001  (a few seconds either way)
    """Compute rank correlations by GPU and table, and how often a winner's tile is among the first five."""
    say, rows = Progress(DATA), load()
    estimates = np.array([_estimate_tile(row) for row in rows])
    say(f"{len(rows):,} rows estimated")
    found: list[Line | Remark] = []
    shares = []
    for (units, family), here in _group(rows, lambda row: (row.units, row.family)).items():
        label = f"{DATA}, {units} units, {family}"
        if len(here) >= FEWEST:
            found.append(TARGET.line(label, "no training", "analytical", _correlate(rows, estimates, here)))
        part = [rows[place] for place in here]
        shares.append((str(units), family, f"{len(here):,}", *_count_first(part)))
    columns = ("units", "tables", "rows", "tile in the space", f"of these first {FIRST}", "legal", f"first {FIRST}")
    title = (
        f"{DATA}: rows whose tile is ranked among the first {FIRST}, of the default space, then of all legal winners"
    )
    found.append(Remark(title, columns, tuple(shares)))
    found.append(_make_file_table(rows, estimates))
    return found


def load() -> list[Winner]:
    """All rows of CK Tile's kernels in the tables of scaled GEMMs."""
    if not FOLDER.is_dir():
        raise MissingDataError(f"{FOLDER} is missing. research/README.md lists the sources of measurements.")
    found = []
    for path in sorted(FOLDER.rglob("*tuned_gemm*.csv")):
        family = next((name for name in FAMILIES if name in path.name), None)
        if family is not None and "untuned" not in path.name:
            found += [_read_row(path, family, cells) for _, cells in read_aiter_table(path).cells if _is_ours(cells)]
    return found


def _is_ours(cells: Mapping[str, str]) -> bool:
    return cells["libtype"] == LIBRARY


def _read_row(path: Path, family: str, cells: Mapping[str, str]) -> Winner:
    tile = parse_tile(cells["kernelName"])
    sizes: dict[str, Any] = {name: int(cells[name.upper()]) for name in ("m", "n", "k")}
    problem = Problem(**_TYPES, **sizes)
    return Winner(int(cells["cu_num"]), family, path.name, problem, tile, float(cells["us"]))


def parse_tile(name: str) -> Tile:
    """Block, waves and mma of a kernel's name."""
    found = _TILE.search(name)
    if found is None:
        raise ValueError(f"{name!r} names no block, waves and mma")
    block, waves, mma = (Shape(*map(int, text.split("x"))) for text in found.groups())
    return block, waves, mma


def _make_config(tile: Tile, pipeline: str = "compv3", scheduler: str = "intrawave") -> Config:
    block, waves, mma = tile
    types: dict[str, Any] = {**_TYPES, "dtype_acc": "fp32"}
    fields: dict[str, Any] = {"pad_m": True, "pad_n": True, "pad_k": True, "blocks_per_cu": 1}
    return config(**types, **fields, block=block, waves=waves, mma=mma, pipeline=pipeline, scheduler=scheduler)


def _estimate_tile(row: Winner) -> float:
    return float(estimate_times([_make_config(row.tile)], row.problem, load_gpu(row.units))[0])


def estimate_times(configs: Sequence[Config], problem: Problem, arch: Arch) -> Floats:
    """The estimated times of kernels for a problem, in µs."""
    return _estimate_columns(_make_columns(configs, arch), problem, arch)


def _make_columns(configs: Sequence[Config], arch: Arch) -> SimpleNamespace:
    assert OP.cost is not None
    numbers = [OP.cost.kernel_numbers(each, arch, None) for each in configs]
    return SimpleNamespace(**{name: np.array([each[name] for each in numbers]) for name in numbers[0]})


def _estimate_columns(kernels: SimpleNamespace, problem: Problem, arch: Arch) -> Floats:
    assert OP.cost is not None
    inputs = SimpleNamespace(**OP.cost.problem_numbers(problem))
    return np.asarray(OP.cost.estimate(inputs, kernels, arch).us, float)


def _count_first(rows: Sequence[Winner]) -> tuple[str, str, str, str]:
    """How many winners' tiles are in the default space, and how many of them among its first; then the same among the
    legal tiles of all winners."""
    arch = load_gpu(rows[0].units)
    legal = {tile for tile in {row.tile for row in rows} if not find_violations(OP.rules, _make_config(tile), arch)}
    counts = []
    for tiles in (_list_space_tiles(arch), legal):
        known = [row for row in rows if row.tile in tiles]
        first = _count_ranked_first(known, sorted(tiles), arch)
        counts += [f"{len(known):,}", f"{first:,}" + (f" ({100 * first / len(known):.0f} %)" if known else "")]
    return counts[0], counts[1], f"{counts[2]} rows, {len(legal)} tiles", counts[3]


def _count_ranked_first(rows: Sequence[Winner], tiles: Sequence[Tile], arch: Arch) -> int:
    if not rows:
        return 0
    # A tile stands for its fastest kernel: both pipelines whose loads are ordered differently.
    columns = [_make_columns([_make_config(tile, name) for tile in tiles], arch) for name in ("compv3", "mem")]
    place, count = {tile: number for number, tile in enumerate(tiles)}, 0
    for row in rows:
        times = np.min([_estimate_columns(each, row.problem, arch) for each in columns], axis=0)
        # Tiles with the same estimate share the best place.
        count += int(np.sum(times < times[place[row.tile]]) < FIRST)
    return count


def _list_space_tiles(arch: Arch) -> set[Tile]:
    """The legal tiles of the op's default space."""
    one: dict[str, Any] = {"pipeline": "compv3", "scheduler": "intrawave", "pad_m": True, "pad_n": True, "pad_k": True}
    kernels = find_space(OP, "default", **_TYPES, **one).iter(arch.name)
    configs = (cast("Config", kernel.config) for kernel in kernels)
    return {(each.block, each.waves, each.mma) for each in configs}


def _correlate(rows: Sequence[Winner], estimates: Floats, here: Sequence[int]) -> Correlation:
    from scipy.stats import spearmanr

    measured = [rows[place].us for place in here]
    return Correlation(float(spearmanr(estimates[list(here)], measured)[0]), len(here))


def _group(rows: Sequence[Winner], get_key: Any) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = {}
    for place, row in enumerate(rows):
        found.setdefault(get_key(row), []).append(place)
    return {key: found[key] for key in sorted(found)}


def _make_file_table(rows: Sequence[Winner], estimates: Floats) -> Remark:
    ratio = np.array([row.us for row in rows]) / estimates
    lines: list[tuple[str, ...]] = []
    for (units, file), here in _group(rows, lambda row: (row.units, row.file)).items():
        rank = f"{_correlate(rows, estimates, here).rank:.3f}" if len(here) >= FEWEST else ""
        lines.append((str(units), file, f"{len(here):,}", rank, *_format_spread(ratio[here])))
    columns = ("units", "table", "rows", "rank", "measured / estimated: P10", "median", "P90")
    return Remark(f"{DATA}: by table", columns, tuple(lines))


def _format_spread(ratios: Iterable[float]) -> tuple[str, ...]:
    return tuple(f"{each:.2f}" for each in np.percentile(list(ratios), [10, 50, 90]))
