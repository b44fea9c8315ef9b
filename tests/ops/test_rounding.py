"""The bounds of single steps, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import arch as archs
from tilewright.ops.block_gemm.draw import largest_factor
from tilewright.ops.block_gemm.rounding import added, all_whole, flushes, rounded, stored, summed, without_subnormals

GFX942, GFX90A = archs.load("gfx942"), archs.load("gfx90a")
NO, YES = np.array([False]), np.array([True])


def one(value: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array([value])


def test_a_sum_is_off_by_a_step_for_each_term() -> None:
    terms, u = 1000, 2.0**-23
    bound = summed(one(64.0), terms, "fp32", GFX942, whole=False)[0]
    assert bound == pytest.approx(terms * u / (1 - terms * u) * 64, rel=1e-12)
    assert summed(one(0.0), terms, "fp32", GFX942, whole=False)[0] == terms * 2.0**-126


def test_whole_numbers_are_summed_exactly_up_to_the_last_that_fp32_holds() -> None:
    held = one(2.0**24)
    assert summed(held, 10, "fp32", GFX942, whole=True)[0] == 0
    assert summed(held + 1, 10, "fp32", GFX942, whole=True)[0] > 0
    assert summed(held, 10, "fp32", GFX942, whole=False)[0] > 0
    assert summed(held * 99, 10, "int32", GFX942, whole=False)[0] == 0


@pytest.mark.parametrize(("name", "lost"), [("fp16", 2.0**-11), ("bf16", 2.0**-7), ("fp32", 0.0), ("int8", 1.0)])
def test_storing_costs_half_an_ulp_and_cutting_off_a_whole_one(name: str, lost: float) -> None:
    assert stored(one(1.3), one(0.0), name, "fp32", GFX942)[0] == lost
    assert stored(one(1.0), one(0.0), name, "fp32", GFX942)[0] == 0  # held as it is
    assert stored(one(1.0), one(1e-9), name, "fp32", GFX942)[0] == lost  # no longer known to be 1


def test_storing_looks_at_the_largest_value_it_may_be() -> None:
    assert stored(one(-1.99), one(0.1), "fp16", "fp32", GFX942)[0] == 2.0**-10


def test_parts_are_rounded_once_less_than_there_are() -> None:
    reach = one(4000.0)  # an ulp of fp16 is 2 here, one of bf16 is 16
    assert rounded(reach, "fp16", GFX942, exact=NO)[0] == 1
    assert added(reach, 4, "fp16", GFX942, exact=NO)[0] == 3
    assert added(reach, 4, "bf16", GFX942, exact=NO)[0] == 48
    assert added(reach, 1, "fp16", GFX942, exact=NO)[0] == 0
    assert added(reach, 4, "int32", GFX942, exact=NO)[0] == 0


def test_whole_parts_are_added_exactly_while_the_type_holds_all_whole_numbers() -> None:
    assert added(one(2048.0), 4, "fp16", GFX942, exact=YES)[0] == 0
    assert added(one(2049.0), 4, "fp16", GFX942, exact=YES)[0] == 3
    assert added(one(2048.0), 4, "fp16", GFX942, exact=NO)[0] == 3


def test_subnormals() -> None:
    values = np.array([2.0**-14, -(2.0**-15), 1.0])
    assert without_subnormals(values, "fp16", GFX90A).tolist() == [2.0**-14, 0.0, 1.0]
    assert flushes("fp16", GFX90A) and not flushes("fp32", GFX90A) and not flushes("fp16", GFX942)


def test_whole() -> None:
    assert all_whole(one(3.0), one(-2.0)) and not all_whole(one(3.0), one(0.5))


def test_factors_shrink_with_terms_and_parts() -> None:
    """16 terms of fp16: four deviations of sqrt(16) · r² / 3 within 2048."""
    assert largest_factor(("fp16", "fp16", "fp16"), 16, GFX942) == int((2048 * 3 / 16) ** 0.5)
    assert largest_factor(("fp16", "fp16", "fp16"), 16, GFX942, parts=4) == int((2048 * 3 / 64) ** 0.5)
    assert largest_factor(("fp8", "fp8", "fp16"), 1, GFX942) == 16
    assert largest_factor(("fp16", "fp16", "fp32"), 2**21, GFX942) == 2
    assert largest_factor(("bf16", "bf16", "bf16"), 10**9, GFX942) == 1
    assert largest_factor(("int8", "int8", "int32"), 10**9, GFX942) == 127
