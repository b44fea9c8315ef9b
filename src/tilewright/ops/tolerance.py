"""How far elements of an output may be from the reference: what an op gives to verification for each output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The errors that right kernels make: two float64 arrays of the output's shape.

    `limit` is the largest error of each element: 0 where it must be exact, infinite where anything may stand.
    `deviation` is the root mean square of its error over many inputs. Errors of steps that follow each other are added:
    limits as they are, deviations as those of independent numbers.
    """

    limit: Any
    deviation: Any

    def __add__(self, other: Tolerance) -> Tolerance:
        deviation = (self.deviation * self.deviation + other.deviation * other.deviation) ** 0.5
        return Tolerance(self.limit + other.limit, deviation)

    def times(self, factor: Any) -> Tolerance:
        """The errors after a multiplication by numbers that are not negative."""
        return Tolerance(self.limit * factor, self.deviation * factor)
