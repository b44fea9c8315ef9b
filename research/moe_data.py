"""Candidates of aiter's tuner for fused mixture-of-experts: two stages of grouped GEMM, on gfx950 and MI308X.

A candidate is a kernel by name and the rows of a block. Repeats of one candidate are joined by their median.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research.sources import find_measurements, read_rows
from tilewright.base.errors import choose

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

NUMBERS = ("cu_num", "token", "model_dim", "inter_dim", "expert", "topk", "use_g1u1", "doweight_stage1")
WORDS = ("stage", "act_type", "dtype", "q_dtype_a", "q_dtype_w", "q_type")
STAGES = ("stage1", "stage2", "asm_1stage")
FAMILIES = ("asm", "ck", "cktile", "flydsl")
BITS = {
    "torch.float4_e2m1fn_x2": 4.0,
    "torch.float8_e4m3fnuz": 8.0,
    "torch.float8_e4m3fn": 8.0,
    "torch.int8": 8.0,
    "torch.bfloat16": 16.0,
}
# A kernel with more mismatches than this, in per cent, is not usable.
LARGEST_ERROR = 5.0
# Further values in the names of some families; 0 if a name does not have them.
FLAGS = (
    *("pipeline", "per_unit", "w", "split", "b_hint", "go", "xcd", "fp4_out"),
    *("atomic", "reduce", "tg", "pf", "ps", "vs", "one_stage", "sort"),
)
_CK = re.compile(r"moe_ck2stages_gemm\d_(\d+)x(\d+)x(\d+)x(\d+)_(\d+)x(\d+)_")
_CK_TILE = re.compile(r"moe_cktile2stages_gemm\d_(\d+)x(\d+)x(\d+)x(\d+)_(\d+)x(\d+)_\d+x\d+x\d+_(\d)perCU")
_FLYDSL = re.compile(r"flydsl_moe\d_.*?_t(\d+)x(\d+)x(\d+)")
_ASM = re.compile(r"_(\d+)x(\d+)(?:_|E)")
_ACTIVATION = re.compile(r"_(silu|swiglu|gelu)")


@dataclass(frozen=True)
class Candidates:
    """Rows are candidates of problems. `numbers` and `words` describe the problem, `kernel` has the values in the
    kernel's name."""

    problem: Integers
    name: Integers  # number of kernel, block and stage, for any activation
    us: Floats  # median of all valid runs
    us_right: Floats  # median of runs with a correct result; nan if there are none
    numbers: dict[str, Floats]
    words: dict[str, NDArray[np.str_]]
    kernel: dict[str, Floats]
    symbol: NDArray[np.str_]  # the kernel's name as in the data
    left_out: tuple[tuple[str, int], ...]

    def family(self, *names: str) -> NDArray[np.bool_]:
        return np.isin(self.kernel["family"], [FAMILIES.index(name) for name in names])

    def only(self, rows: NDArray[np.bool_]) -> Candidates:
        """Select rows, and number their problems and names again."""
        return Candidates(
            np.unique(self.problem[rows], return_inverse=True)[1],
            np.unique(self.name[rows], return_inverse=True)[1],
            self.us[rows],
            self.us_right[rows],
            {key: column[rows] for key, column in self.numbers.items()},
            {key: column[rows] for key, column in self.words.items()},
            {key: column[rows] for key, column in self.kernel.items()},
            self.symbol[rows],
            self.left_out,
        )


