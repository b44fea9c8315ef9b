"""Parse the names of Tensile kernels: tiles and vector widths. Tensile's matrices are column-major."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import InvalidValueError

Columns = dict[str, NDArray[np.float64]]

_TILE = re.compile(r"_MT(\d+)x(\d+)x(\d+)_")
_MATRIX = re.compile(r"_MI(\d+)x(\d+)x(\d+)")
_WAVE_TILE = re.compile(r"_MIWT(\d+)_(\d+)")
# Fields with one number, and their defaults.
_NUMBERS = {
    "one_buffer": ("1LDSB", 0),
    "load_width": ("GRVW", 8),
    "read_width": ("LRVW", 8),
    "pad_b": ("LPB", 0),
    "prefetch": ("PLR", 1),
    "swapped": ("SS", 0),
    "store_read_width": ("SRVW", 0),
    "store_width": ("SVW", 0),
    "width": ("VW", 0),
    "split_load_a": ("NLCA", 0),
}


def parse_names(names: Sequence[str]) -> Columns:
    """Parse the names of kernels with matrix instructions into a column for each value."""
    rows = [_parse_name(name) for name in names]
    return {key: np.array([row[key] for row in rows], float) for key in rows[0]}


def _parse_name(name: str) -> dict[str, int]:
    tile, matrix, wave_tile = _TILE.search(name), _MATRIX.search(name), _WAVE_TILE.search(name)
    if tile is None or matrix is None or wave_tile is None:
        raise InvalidValueError(f"no tile, matrix instruction and wave tile in the Tensile name {name!r}")
    block_m, block_n, block_k = (int(each) for each in tile.groups())
    mma_m, mma_n, mma_k = (int(each) for each in matrix.groups())
    repeat_m, repeat_n = (int(each) for each in wave_tile.groups())
    found = {
        "block_m": block_m,
        "block_n": block_n,
        "block_k": block_k,
        "mma": mma_m,
        "mma_k": mma_k,
        "repeat_m": repeat_m,
        "repeat_n": repeat_n,
        "waves_m": block_m // (mma_m * repeat_m),
        "waves_n": block_n // (mma_n * repeat_n),
    }
    for key, (tag, default) in _NUMBERS.items():
        number = re.search(rf"_{tag}(\d+)", name)
        found[key] = int(number[1]) if number else default
    return found
