"""Tolerances of a problem's outputs, sequence by sequence.

Imports NumPy: import this module only where arrays are at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.reference_forward import outputs
from tilewright.ops.fmha.sequences import Sequence, rows
from tilewright.ops.tolerance import Tolerance


class Collected:
    """The tolerances of all outputs, 0 until they are put."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._limits, self._deviations = outputs(problem), outputs(problem)

    def __contains__(self, name: str) -> bool:
        return name in self._limits

    def put(self, name: str, sequence: Sequence, each: Tolerance, part: Any = ...) -> None:
        """Set an output of a sequence, or a part of it; nothing if the problem has no such output."""
        if name in self:
            rows(self._problem, self._limits, name, sequence)[part] = each.limit
            rows(self._problem, self._deviations, name, sequence)[part] = each.deviation

    def tolerances(self) -> dict[str, Tolerance]:
        """By name."""
        return {name: Tolerance(limit, self._deviations[name]) for name, limit in self._limits.items()}


def rows_of(problem: Problem, allowed: Mapping[str, Tolerance], name: str, sequence: Sequence) -> Tolerance:
    """What of an array of tolerances belongs to a sequence."""
    of = allowed[name]
    limit, deviation = (rows(problem, {name: each}, name, sequence) for each in (of.limit, of.deviation))
    return Tolerance(limit, deviation)
