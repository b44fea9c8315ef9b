"""How far sums of products may be from their exact values: bounds for each step of a kernel, in any order of terms.

Imports NumPy: import this module only where arrays are at hand.

Each step has a `Tolerance`: a limit for the error of each element, and the root mean square that such errors have.

**Summation, worst case.** Σ a·b over `terms` products, in the accumulator's type, in an order nobody promises. Each of
the at most `terms` roundings (one sum less, and one product where products are not exact) changes a partial result by a
factor of at most 1 ± u. Together that is an error of at most γ · Σ|a||b| with γ = terms·u / (1 - terms·u), in any order
(Higham, Accuracy and Stability of Numerical Algorithms, section 4.2). u is 2⁻²³ for fp32: the inside of a matrix unit
is not documented and may cut off instead of rounding. Whole numbers are summed exactly while Σ|a||b| is at most 2²⁴,
integers always.

**Summation of random signs.** The inputs that kernels are verified with have random signs. Partial sums of j of `terms`
such products are then of the size N·√(j / terms) with N = √Σ(a·b)², far below Σ|a||b|. Rounding to nearest at each
step gives independent errors, with a root mean square of 0.15·√terms·u·N. Cutting off does not: a partial sum keeps its
sign for long, so that errors of one direction add up. A step loses 0.36·u of the partial sum in the mean (an ulp is
0.72·u of a number in the mean, half of it is lost), and Σ|partial sums| is at most a Brownian path's area, whose root
mean square is 0.58·terms·N towards zero, and 0.61·terms·N towards minus infinity, which CDNA 3 does inside (Xie et al.,
MMA-Sim, arXiv 2511.10909): 0.22·terms·u·N. So the assumption is: at most one cut-off of up to u for each product, in
whatever direction. `deviation` is (terms + 1)/4·u·N, which covers few terms, too. The error is normally distributed for
many terms; beyond SIGMAS = 8 deviations (9 of the true ones) is less than 10⁻¹⁸ of the elements, so that among 10⁹
elements there is no false alarm but with a chance of 10⁻⁹. The limit is the smaller one of both.

**Subnormals.** Some GPUs' matrix instructions (`Arch.numbers.halves_flushed`) take subnormal fp16 and bf16 inputs for
zero: what these inputs contribute is allowed to be missing. Any sum may lose results below the smallest normal fp32.

**Storing.** A value is rounded to the type stored: half an ulp. CK Tile cuts off when it makes bf16
(CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT in ck_tile/core/config.hpp), and rounds with newer ROCm headers: one ulp covers
both. Integers are cut off: less than 1. A value that is exact so far and that the type holds is stored as it is. The
deviation of an even distribution up to the limit is 1/√3 of it. A value with a simple fraction (a third) has the same
distance to the type's next value wherever it occurs: that distance counts where it is larger.

**Adding.** Parts added atomically in the type stored, in any order: one rounding less than there are parts, each of a
sum of parts, which is at most Σ|part|. Whole numbers are often just between two values of the type: every second error
is the whole limit, and the deviation is 1/√2 of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats, format_of, is_integer, spacing
from tilewright.arch.spec import Arch
from tilewright.ops.tolerance import Tolerance

# Largest relative error of one step of a sum, by accumulator.
STEP = {"fp32": 2.0**-23, "fp64": 2.0**-52}
# So many deviations no error of a sum of random signs has.
SIGMAS = 8.0
# Ulps of a type that storing may cost, where it is not half a one.
STORE_ULPS = {"bf16": 1.0}
# Types whose subnormals some GPUs take for zero.
FLUSHED = ("fp16", "bf16")


class Sizes(NamedTuple):
    """How large sums of products are, of each element: Σ|a||b|, and √Σ(a·b)², their size if signs are random."""

    magnitude: Floats
    norm: Floats


def wide(values: NDArray[Any]) -> Floats:
    """The values in float64, which holds every type's exactly."""
    return np.asarray(values).astype(np.float64)


def all_whole(*arrays: Floats) -> bool:
    """Whether all values of all arrays are whole numbers."""
    return all(bool(np.all(array == np.rint(array))) for array in arrays)


def exactly(like: Floats) -> Tolerance:
    """No error at all, for elements of an array's shape."""
    return Tolerance(np.zeros_like(like), np.zeros_like(like))


def sizes_of(product: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]], a: Floats, b: Floats, terms: int) -> Sizes:
    """How large sums of products are, where `product(a, b)` sums `terms` of them for each element.

    Computed in fp32, which is twice as quick. The magnitude is an upper bound all the same.
    """
    narrow_a, narrow_b = np.abs(a).astype(np.float32), np.abs(b).astype(np.float32)
    magnitude = wide(product(narrow_a, narrow_b)) * (1 + terms * 2.0**-24)
    norm = np.sqrt(wide(product(narrow_a * narrow_a, narrow_b * narrow_b)))
    # Squares may be too small for fp32; and Σ|a||b| is at most √terms · N.
    return Sizes(magnitude, np.maximum(norm, magnitude / max(1, terms) ** 0.5))


