"""What is computed: y = factor · x + b of n elements, or one step of it."""

from __future__ import annotations

from dataclasses import dataclass

WHOLE, SCALE, ADD = STEPS = ("whole", "scale", "add")


@dataclass(frozen=True)
class Problem:
    """`count` is for how many parts there is room between the steps; the whole problem leaves it to the kernels.

    With `onto`, y is added to; with `both` there is a second output, z = -y.
    """

    step: str
    n: int
    factor: float = 2.0
    count: int = 1
    onto: bool = False
    both: bool = False
