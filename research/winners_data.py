"""GEMM kernels that won a tuning run of aiter, with their times. The losing kernels are not known.

Broken rows are counted by their cause and are in no figure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research.sources import find_measurements, read_rows

Floats = NDArray[np.float64]

# A GEMM takes longer than this many µs: smaller values are milliseconds.
LEAST_US = 1.5
_FLYDSL_SPLIT = re.compile(r"split_k(\d+)|_s?ks?(\d+)")
# The numbers of a name that are the block's m, n and k; the first matching pattern counts.
_PATTERNS = (
    ("tensile", re.compile(r"_MT(\d+)x(\d+)x(\d+)_"), (2, 1, 3)),  # column-major: its m is our n
    ("ck", re.compile(r"_(\d+)x(\d+)x(\d+)x(\d+)_\d+x\d+_.*wave_v\d"), (2, 3, 4)),  # threads first
    ("flydsl", re.compile(r"flydsl.*?_t?(\d+)x(\d+)x(\d+)(?:x\d+)?_"), (1, 2, 3)),
    ("asm", re.compile(r"^_ZN5aiter.*?_(\d+)x(\d+)"), (1, 2)),  # without k
    ("opus", re.compile(r"opus_gemm.*?_(\d+)x(\d+)x(\d+)x(\d+)_"), (2, 3, 4)),
    ("cktile", re.compile(r"cktile.*?_(\d+)x(\d+)x(\d+)_\d+x\d+x\d+_"), (1, 2, 3)),
    ("other tile", re.compile(r"(\d+)x(\d+)x(\d+)"), (1, 2, 3)),
)
# cu_num 256 means two GPUs. These names are for gfx1250, which has no GPU file.
_GFX1250 = re.compile("gfx1250|wmma|tdm|dmabig")
_EIGHT_BITS = re.compile("a8w8|_F8_F8|fp8gemm")


@dataclass(frozen=True)
class Winners:
    """One row for each winning kernel of a problem. Blocks are 0 if the name does not have a tile."""

    gpu: NDArray[np.str_]
    units: Floats
    op: NDArray[np.str_]
    family: NDArray[np.str_]
    bits: Floats
    sizes: dict[str, Floats]  # batch, m, n, k
    tile: dict[str, Floats]  # block_m, block_n, block_k, split
    us: Floats
    left_out: tuple[tuple[str, int], ...]

    def only(self, rows: NDArray[np.bool_], left_out: tuple[tuple[str, int], ...] = ()) -> Winners:
        return Winners(
            self.gpu[rows],
            self.units[rows],
            self.op[rows],
            self.family[rows],
            self.bits[rows],
            {name: column[rows] for name, column in self.sizes.items()},
            {name: column[rows] for name, column in self.tile.items()},
            self.us[rows],
            self.left_out + left_out,
        )


def load() -> Winners:
    """Load all rows with plausible times and a known number of compute units."""
    rows = read_rows(find_measurements("aiter_tuned_gemm_winners", "aiter_gemm_union_history.csv.gz"))
    parsed = [parse_name(row["kernelName"], int(float(row["splitK"] or 0))) for row in rows]
    names = [row["kernelName"] for row in rows]
    tile = np.array([sizes for _, sizes in parsed], float)
    every = Winners(
        gpu=np.array([_parse_gpu(row) for row in rows]),
        units=np.array([float(row["cu_num"]) for row in rows]),
        op=np.array([row["op"] for row in rows]),
        family=np.array([family for family, _ in parsed]),
        bits=np.array([_parse_bits(row["op"], name) for row, name in zip(rows, names, strict=True)], float),
        sizes={
            "batch": np.array([float(row["B"] or 1) for row in rows]),
            **{axis.lower(): np.array([float(row[axis] or "nan") for row in rows]) for axis in ("M", "N", "K")},
        },
        tile=dict(zip(("block_m", "block_n", "block_k", "split"), tile.T, strict=True)),
        us=np.array([float(row["us_median"] or "nan") for row in rows]),
        left_out=(),
    )
    return _exclude_broken(every)


def _exclude_broken(every: Winners) -> Winners:
    causes = {
        "time not finite": ~np.isfinite(every.us),
        f"below {LEAST_US:g} µs: milliseconds by their size": every.us < LEAST_US,
        "no compute units": every.units == 0,
        "no size": np.isnan(every.sizes["m"]),
    }
    kept, left_out = np.ones(len(every.us), bool), []
    for cause, broken in causes.items():
        left_out += _count_excluded(cause, every, kept & broken)
        kept &= ~broken
    return every.only(kept, tuple(left_out))


def _count_excluded(cause: str, data: Winners, rows: NDArray[np.bool_]) -> list[tuple[str, int]]:
    """Count the rows that a cause excludes, by op and GPU."""
    kinds, number = np.unique(np.char.add(np.char.add(data.op[rows], " on "), data.gpu[rows]), return_counts=True)
    return [(f"{cause}: {kind}", int(many)) for kind, many in zip(kinds, number, strict=True)]


def exclude(data: Winners, cause: str, rows: NDArray[np.bool_]) -> Winners:
    """Exclude rows, and count them."""
    return data.only(~rows, tuple(_count_excluded(cause, data, rows)))


def _parse_gpu(row: dict[str, str]) -> str:
    return "256, names of gfx1250" if row["cu_num"] == "256" and _GFX1250.search(row["kernelName"]) else row["cu_num"]


def _parse_bits(op: str, name: str) -> int:
    if op.startswith("a4w4"):
        return 4
    return 8 if op.startswith("a8w8") or _EIGHT_BITS.search(name) else 16


def parse_name(name: str, split: int) -> tuple[str, tuple[int, int, int, int]]:
    """Parse a kernel's family, block and parts of k; blocks are 0 if the name does not have them.

    `split` is what the table says: a logarithm for CK and for assembly of fp4, a number of parts for all others.
    """
    for family, pattern, place in _PATTERNS:
        if found := pattern.search(name):
            block = tuple(int(found[each]) for each in place)
            return family, (
                block[0],
                block[1],
                block[2] if len(place) == 3 else _parse_asm_k(name),
                _parse_split(family, name, split),
            )
    return "no tile", (0, 0, 0, max(1, split))


def _parse_asm_k(name: str) -> int:
    return 256 if "f4gemm" in name else 128


def _parse_split(family: str, name: str, split: int) -> int:
    if family == "ck" or (family == "asm" and "f4gemm" in name):
        return int(2 ** max(0, split))
    if family == "tensile":
        own = re.search(r"_GSU(\d+)", name)
        return max(1, int(own[1])) if own else 1
    if family == "flydsl" and (own := _FLYDSL_SPLIT.search(name)):
        return max(1, int(own[1] or own[2]))
    return max(1, split)
