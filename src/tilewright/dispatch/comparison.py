"""The difference between an output and its reference: of each element, and the root mean square of all.

Imports NumPy: import this module only to verify kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.blockwise import list_blocks
from tilewright.arch.number_formats import Floats
from tilewright.dispatch.poisoned_tensor import PoisonedTensor, choose_poison
from tilewright.ops.execution import Tensor
from tilewright.ops.tolerance import Tolerance

# Limits are derived, and correct kernels reach them exactly: half an ulp when a result is stored. Limits are multiplied
# by this, so that nothing depends on the last bit: correct kernels use at most two thirds of the limit.
ROOM = 1.5
# The root mean square of n errors differs from the deviation by chance, by 1/√(2 n) if they are normally distributed.
# FEW / √n is about eight times that.
FEW = 6.0


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between an output and the reference."""

    tensor: str
    element_share: float = 0.0
    rms_share: float = 0.0
    error_ulps: float = 0.0
    error_abs: float = 0.0
    error_rel: float = 0.0
    worst: tuple[int, ...] = ()
    message: str = ""


def compare_output(
    placed: PoisonedTensor, expected: Mapping[str, Any], allowed: Mapping[str, Tolerance], ulps: Floats, seed: int
) -> Difference:
    """Compare an output with the reference: each element, and the root mean square of all errors."""
    tensor, tolerance = placed.tensor, allowed[placed.tensor.name]
    given = (placed.get_values(), expected[tensor.name], tolerance.limit, tolerance.deviation, ulps)
    found, wanted, limit, deviation, ulps = (_flatten(each, tensor.shape) for each in given)
    total = _Errors()
    for part in list_blocks(found.size):
        total.add_block(part.start, found[part], wanted[part], limit[part], deviation[part], ulps[part])
    message = ""
    if total.share > 1:
        message = _describe_wrong_element(placed, total, float(found[total.worst]), float(wanted[total.worst]))
    elif total.rms > total.most_rms:
        message = (
            f"the errors of {tensor.name} are {total.rms:.3g} times as large as rounding explains (root mean square "
            f"of {total.count:,} elements), the limit is {total.most_rms:.3g}; no element exceeds its own limit, but "
            "the kernel loses precision everywhere"
        )
    return Difference(
        tensor.name,
        element_share=total.share,
        rms_share=total.rms / total.most_rms,
        error_ulps=total.ulps,
        error_abs=total.error,
        error_rel=_compute_relative_error(total.error, total.largest),
        worst=_find_index(tensor, total.worst),
        message=f"{message} (seed {seed})" if message else "",
    )


