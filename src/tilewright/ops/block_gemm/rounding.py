"""Error bounds for sums of products: a bound for each step of a kernel, for any order of terms.

Imports NumPy: import this module only where arrays are used.

Each step has a `Tolerance`: a limit for the error of each element, and the root mean square of such errors.

**Summation, worst case.** Σ a·b over `terms` products, in the accumulator's type, in an unspecified order. Each of the
at most `terms` roundings (one less for the sums, and one for the product if products are not exact) changes a partial
result by a factor of at most 1 ± u. Together that is an error of at most γ · Σ|a||b| with γ = terms·u / (1 - terms·u),
in any order (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2). u is 2⁻²³ for fp32: the internals of
a matrix unit are not documented and may truncate instead of rounding. Integers in floating-point types are summed
exactly while Σ|a||b| is at most 2²⁴, integer types always.

**Summation of random signs.** The inputs of verification have random signs. Partial sums of j of `terms` such products
then have the magnitude N·√(j / terms) with N = √Σ(a·b)², far below Σ|a||b|. Rounding to nearest at each step gives
independent errors, with a root mean square of 0.15·√terms·u·N. Truncation does not: a partial sum keeps its sign for
many steps, so that errors of one direction add up. A step loses 0.36·u of the partial sum on average (an ulp is 0.72·u
of a number on average, half of it is lost), and Σ|partial sums| is at most the area of a Brownian path, whose root mean
square is 0.58·terms·N towards zero, and 0.61·terms·N towards minus infinity, which CDNA 3 does internally (Xie et al.,
MMA-Sim, arXiv 2511.10909): 0.22·terms·u·N. So the assumption is: at most one truncation of up to u for each product, in
any direction. `deviation` is (terms + 1)/4·u·N, which also covers few terms. The error is normally distributed for many
terms. Less than 10⁻¹⁸ of the elements are beyond SIGMAS = 8 deviations (9 of the true ones), so that the probability of
a false alarm among 10⁹ elements is 10⁻⁹. The limit is the smaller of both.

**Subnormals.** The matrix instructions of some GPUs (`Arch.numbers.halves_flushed`) treat subnormal fp16 and bf16
inputs as zero: the contribution of these inputs may be missing. Any sum may lose results below the smallest normal
fp32.

**Storing.** A value is rounded to the stored type: half an ulp. CK Tile truncates when it converts to bf16
(CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT in ck_tile/core/config.hpp), and rounds with newer ROCm headers: one ulp covers
both. Integer types truncate: less than 1. A value that is exact so far and that the type can represent is stored
exactly. The deviation of a uniform distribution up to the limit is 1/√3 of it. A value with a simple fraction (a third)
has the same distance to the type's next value wherever it occurs: that distance is used if it is larger.

**Adding.** Parts are added atomically in the stored type, in any order: one rounding less than there are parts, each of
a sum of parts, which is at most Σ|part|. Integers are often exactly between two values of the type: every second error
is the full limit, and the deviation is 1/√2 of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.blockwise import compute_blockwise
from tilewright.arch.number_formats import Floats, compute_spacing, find_format, is_integer
from tilewright.arch.spec import Arch
from tilewright.ops.tolerance import Tolerance

# Largest relative error of one step of a sum, by accumulator.
STEP = {"fp32": 2.0**-23, "fp64": 2.0**-52}
# No error of a sum of random signs has this many deviations.
SIGMAS = 8.0
# The error of storing in ulps of a type, if it is not half an ulp.
STORE_ULPS = {"bf16": 1.0}
# Types whose subnormals some GPUs treat as zero.
FLUSHED = ("fp16", "bf16")
# A sum of products of two operands, such as `np.matmul`.
Product = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
# An element-wise error, from arrays of one shape.
Bound = Callable[..., Tolerance]


class SumTypes(NamedTuple):
    """The types of sums of products that are stored."""

    a: str
    b: str
    c: str
    accumulator: str


class ProductMagnitudes(NamedTuple):
    """Magnitudes of sums of products, for each element: Σ|a||b|, and √Σ(a·b)², the magnitude if signs are random."""

    magnitude: Floats
    norm: Floats


def to_float64(values: NDArray[Any]) -> Floats:
    """The values in float64, which represents every type exactly."""
    return np.asarray(values, dtype=np.float64)


def has_only_integers(*arrays: Floats) -> bool:
    """Whether all values of all arrays are integers."""
    return all(bool(np.all(array == np.rint(array))) for array in arrays)


def make_exact_tolerance(like: NDArray[Any]) -> Tolerance:
    """A tolerance of zero with an array's shape."""
    return Tolerance(np.zeros(like.shape), np.zeros(like.shape))