def load() -> Candidates:
    """Load all candidates with a valid time."""
    rows = read_rows(find_measurements("aiter_fmoe_profile", "fmoe_candidates.csv.gz"))
    valid = [row for row in rows if row["valid"] == "True"]
    failed = Counter(f"runs that failed (time {row['us']})" for row in rows if row["valid"] != "True")
    runs: dict[tuple[str, ...], list[tuple[float, bool]]] = {}
    key_fields = (*WORDS, *NUMBERS, "kernelName", "block_m")
    for row in valid:
        key = tuple(row[field] for field in key_fields)
        runs.setdefault(key, []).append((float(row["us"]), _is_right(row["err"])))
    keys = list(runs)
    columns = dict(zip(key_fields, (np.array(column) for column in zip(*keys, strict=True)), strict=True))
    problem_keys = ["|".join(key[:-2]) for key in keys]
    block_m = columns["block_m"].astype(float)
    parsed = [parse_kernel_name(key[-2], float(key[-1])) for key in keys]
    names = [f"{_ACTIVATION.sub('', key[-2])} {key[0]} {key[-1]}" for key in keys]
    wrong = sum(not right for timed in runs.values() for _, right in timed)
    return Candidates(
        np.unique(problem_keys, return_inverse=True)[1],
        np.unique(names, return_inverse=True)[1],
        np.array([np.median([us for us, _ in timed]) for timed in runs.values()]),
        np.array([_compute_median_right(timed) for timed in runs.values()]),
        {field: columns[field].astype(float) for field in NUMBERS} | {"block_m": block_m},
        {field: columns[field] for field in WORDS},
        {field: np.array([each[field] for each in parsed]) for field in parsed[0]},
        columns["kernelName"],
        (*sorted(failed.items()), (f"runs with more than {LARGEST_ERROR:g} % mismatches, kept where said", wrong)),
    )


def _is_right(error: str) -> bool:
    """Whether a run's result was correct; a run without an error figure was not."""
    try:
        return float(error.rstrip("%")) <= LARGEST_ERROR
    except ValueError:
        return False


def _compute_median_right(timed: list[tuple[float, bool]]) -> float:
    right = [us for us, is_right in timed if is_right]
    return float(np.median(right)) if right else float("nan")


def parse_kernel_name(name: str, block_m: float) -> dict[str, float]:
    """Parse the values in a kernel's name; some names of assembly kernels have only the tile."""
    found = dict.fromkeys(FLAGS, 0.0)
    found |= {"family": 0.0, "block_m": block_m, "block_n": 128.0, "block_k": 128.0, "threads": 256.0}
    found |= {"waves_m": 1.0, "waves_n": 4.0, "split": 1.0, "b_hint": -1.0}
    if tile := _CK.search(name):
        found |= _parse_tile("ck", tile, ("threads", "block_m", "block_n", "block_k", "waves_m", "waves_n"))
        found["pipeline"] = _parse_number(name, r"_v(\d)_")
        if "FP4X2_FP4X2" in name:
            found["block_k"] *= 2  # CK counts pairs of fp4
    elif tile := _CK_TILE.search(name):
        found |= _parse_tile(
            "cktile", tile, ("threads", "block_m", "block_n", "block_k", "waves_m", "waves_n", "per_unit")
        )
    elif tile := _FLYDSL.search(name):
        found |= _parse_tile("flydsl", tile, ("block_m", "block_n", "block_k"))
        found |= {
            "w": _parse_number(name, r"_w(\d)"),
            "split": _parse_number(name, r"_kb(\d+)", 1.0),
            "xcd": _parse_number(name, r"_xcd(\d)"),
        }
        found |= {"b_hint": _parse_number(name, r"_bnt(\d)", -1.0), "fp4_out": float(name.endswith("_fp4"))}
        found |= {word: float(word in name) for word in ("atomic", "reduce", "sort")} | {"go": float("_go" in name)}
    elif tile := _ASM.search(name):
        found |= _parse_tile("asm", tile, ("block_m", "block_n"))
        found |= {
            "tg": _parse_number(name, r"_(\d)tg"),
            "pf": _parse_number(name, r"_pf(\d)"),
            "one_stage": float("stage" not in name),
        }
        found |= {"ps": float("_ps_" in name), "vs": float("_vs_" in name)}
    return found


def _parse_tile(family: str, match: re.Match[str], fields: tuple[str, ...]) -> dict[str, float]:
    sizes = dict(zip(fields, (float(each) for each in match.groups()), strict=True))
    return {"family": float(FAMILIES.index(choose("family", family, FAMILIES)))} | sizes


def _parse_number(name: str, pattern: str, default: float = 0.0) -> float:
    found = re.search(pattern, name)
    return float(found[1]) if found else default


def has_enough(data: Candidates, least: int, us: Floats) -> NDArray[np.bool_]:
    """For each row, whether its problem has at least `least` candidates with a time in `us`."""
    timed = ~np.isnan(us)
    return timed & (np.bincount(data.problem, timed)[data.problem] >= least)
