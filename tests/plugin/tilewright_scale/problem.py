"""What is scaled: n elements, and how far apart they are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    n: int
    dtype: str = "fp32"
    stride_x: int = 1
    stride_y: int = 1
    # None: the factor of the kernel that computes it. Named otherwise, for a field of the config's name is fixed by it.
    times: int | None = None