def compute_product_error(
    product: Product, a: Floats, b: Floats, terms: int, accumulator: str, arch: Arch
) -> Tolerance:
    """The error of sums of products, where `product(a, b)` sums `terms` of them for each element."""
    sums, bound = _prepare_product_bound(product, (a, b), terms, accumulator, arch)
    return make_exact_tolerance(sums[0]) if bound is None else _bound_blockwise(bound, *sums)


def compute_stored_product_error(
    product: Product, operands: tuple[Floats, Floats], values: Floats, terms: int, types: SumTypes, arch: Arch
) -> Tolerance:
    """The error of sums of products after storing them; `values` are the exact sums.

    The same as `compute_product_error` and `compute_flush_error`, then `add_store_error`. Here most errors before
    storing are computed block by block, because arrays for all of them would be new pages, which take longer.
    """
    sums, bound = _prepare_product_bound(product, operands, terms, types.accumulator, arch)
    flushed = compute_flush_error(product, operands, (types.a, types.b), arch)
    if bound is None or types.c == types.accumulator or not flushed.is_exact:
        off = make_exact_tolerance(sums[0]) if bound is None else _bound_blockwise(bound, *sums)
        return add_store_error(values, off + flushed, types.c, types.accumulator, arch)

    def bound_stored(values: Floats, *sums: NDArray[np.float32]) -> Tolerance:
        off = bound(*sums)
        return off + compute_store_error(values, off, types.c, types.accumulator, arch)

    return _bound_blockwise(bound_stored, values, *sums)


def _prepare_product_bound(
    product: Product, operands: tuple[Floats, Floats], terms: int, accumulator: str, arch: Arch
) -> tuple[tuple[NDArray[np.float32], ...], Bound | None]:
    """Sums over the terms of each element, and the element-wise function of them that bounds the error; None instead
    if the sums are exact."""
    a, b = (_to_magnitudes(each) for each in operands)
    sums, whole = product(a, b), has_only_integers(*operands)
    if _is_summed_exactly(_bound_magnitude(float(sums.max(initial=0.0)), terms), accumulator, arch, whole=whole):
        return (sums,), None

    def bound(sums: NDArray[np.float32], squares: NDArray[np.float32]) -> Tolerance:
        return _bound_sum_error(_to_sizes(sums, squares, terms), terms, accumulator, arch, whole=whole)

    return (sums, product(a * a, b * b)), bound


def _bound_blockwise(bound: Bound, *arrays: NDArray[Any]) -> Tolerance:
    """An element-wise error, computed block by block."""

    def compute(*parts: NDArray[Any]) -> tuple[Floats, Floats]:
        each = bound(*parts)
        return each.limit, each.deviation

    return Tolerance(*compute_blockwise(compute, *arrays))


def compute_magnitudes(product: Product, a: Floats, b: Floats, terms: int) -> ProductMagnitudes:
    """Magnitudes of sums of products, where `product(a, b)` sums `terms` of them for each element."""
    narrow_a, narrow_b = _to_magnitudes(a), _to_magnitudes(b)
    return _to_sizes(product(narrow_a, narrow_b), product(narrow_a * narrow_a, narrow_b * narrow_b), terms)


