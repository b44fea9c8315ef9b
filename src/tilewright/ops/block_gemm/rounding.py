"""How far sums of products may be from their exact values: bounds for each step of a kernel, in any order of terms.

Imports NumPy: import this module only where arrays are at hand.

**Summation.** Σ a·b over `terms` products, in the accumulator's type, in an order nobody promises. Each of the at most
`terms` roundings (one sum less, and one product where products are not exact) changes a partial result by a factor of
at most 1 ± u. Together that is an error of at most γ · Σ|a||b| with γ = terms·u / (1 - terms·u), in any order (Higham,
Accuracy and Stability of Numerical Algorithms, section 4.2). u is 2⁻²³ for fp32: the inside of a matrix unit is not
documented and may cut off instead of rounding. Whole numbers are summed exactly while Σ|a||b| is at most 2²⁴,
integers always.

**Subnormals.** Some GPUs' matrix instructions (`Arch.numbers.halves_flushed`) take subnormal fp16 and bf16 inputs for
zero: what these inputs contribute is allowed to be missing. Any sum may lose results below the smallest normal fp32.

**Storing.** A value is rounded to the type stored: half an ulp. CK Tile cuts off when it makes bf16
(CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT in ck_tile/core/config.hpp), and rounds with newer ROCm headers: one ulp covers
both. Integers are cut off: less than 1. A value that is exact so far and that the type holds is stored as it is.

**Adding.** Parts added atomically in the type stored, in any order: one rounding less than there are parts, each of a
sum of parts, which is at most Σ|part|.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats, format_of, is_integer, representable, spacing
from tilewright.arch.spec import Arch

# Largest relative error of one step of a sum, by accumulator.
STEP = {"fp32": 2.0**-23, "fp64": 2.0**-52}
# Ulps of a type that storing may cost, where it is not half a one.
STORE_ULPS = {"bf16": 1.0}
# Types whose subnormals some GPUs take for zero.
FLUSHED = ("fp16", "bf16")


def wide(values: NDArray[Any]) -> Floats:
    """The values in float64, which holds every type's exactly."""
    return np.asarray(values).astype(np.float64)


def all_whole(*arrays: Floats) -> bool:
    """Whether all values of all arrays are whole numbers."""
    return all(bool(np.all(array == np.rint(array))) for array in arrays)


def summed(magnitude: Floats, terms: int, accumulator: str, arch: Arch, *, whole: bool) -> Floats:
    """The error of sums of `terms` products whose absolute values add up to `magnitude`. `whole`: of whole numbers."""
    if is_integer(accumulator):
        return np.zeros_like(magnitude)
    step, kind = STEP[accumulator], format_of(accumulator, arch)
    inexact = terms * step / (1 - terms * step) * magnitude + terms * kind.smallest_normal
    return np.where(whole & (magnitude <= kind.integers), 0.0, inexact)


def flushes(dtype_a: str, arch: Arch) -> bool:
    """Whether the GPU takes subnormal inputs of this type for zero."""
    return arch.numbers.halves_flushed and dtype_a in FLUSHED


def without_subnormals(values: Floats, name: str, arch: Arch) -> Floats:
    """The values as a GPU that flushes them sees them."""
    return np.where(np.abs(values) < format_of(name, arch).smallest_normal, 0.0, values)


def stored(values: Floats, off: Floats, name: str, computed: str, arch: Arch) -> Floats:
    """The error of storing values in a type, when they are off by up to `off` and were computed in `computed`."""
    if name == computed:
        return np.zeros_like(off)
    lost = _ulps(name) * spacing(np.abs(values) + off, name, arch)
    return np.where((off == 0) & representable(values, name, arch), 0.0, lost)


def rounded(reach: Floats, name: str, arch: Arch, *, exact: NDArray[np.bool_]) -> Floats:
    """The error of one rounding to a floating-point type, of values up to `reach` in magnitude.

    `exact` says which values are whole numbers without error: they stay as they are while the type holds all such.
    """
    return np.where(exact & (reach <= format_of(name, arch).integers), 0.0, _ulps(name) * spacing(reach, name, arch))


def added(reach: Floats, parts: int, name: str, arch: Arch, *, exact: NDArray[np.bool_]) -> Floats:
    """The error of adding parts in a type, when their absolute values sum up to `reach`; `exact` as above."""
    if is_integer(name):
        return np.zeros_like(reach)
    return (parts - 1) * rounded(reach, name, arch, exact=exact)


def _ulps(name: str) -> float:
    return STORE_ULPS.get(name, 1.0 if is_integer(name) else 0.5)