def _flatten(values: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    array = np.asarray(values)
    return (array if array.shape == shape else np.broadcast_to(array, shape)).reshape(-1)


@dataclass(slots=True)
class _Errors:
    """The errors of an output, added up block by block."""

    share: float = -1.0  # the largest ratio of an element's error to its limit
    worst: int = 0  # the first element with this share
    limit: float = 0.0  # of this element
    wrong: int = 0  # elements beyond their limits
    ulps: float = 0.0
    error: float = 0.0
    largest: float = 0.0  # of the finite expected values
    squares: float = 0.0  # the sum of (error / deviation)²
    count: int = 0  # of its terms

    @property
    def rms(self) -> float:
        """The root mean square of the errors, each divided by its deviation."""
        return (self.squares / self.count) ** 0.5 if self.count else 0.0

    @property
    def most_rms(self) -> float:
        """The limit of `rms`."""
        return ROOM * (1 + FEW / self.count**0.5) if self.count else ROOM

    def add_block(
        self, first: int, values: NDArray[Any], expected: NDArray[Any], limit: Floats, deviation: Floats, ulps: Floats
    ) -> None:
        """Add consecutive elements of the output, of which the first has this index."""
        wanted = np.asarray(expected, dtype=np.float64)
        error = compute_errors(values.astype(np.float64), wanted)
        limit = ROOM * np.asarray(limit, dtype=np.float64)
        limited = bool(np.isfinite(limit.max()))
        if not limited:
            error[np.isinf(limit)] = 0.0  # an op may leave elements undefined
        if np.isinf(error.max()):
            error[_find_expected_nan(values, wanted, limit)] = 0.0
        share = _compute_shares(error, limit)
        worst = int(np.argmax(share))
        if share[worst] > self.share:
            self.share, self.worst, self.limit = float(share[worst]), first + worst, float(limit[worst])
        if share[worst] > 1:
            self.wrong += int(np.count_nonzero(share > 1))
        self.error = max(self.error, float(error.max()))
        self.largest = max(self.largest, _find_largest(wanted))
        self._add_squares(error, None if limited else np.isfinite(limit), np.asarray(deviation, dtype=np.float64))
        error /= ulps
        self.ulps = max(self.ulps, float(error.max()))

    def _add_squares(self, error: Floats, defined: NDArray[np.bool_] | None, deviation: Floats) -> None:
        """Add the squares of elements with a deviation above 0 that are defined; None: all are."""
        if defined is None and deviation.min() > 0:  # a masked division is several times slower
            count, parts = error.size, error / deviation
        else:
            counted = deviation > 0 if defined is None else (deviation > 0) & defined
            count = int(np.count_nonzero(counted))
            parts = np.divide(error, deviation, out=np.zeros_like(error), where=counted)
        self.count += count
        self.squares += float(np.einsum("i,i->", parts, parts))  # not vdot: BLAS threads spin while they wait


def _describe_wrong_element(placed: PoisonedTensor, total: _Errors, found: float, wanted: float) -> str:
    missing = int(np.count_nonzero(placed.find_untouched()))
    index = ", ".join(map(str, _find_index(placed.tensor, total.worst)))
    return (
        f"{placed.tensor.name}[{index}] is {found:.8g}, should be {wanted:.8g} ± {total.limit:.3g}; "
        f"{total.wrong:,} of {placed.get_values().size:,} elements are wrong"
        + (f", {missing:,} were never written" if missing else "")
    )


def _find_index(tensor: Tensor, place: int) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(place, tensor.shape))


def _find_largest(values: Floats) -> float:
    """The largest finite magnitude; 0 if there is none."""
    largest = max(float(values.max()), -float(values.min()))
    if np.isfinite(largest):
        return largest
    return float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))


def _compute_relative_error(most: float, largest: float) -> float:
    """The largest error divided by the largest finite expected value: 0 without errors, infinite if all should be 0.

    Not element by element: an element near 0 may have a large error of its own size and a correct last bit.
    """
    return most / largest if largest else np.inf if most else 0.0


def _find_expected_nan(values: NDArray[Any], wanted: Floats, limit: Floats) -> NDArray[np.bool_]:
    """Elements that must be NaN, by a limit of 0, and were written so: those that were not are poison, another NaN."""
    poison = choose_poison(values.dtype)
    written = (np.ascontiguousarray(values).view(np.uint8).reshape(values.size, -1) != poison).any(axis=1)
    expected: NDArray[np.bool_] = np.isnan(wanted) & (limit == 0) & np.isnan(values.astype(np.float64)) & written
    return expected


def compute_errors(found: Floats, wanted: Floats) -> Floats:
    """The error of each element. An expected infinity is correct; a NaN never is, computed or expected."""
    with np.errstate(invalid="ignore"):
        error = np.subtract(found, wanted)
    np.abs(error, out=error)
    if not np.isfinite(error.max(initial=0.0)):  # a NaN is larger than any number
        error[~np.isfinite(error)] = np.inf
        error[found == wanted] = 0.0
    return error


def _compute_shares(error: Floats, limit: Floats) -> Floats:
    """Errors divided by their limits. If a limit is 0, any error is infinitely large."""
    least = limit.min()
    if least > 0:
        return error / limit
    if np.isnan(least):
        return np.divide(error, limit, out=np.where(error > 0, np.inf, 0.0), where=(limit > 0) & np.isfinite(error))
    with np.errstate(divide="ignore", invalid="ignore"):  # a masked division is several times slower
        share = error / limit
    return np.fmax(share, 0.0, out=share)  # 0 / 0 is not a number, which `fmax` ignores
