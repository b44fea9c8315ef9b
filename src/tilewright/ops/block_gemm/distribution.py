"""How CK Tile distributes a tile over the threads of a work-group, and when it cannot.

Mirrors tile_distribution_encoding_pattern_2d (ck_tile/core/algorithm/static_encoding_pattern.hpp): along the
contiguous dimension x a lane takes one vector and a wave must cover the full extent; along y the waves and their
repeats must divide the extent.
"""

from __future__ import annotations


def check_coverage(*, threads: int, wave: int, y: int, x: int, vector: int, groups: int = 1) -> str | None:
    """Why a y×x tile, x contiguous, cannot be distributed over the threads; None if it can."""
    if x % vector:
        return f"its contiguous extent {x} is not a multiple of the vector width {vector}"
    share = x * y // threads
    if share == 0:
        return f"its {y}×{x} elements are fewer than the {threads} threads"
    lane_x = min(vector, share)
    lanes_x = x // lane_x
    lanes_y = wave // lanes_x
    if lanes_x * lanes_y != wave:
        return f"the {lanes_x} lanes of {lane_x} elements along its extent {x} do not divide a wave of {wave}"
    waves = threads // wave // groups
    rows = lanes_y * waves
    if rows == 0 or y % rows:
        return f"its extent {y} is not a multiple of the {rows} rows that {waves} waves of {lanes_y} rows load at once"
    return None
