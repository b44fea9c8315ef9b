"""The allowed difference of an output from the reference, which an op computes for verification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tilewright.arch.number_formats import Floats


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The errors of correct kernels: two float64 arrays of the output's shape.

    `limit` is the largest error of each element: 0 if it must be exact, infinite if any value is allowed. `deviation`
    is the root mean square of its error over many inputs. Errors of consecutive steps are added: limits linearly,
    deviations as those of independent numbers.
    """

    limit: Floats
    deviation: Floats

    @property
    def is_exact(self) -> bool:
        """Whether no element may have an error."""
        return bool(self.limit.max(initial=0.0) == 0 and self.deviation.max(initial=0.0) == 0)

    def __add__(self, other: Tolerance) -> Tolerance:
        # Many steps are exact, and their errors would take longer to add than to compute.
        if other.is_exact and _covers(self, other):
            return self
        if self.is_exact and _covers(other, self):
            return other
        deviation = (self.deviation * self.deviation + other.deviation * other.deviation) ** 0.5
        return Tolerance(self.limit + other.limit, deviation)

    def scale(self, factor: Floats | NDArray[np.bool_] | float) -> Tolerance:
        """The errors after a multiplication by non-negative numbers."""
        return Tolerance(self.limit * factor, self.deviation * factor)


def _covers(of: Tolerance, other: Tolerance) -> bool:
    """Whether a sum of both has the shape of the first."""
    shape = of.limit.shape
    return of.deviation.shape == shape and {other.limit.shape, other.deviation.shape} <= {(), shape}
