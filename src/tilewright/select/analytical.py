"""How long kernels should take for a problem, by the op's own estimate."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence
from typing import Any, cast

from tilewright.ops.machine.cost import CostModel, Estimate, Facts
from tilewright.select.pool import Part

# Below this many kernels a loop is quicker than arrays.
FEW = 4


def problem_facts(cost: CostModel, problem: Any) -> Facts:
    """The numbers of a problem that estimates read."""
    return Facts(**cost.problem_numbers(problem))


def estimated_us(part: Part, problem: Any, places: Sequence[int]) -> Sequence[float]:
    """Microseconds of each of these kernels: an array if NumPy is installed, else the same numbers one by one."""
    cost = part.op.cost
    assert cost is not None
    facts, arch = problem_facts(cost, problem), part.pool.arch
    if len(places) < FEW or not has_numpy():
        return [float(cost.estimate(facts, part.rows[place], arch).us) for place in places]
    import numpy as np  # noqa: PLC0415  (an extra)

    us = cost.estimate(facts, part.facts_of(places), arch).us
    return cast("Sequence[float]", np.broadcast_to(us, (len(places),)))


def estimate_of(part: Part, problem: Any, place: int) -> Estimate:
    """The whole estimate of one kernel, with its terms."""
    cost = part.op.cost
    assert cost is not None
    return cost.estimate(problem_facts(cost, problem), part.rows[place], part.pool.arch)


@functools.cache
def has_numpy() -> bool:
    """Whether columns can be computed at once."""
    return importlib.util.find_spec("numpy") is not None