def _to_magnitudes(values: Floats) -> NDArray[np.float32]:
    """Absolute values in fp32, in which products are twice as fast."""
    narrow = values.astype(np.float32)
    return np.abs(narrow, out=narrow)


def _to_sizes(sums: NDArray[np.float32], squares: NDArray[np.float32], terms: int) -> ProductMagnitudes:
    """Magnitudes of sums of products from such sums in fp32. The magnitude is still an upper bound."""
    magnitude = _bound_magnitude(to_float64(sums), terms)
    norm = np.sqrt(squares).astype(np.float64)  # in fp32 a root takes a quarter of the time
    # Squares may be too small for fp32; and Σ|a||b| is at most √terms · N.
    return ProductMagnitudes(magnitude, np.maximum(norm, magnitude * max(1, terms) ** -0.5, out=norm))


def _bound_magnitude(sums: Any, terms: int) -> Any:
    """At least Σ|a||b|, if its terms were added up in fp32."""
    return sums * (1 + terms * 2.0**-24)


def compute_sum_error(sizes: ProductMagnitudes, terms: int, accumulator: str, arch: Arch, *, whole: bool) -> Tolerance:
    """The error of sums of `terms` products of random signs; of integers if `whole` is set."""
    if _is_summed_exactly(float(sizes.magnitude.max(initial=0.0)), accumulator, arch, whole=whole):
        return make_exact_tolerance(sizes.magnitude)
    return _bound_sum_error(sizes, terms, accumulator, arch, whole=whole)


def _is_summed_exactly(magnitude: float, accumulator: str, arch: Arch, *, whole: bool) -> bool:
    """Whether no sum up to this magnitude has an error."""
    return is_integer(accumulator) or (whole and magnitude <= find_format(accumulator, arch).integers)


def _bound_sum_error(sizes: ProductMagnitudes, terms: int, accumulator: str, arch: Arch, *, whole: bool) -> Tolerance:
    step, kind = STEP[accumulator], find_format(accumulator, arch)
    worst = terms * step / (1 - terms * step) * sizes.magnitude
    deviation = (terms + 1) / 4 * step * sizes.norm
    np.minimum(deviation, worst, out=deviation)
    limit = SIGMAS * deviation
    np.minimum(worst, limit, out=limit)
    lost = terms * kind.smallest_normal
    limit += lost
    deviation += lost
    found = Tolerance(limit, deviation)
    return found.scale(sizes.magnitude > kind.integers) if whole else found


def reduce_limit(off: Tolerance) -> Tolerance:
    """Errors of random signs with the limit reduced to at most SIGMAS deviations."""
    return Tolerance(np.minimum(off.limit, SIGMAS * off.deviation), off.deviation)


def is_flushed(dtype_a: str, arch: Arch) -> bool:
    """Whether the GPU treats subnormal inputs of this type as zero."""
    return arch.numbers.halves_flushed and dtype_a in FLUSHED


def drop_subnormals(values: Floats, name: str, arch: Arch) -> Floats:
    """The values with subnormals flushed to zero, as some GPUs do."""
    return np.where(np.abs(values) < find_format(name, arch).smallest_normal, 0.0, values)


def compute_flush_error(
    product: Product, operands: tuple[Floats, Floats], names: tuple[str, str], arch: Arch
) -> Tolerance:
    """The error of treating all subnormal operands of a sum of products as zero, if the GPU does."""
    lost = np.zeros(())
    if is_flushed(names[0], arch):
        a, b = (np.abs(each) for each in operands)
        kept_a, kept_b = (drop_subnormals(each, name, arch) for each, name in zip((a, b), names, strict=True))
        if not (np.array_equal(kept_a, a) and np.array_equal(kept_b, b)):
            single = np.float32
            lost = to_float64(product((a - kept_a).astype(single), b.astype(single)))
            lost += to_float64(product(kept_a.astype(single), (b - kept_b).astype(single)))
    return Tolerance(lost, lost)


