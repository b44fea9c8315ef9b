"""Tensors compared bit by bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilewright.acceptance.bit_comparison import compare_bits, count_ulps, describe_spans


def test_equal_bits_are_no_difference() -> None:
    values = np.array([1.0, np.nan, -0.0], np.float32)
    assert compare_bits("c", "fp32", values, values.copy()) is None


def test_the_first_elements_and_the_largest_difference() -> None:
    mine = np.ones((4, 8), np.float16)
    twin = mine.copy()
    twin[1, 7], twin[3, 7] = np.float16(1 + 2**-10), np.float16(1 + 3 * 2**-10)
    found = compare_bits("c", "fp16", mine, twin)
    assert found is not None
    assert (found.different, found.elements, found.max_ulps, found.nans) == (2, 32, 3.0, 0)
    assert found.shown[0] == ((1, 7), 1.0, 1 + 2**-10)
    assert found.spans == ((1, 3, 2), (7, 7, 1))
    assert describe_spans((4, 8), found.spans) == "only index 7 of dimension 1 (the last)"


def test_zeros_of_both_signs_differ_by_no_ulp() -> None:
    found = compare_bits("c", "fp32", np.array([0.0], np.float32), np.array([-0.0], np.float32))
    assert found is not None and found.max_ulps == 0.0


def test_a_nan_on_one_side_has_no_ulps() -> None:
    found = compare_bits("c", "fp32", np.array([np.nan], np.float32), np.array([1.0], np.float32))
    assert found is not None and found.max_ulps is None and found.nans == 1
    assert found.to_json()["shown"] == [[[0], "nan", 1.0]]


def test_undefined_elements_are_not_compared() -> None:
    mine, twin = np.array([1.0, 2.0]), np.array([1.0, 3.0])
    assert compare_bits("c", "fp64", mine, twin, defined=np.array([True, False])) is None


@pytest.mark.parametrize("kind", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fnuz])
def test_neighbours_are_one_ulp_apart(kind: type) -> None:
    values = np.array([1.0, -1.0, 0.25], kind)
    size = values.dtype.itemsize
    following = (values.view(f"u{size}") + 1).astype(f"u{size}").view(values.dtype)
    assert count_ulps(values, following).tolist() == [1.0, 1.0, 1.0]


def test_the_smallest_values_of_both_signs_are_two_ulps_apart() -> None:
    tiny = np.array([1], np.uint32).view(np.float32)
    assert count_ulps(tiny, -tiny).tolist() == [2.0]


def test_integers_differ_by_their_distance() -> None:
    assert count_ulps(np.array([-3], np.int32), np.array([4], np.int32)).tolist() == [7.0]
