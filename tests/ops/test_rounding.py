"""The bounds of single steps, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import arch as archs
from tilewright.ops.block_gemm.random_values import SmallIntegers, choose_small_integers, draw_wide_numbers
from tilewright.ops.block_gemm.rounding import (
    SIGMAS,
    ProductMagnitudes,
    compute_add_error,
    compute_magnitudes,
    compute_rounding_error,
    compute_store_error,
    compute_sum_error,
    drop_subnormals,
    has_only_integers,
    is_flushed,
    make_exact_tolerance,
)
from tilewright.ops.tolerance import Tolerance

GFX942, GFX90A = archs.load("gfx942"), archs.load("gfx90a")
NO, YES = np.array([False]), np.array([True])


def one(value: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array([value])


def off_by(value: float) -> Tolerance:
    return Tolerance(one(value), one(value))


def alike(value: float, terms: int) -> ProductMagnitudes:
    """Of sums of so many products of one size whose absolute values add up to a value."""
    return ProductMagnitudes(one(value), one(value / terms**0.5))


def test_few_terms_are_off_by_a_step_each() -> None:
    terms, u = 4, 2.0**-23
    bound = compute_sum_error(alike(64.0, terms), terms, "fp32", GFX942, whole=False)
    assert bound.limit[0] == pytest.approx(terms * u / (1 - terms * u) * 64, rel=1e-12)
    assert compute_sum_error(alike(0.0, terms), terms, "fp32", GFX942, whole=False).limit[0] == terms * 2.0**-126


def test_many_terms_are_off_by_their_root() -> None:
    """k products of size 1: N is √k, and the limit 8 · k/4 · u · √k, not k · u · k."""
    terms, u = 10_000, 2.0**-23
    bound = compute_sum_error(alike(terms, terms), terms, "fp32", GFX942, whole=False)
    assert bound.deviation[0] == pytest.approx(terms / 4 * u * 100, rel=1e-3)
    assert bound.limit[0] == pytest.approx(SIGMAS * bound.deviation[0], rel=1e-12)


@pytest.mark.parametrize("towards", ["nearest", "zero", "minus infinity"])
@pytest.mark.parametrize("terms", [1, 2, 5, 16, 64, 512])
def test_the_deviation_covers_sums_of_random_signs(towards: str, terms: int) -> None:
    """A rounding, or a cut-off, for each product. Cutting off needs most of the deviation, so it is not too wide."""
    rng, count, single = np.random.default_rng(terms), 20_000, np.float32
    total, exact, squares, magnitude = np.zeros(count, single), np.zeros(count), np.zeros(count), np.zeros(count)
    for _ in range(terms):
        product = rng.standard_normal(count) * rng.standard_normal(count)
        exact, squares, magnitude = exact + product, squares + product**2, magnitude + np.abs(product)
        near = total + product
        total = near.astype(single)
        over = np.abs(total) > np.abs(near) if towards == "zero" else total > near
        if towards != "nearest":
            total = np.where(over, np.nextafter(total, single(0 if towards == "zero" else -np.inf)), total)
    bound = compute_sum_error(ProductMagnitudes(magnitude, np.sqrt(squares)), terms, "fp32", GFX942, whole=False)
    error = np.abs(total - exact)
    spread = np.sqrt(np.mean(np.square(error / bound.deviation)))
    assert np.all(error <= bound.limit)
    assert spread < 0.9
    assert towards == "nearest" or spread > 0.8


def test_sizes_are_upper_bounds() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((20, 3000)), rng.standard_normal((3000, 30))
    sizes = compute_magnitudes(np.matmul, a, b, 3000)
    magnitude, norm = np.abs(a) @ np.abs(b), np.sqrt((a * a) @ (b * b))
    assert np.all(sizes.magnitude >= magnitude) and np.allclose(sizes.magnitude, magnitude, rtol=1e-3)
    assert np.allclose(sizes.norm, norm, rtol=1e-3)
    tiny = compute_magnitudes(np.matmul, a * 1e-30, b, 3000)  # squares are below the least number of fp32
    assert np.all(tiny.norm >= tiny.magnitude / 3000**0.5) and np.all(tiny.magnitude > 0)


def test_whole_numbers_are_summed_exactly_up_to_the_last_that_fp32_holds() -> None:
    held = 2.0**24
    assert compute_sum_error(alike(held, 10), 10, "fp32", GFX942, whole=True).limit[0] == 0
    assert compute_sum_error(alike(held + 1, 10), 10, "fp32", GFX942, whole=True).limit[0] > 0
    assert compute_sum_error(alike(held, 10), 10, "fp32", GFX942, whole=False).limit[0] > 0
    assert compute_sum_error(alike(held * 99, 10), 10, "int32", GFX942, whole=False).limit[0] == 0


@pytest.mark.parametrize(("name", "lost"), [("fp16", 2.0**-11), ("bf16", 2.0**-7), ("fp32", 0.0), ("int8", 1.0)])
def test_storing_costs_half_an_ulp_and_cutting_off_a_whole_one(name: str, lost: float) -> None:
    none = make_exact_tolerance(one(0.0))
    assert compute_store_error(one(1.3), none, name, "fp32", GFX942).limit[0] == lost
    assert compute_store_error(one(1.0), none, name, "fp32", GFX942).limit[0] == 0  # held as it is
    assert compute_store_error(one(1.0), off_by(1e-9), name, "fp32", GFX942).limit[0] == lost  # no longer known to be 1


def test_the_deviation_of_storing_is_that_of_an_even_distribution_or_the_known_distance() -> None:
    ulp, none = 2.0**-10, make_exact_tolerance(one(0.0))
    assert compute_store_error(one(1 + ulp / 16), none, "fp16", "fp32", GFX942).deviation[0] == pytest.approx(
        ulp / 12**0.5
    )
    assert compute_store_error(one(1 + ulp / 2), none, "fp16", "fp32", GFX942).deviation[0] == ulp / 2
    assert compute_store_error(one(1 + ulp * 0.9), none, "fp16", "fp32", GFX942).deviation[0] == pytest.approx(
        ulp / 12**0.5
    )
    assert compute_store_error(one(1 + ulp * 7.2), none, "bf16", "fp32", GFX942).deviation[0] == pytest.approx(
        ulp * 7.2
    )


def test_storing_looks_at_the_largest_value_it_may_be() -> None:
    assert compute_store_error(one(-1.99), off_by(0.1), "fp16", "fp32", GFX942).limit[0] == 2.0**-10


def test_parts_are_rounded_once_less_than_there_are() -> None:
    reach = one(4000.0)  # an ulp of fp16 is 2 here, one of bf16 is 16
    assert compute_rounding_error(reach, "fp16", GFX942, exact=NO).limit[0] == 1
    assert compute_add_error(reach, 4, "fp16", GFX942, exact=NO).limit[0] == 3
    assert compute_add_error(reach, 4, "bf16", GFX942, exact=NO).limit[0] == 48
    assert compute_add_error(reach, 1, "fp16", GFX942, exact=NO).limit[0] == 0
    assert compute_add_error(reach, 4, "int32", GFX942, exact=NO).limit[0] == 0


def test_parts_that_are_cut_off_add_up_and_others_do_not() -> None:
    reach = one(4000.0)
    each = {name: compute_rounding_error(reach, name, GFX942, exact=NO).deviation[0] for name in ("fp16", "bf16")}
    assert compute_add_error(reach, 5, "fp16", GFX942, exact=NO).deviation[0] == 2 * each["fp16"]
    assert compute_add_error(reach, 5, "bf16", GFX942, exact=NO).deviation[0] == 4 * each["bf16"]


def test_whole_parts_are_added_exactly_while_the_type_holds_all_whole_numbers() -> None:
    assert compute_add_error(one(2048.0), 4, "fp16", GFX942, exact=YES).limit[0] == 0
    assert compute_add_error(one(2049.0), 4, "fp16", GFX942, exact=YES).limit[0] == 3
    assert compute_add_error(one(2048.0), 4, "fp16", GFX942, exact=NO).limit[0] == 3


def test_errors_of_steps_are_added() -> None:
    both = Tolerance(one(1.0), one(0.3)) + Tolerance(one(2.0), one(0.4))
    assert both.limit[0] == 3 and both.deviation[0] == pytest.approx(0.5)
    assert both.scale(2).limit[0] == 6 and both.scale(2).deviation[0] == pytest.approx(1.0)


def test_subnormals() -> None:
    values = np.array([2.0**-14, -(2.0**-15), 1.0])
    assert drop_subnormals(values, "fp16", GFX90A).tolist() == [2.0**-14, 0.0, 1.0]
    assert is_flushed("fp16", GFX90A) and not is_flushed("fp32", GFX90A) and not is_flushed("fp16", GFX942)


def test_whole() -> None:
    assert has_only_integers(one(3.0), one(-2.0)) and not has_only_integers(one(3.0), one(0.5))


def test_numbers_shrink_with_terms_and_parts() -> None:
    """Of fp16, 768 of the 2048 whole numbers are left beside a wide one of up to 1280.

    16 terms of up to 11: four deviations of √16 · 11 · 12 / 3 are 704. 65536 terms of up to 1: four deviations of
    √65536 · 2/3 are 683; bf16 has 96 left, so that most terms must be 0.
    """
    fp16, bf16 = ("fp16",) * 3, ("bf16",) * 3
    assert choose_small_integers(fp16, 16, GFX942) == SmallIntegers(11)
    assert choose_small_integers(fp16, 16, GFX942, parts=4) == SmallIntegers(5)
    assert choose_small_integers(fp16, 65_536, GFX942) == SmallIntegers(1)
    assert choose_small_integers(bf16, 65_536, GFX942) == SmallIntegers(1, pytest.approx(96 / 4 / 256 * 3 / 2))
    assert choose_small_integers(("fp8", "fp8", "fp16"), 1, GFX942).most == 16
    assert choose_small_integers(("fp16", "fp16", "fp32"), 2**21, GFX942).most == 1
    assert choose_small_integers(("int8", "int8", "int32"), 10**9, GFX942) == SmallIntegers(127)


@pytest.mark.parametrize(("name", "bits"), [("fp32", 24), ("fp16", 11), ("bf16", 8), ("fp8", 4), ("bf8", 3)])
def test_wide_numbers_use_the_first_and_the_last_bit(name: str, bits: int) -> None:
    found = draw_wide_numbers(np.random.default_rng(1), (1000,), name, GFX942)
    assert np.all(np.abs(found) % 2 == 1) and set(np.sign(found)) == {1, -1}
    assert np.all(np.abs(found) > 2 ** (bits - 1)) and np.all(np.abs(found) <= max(2 ** (bits - 1) * 5 / 4, 9))