def add_store_error(values: Floats, off: Tolerance, name: str, computed: str, arch: Arch) -> Tolerance:
    """The error of values after storing them in a type, if it is `off` before and they were computed in `computed`."""
    if name == computed:
        return off
    if off.is_exact:  # no array of zeros is read or added
        none = Tolerance(np.zeros(()), np.zeros(()))
        return _bound_blockwise(lambda values: compute_store_error(values, none, name, computed, arch), values)

    def bound(values: Floats, limit: Floats, deviation: Floats) -> Tolerance:
        before = Tolerance(limit, deviation)
        return before + compute_store_error(values, before, name, computed, arch)

    return _bound_blockwise(bound, values, off.limit, off.deviation)


def compute_store_error(values: Floats, off: Tolerance, name: str, computed: str, arch: Arch) -> Tolerance:
    """The error of storing values in a type, if their own error is `off` and they were computed in `computed`."""
    if name == computed:
        return make_exact_tolerance(off.limit)
    ulp = compute_spacing(values, name, arch)
    if off.limit.max(initial=0.0) > 0:
        reach = np.abs(values)
        reach = np.add(reach, off.limit, out=reach) if reach.shape == off.limit.shape else reach + off.limit
        lost = compute_spacing(reach, name, arch)
        lost *= _ulps(name)
    else:
        lost = _ulps(name) * ulp
    apart = _compute_distance(values, ulp, name)
    deviation = lost * (1 / 3**0.5)  # a division takes four times as long
    np.maximum(deviation, apart, out=deviation)
    if not off.limit.min(initial=np.inf) > 0:
        inexact = apart != 0 if off.limit.ndim == 0 else (off.limit != 0) | (apart != 0)
        # With a random mask a product takes an eighth of the time of `where`, which guesses branches.
        lost *= inexact
        deviation *= inexact
    return Tolerance(lost, deviation)


def _compute_distance(values: Floats, ulp: Floats, name: str) -> Floats:
    """The distance of values to the nearest value of a type, or to the next one towards zero if it is truncated.

    Rounding a type that is truncated is also correct, and has no larger error.
    """
    steps = values / ulp
    steps -= np.trunc(steps) if _is_cut_off(name) else np.rint(steps)
    np.abs(steps, out=steps)
    steps *= ulp
    return steps


def compute_rounding_error(reach: Floats, name: str, arch: Arch, *, exact: NDArray[np.bool_]) -> Tolerance:
    """The error of one rounding to a floating-point type, of values up to `reach` in magnitude.

    `exact` marks integers without error: they are not rounded while the type represents all integers of their size.
    """
    held = exact & (reach <= find_format(name, arch).integers)
    lost = np.where(held, 0.0, _ulps(name) * compute_spacing(reach, name, arch))
    return Tolerance(lost, lost / 2**0.5)


def repeat_error(each: Tolerance, count: int, name: str) -> Tolerance:
    """The error of `count` roundings to a type. Errors of truncation add up, others are independent."""
    return Tolerance(count * each.limit, (count if _is_cut_off(name) else count**0.5) * each.deviation)


def compute_add_error(reach: Floats, parts: int, name: str, arch: Arch, *, exact: NDArray[np.bool_]) -> Tolerance:
    """The error of adding parts in a type, if the sum of their absolute values is `reach`; `exact` as above."""
    if is_integer(name):
        return make_exact_tolerance(reach)
    return repeat_error(compute_rounding_error(reach, name, arch, exact=exact), parts - 1, name)


def _is_cut_off(name: str) -> bool:
    return name in STORE_ULPS or is_integer(name)


def _ulps(name: str) -> float:
    return STORE_ULPS.get(name, 1.0 if is_integer(name) else 0.5)
