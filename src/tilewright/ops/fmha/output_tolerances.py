"""Output tolerances of a problem, set sequence by sequence.

Imports NumPy: import this module only where arrays are at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import EllipsisType

from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.reference_forward import allocate_outputs
from tilewright.ops.fmha.sequences import TokenSequence, select_rows
from tilewright.ops.tolerance import Tolerance


class OutputTolerances:
    """The tolerances of all outputs, 0 until they are set."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._limits, self._deviations = allocate_outputs(problem), allocate_outputs(problem)

    def __contains__(self, name: str) -> bool:
        return name in self._limits

    def set_rows(
        self, name: str, sequence: TokenSequence, each: Tolerance, part: EllipsisType | slice | int = ...
    ) -> None:
        """Set the tolerance of a sequence's output, or of a part of it; do nothing if the problem lacks the output."""
        if name in self:
            select_rows(self._problem, self._limits, name, sequence)[part] = each.limit
            select_rows(self._problem, self._deviations, name, sequence)[part] = each.deviation

    def get_tolerances(self) -> dict[str, Tolerance]:
        """Return the tolerances by output name."""
        return {name: Tolerance(limit, self._deviations[name]) for name, limit in self._limits.items()}


def select_tolerance_rows(
    problem: Problem, allowed: Mapping[str, Tolerance], name: str, sequence: TokenSequence
) -> Tolerance:
    """Return the part of an output's tolerance that belongs to a sequence."""
    of = allowed[name]
    limit, deviation = (select_rows(problem, {name: each}, name, sequence) for each in (of.limit, of.deviation))
    return Tolerance(limit, deviation)