def summed(sizes: Sizes, terms: int, accumulator: str, arch: Arch, *, whole: bool) -> Tolerance:
    """The error of sums of `terms` products of random signs. `whole`: of whole numbers."""
    magnitude = sizes.magnitude
    if is_integer(accumulator):
        return exactly(magnitude)
    step, kind = STEP[accumulator], format_of(accumulator, arch)
    inexact = magnitude > kind.integers
    if whole and not inexact.any():
        return exactly(magnitude)
    worst = terms * step / (1 - terms * step) * magnitude
    deviation = np.minimum((terms + 1) / 4 * step * sizes.norm, worst)
    lost = terms * kind.smallest_normal
    limit, deviation = np.minimum(worst, SIGMAS * deviation) + lost, deviation + lost
    if not whole:
        return Tolerance(limit, deviation)
    return Tolerance(np.where(inexact, limit, 0.0), np.where(inexact, deviation, 0.0))


def tightened(off: Tolerance) -> Tolerance:
    """Errors of random signs with a limit that is not above so many deviations."""
    return Tolerance(np.minimum(off.limit, SIGMAS * off.deviation), off.deviation)


def flushes(dtype_a: str, arch: Arch) -> bool:
    """Whether the GPU takes subnormal inputs of this type for zero."""
    return arch.numbers.halves_flushed and dtype_a in FLUSHED


def without_subnormals(values: Floats, name: str, arch: Arch) -> Floats:
    """The values as a GPU that flushes them sees them."""
    return np.where(np.abs(values) < format_of(name, arch).smallest_normal, 0.0, values)


def flushed(
    product: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]],
    operands: tuple[Floats, Floats],
    names: tuple[str, str],
    arch: Arch,
) -> Tolerance:
    """The error of taking subnormal operands of a sum of products for zero: that of all of them, where a GPU does."""
    a, b = (np.abs(each) for each in operands)
    lost = np.zeros(())
    if flushes(names[0], arch):
        kept_a, kept_b = (without_subnormals(each, name, arch) for each, name in zip((a, b), names, strict=True))
        if not (np.array_equal(kept_a, a) and np.array_equal(kept_b, b)):
            single = np.float32
            lost = wide(product((a - kept_a).astype(single), b.astype(single)))
            lost += wide(product(kept_a.astype(single), (b - kept_b).astype(single)))
    return Tolerance(lost, lost)


def stored(values: Floats, off: Tolerance, name: str, computed: str, arch: Arch) -> Tolerance:
    """The error of storing values in a type, when they are off by up to `off` and were computed in `computed`."""
    if name == computed:
        return exactly(off.limit)
    lost = _ulps(name) * spacing(np.abs(values) + off.limit, name, arch)
    ulp = spacing(values, name, arch)
    steps = values / ulp
    # Cut-off values are that far from the next one towards zero; rounding, which is as good, is not further off.
    steps -= np.trunc(steps) if _is_cut_off(name) else np.rint(steps)
    apart = np.abs(steps, out=steps)
    apart *= ulp
    deviation = np.maximum(lost / 3**0.5, apart)
    exact = np.asarray(off.limit == 0)
    if exact.any():
        held = exact & (apart == 0)
        lost, deviation = np.where(held, 0.0, lost), np.where(held, 0.0, deviation)
    return Tolerance(lost, deviation)


def rounded(reach: Floats, name: str, arch: Arch, *, exact: NDArray[np.bool_]) -> Tolerance:
    """The error of one rounding to a floating-point type, of values up to `reach` in magnitude.

    `exact` says which values are whole numbers without error: they stay as they are while the type holds all such.
    """
    held = exact & (reach <= format_of(name, arch).integers)
    lost = np.where(held, 0.0, _ulps(name) * spacing(reach, name, arch))
    return Tolerance(lost, lost / 2**0.5)


def repeated(each: Tolerance, count: int, name: str) -> Tolerance:
    """The error of `count` roundings to a type. Those that are cut off add up, the others are independent."""
    return Tolerance(count * each.limit, (count if _is_cut_off(name) else count**0.5) * each.deviation)


def added(reach: Floats, parts: int, name: str, arch: Arch, *, exact: NDArray[np.bool_]) -> Tolerance:
    """The error of adding parts in a type, when their absolute values sum up to `reach`; `exact` as above."""
    if is_integer(name):
        return exactly(reach)
    return repeated(rounded(reach, name, arch, exact=exact), parts - 1, name)


def _is_cut_off(name: str) -> bool:
    return name in STORE_ULPS or is_integer(name)


def _ulps(name: str) -> float:
    return STORE_ULPS.get(name, 1.0 if is_integer(name) else 0.5)
