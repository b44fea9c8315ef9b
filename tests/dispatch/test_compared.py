"""Results held against a reference: each element by itself, and all errors together."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilewright.arch.blockwise import BLOCK
from tilewright.dispatch.comparison import FEW, ROOM, Difference, compare_output
from tilewright.dispatch.poisoned_tensor import PoisonedTensor
from tilewright.dispatch.verify import Check
from tilewright.ops.execution import Tensor
from tilewright.ops.tolerance import Tolerance

SHAPE = (30, 40)
ONES = np.ones(SHAPE)


def judged(errors: object, limit: object = 1.0, deviation: object = 0.25) -> Difference:
    """A result of 100 everywhere that is off by so much."""
    placed = PoisonedTensor(Tensor("c", "fp32", SHAPE, (SHAPE[1], 1), output=True), np.dtype(np.float32), None)
    placed.get_values()[...] = 100 + np.asarray(errors)
    allowed = {"c": Tolerance(ONES * limit, ONES * deviation)}
    return compare_output(placed, {"c": 100 * ONES}, allowed, ONES, seed=1)


def test_an_element_beyond_its_limit_is_named() -> None:
    errors = np.zeros(SHAPE)
    errors[3, 7] = 4 * ROOM
    found = judged(errors)
    assert (found.worst, found.element_share) == ((3, 7), 4.0)
    assert found.message.startswith("c[3, 7] is 106, should be 100 ± 1.5; 1 of 1,200 elements are wrong")


def test_errors_in_the_units_of_other_tools() -> None:
    errors = np.zeros(SHAPE)
    errors[3, 7], errors[4, 4] = -0.5, 0.25
    found = judged(errors)
    assert (found.error_abs, found.error_rel) == (0.5, 0.005)
    assert (judged(0.0).error_abs, judged(0.0).error_rel) == (0.0, 0.0)
    undefined = np.where(errors < 0, np.inf, 1.0)
    assert (judged(errors, undefined).error_abs, judged(errors, undefined).error_rel) == (0.25, 0.0025)


def test_errors_that_are_too_large_everywhere_are_wrong_though_no_element_is() -> None:
    most = ROOM * (1 + FEW / 1200**0.5)
    right, wrong = judged(0.25 * most * 0.99), judged(0.25 * most * 1.01)
    assert right.message == "" and right.rms_share == pytest.approx(0.99, abs=1e-4)
    assert wrong.element_share < 0.5 and wrong.rms_share == pytest.approx(1.01, abs=1e-4)
    assert "the errors of c are 1.78 times as large as rounding explains" in wrong.message
    assert "1,200 elements" in wrong.message and "no element exceeds its own limit" in wrong.message


def test_elements_that_are_exact_or_open_do_not_count_as_small_errors() -> None:
    """Errors of a row of 40: elements without any error must not hide them."""
    errors, deviation, limit = np.zeros(SHAPE), np.zeros(SHAPE), np.zeros(SHAPE)
    errors[0], deviation[0], limit[0] = 0.9, 0.25, 1.0
    assert "40 elements" in judged(errors, limit, deviation).message
    deviation[1:], limit[1:] = 0.25, np.inf
    assert "40 elements" in judged(errors, limit, deviation).message


def test_an_exact_element_has_no_room() -> None:
    errors = np.zeros(SHAPE)
    errors[0, 0] = 1e-4
    found = judged(errors, 0.0, 0.0)
    assert found.element_share == np.inf and found.message


def test_nan_is_right_only_where_it_must_be_and_was_written() -> None:
    tensor = Tensor("c", "fp32", (4,), (1,), output=True)
    expected, limit = np.array([1, 2, np.nan, 4]), np.array([1, 1, 0, 1.0])

    def judge(values: list[float], limit: object = limit) -> str:
        placed = PoisonedTensor(tensor, np.dtype(np.float32), None)
        for index, value in enumerate(values):
            placed.get_values()[index] = value
        return compare_output(placed, {"c": expected}, {"c": Tolerance(limit, limit)}, np.ones(4), 1).message

    assert judge([1, 2, np.nan, 4]) == ""
    assert judge([1, 2, 3, 4]).startswith("c[2] is 3, should be nan")
    assert judge([1, np.nan, np.nan, 4]).startswith("c[1] is nan, should be 2")
    assert judge([1, 2]).startswith("c[2] is nan, should be nan")  # poison
    assert judge([1, 2, np.nan, 4], np.ones(4)).startswith("c[2] is nan, should be nan")


def test_elements_of_all_blocks_are_compared() -> None:
    shape = (5, BLOCK // 2)
    placed = PoisonedTensor(Tensor("c", "fp32", shape, (BLOCK, 1), output=True), np.dtype(np.float32), None)
    ones = np.ones(shape)
    placed.get_values()[...] = ones
    placed.get_values()[3, 7], placed.get_values()[4, 9], placed.get_values()[0, 1] = 4.0, 4.0, 2.0
    found = compare_output(placed, {"c": ones}, {"c": Tolerance(ones, np.where(ones, 0.25, 0))}, ones, seed=1)
    assert (found.worst, found.element_share, found.error_abs) == ((3, 7), 2.0, 3.0)
    assert f"2 of {ones.size:,} elements are wrong" in found.message
    assert found.rms_share == pytest.approx((19 * 16 / ones.size) ** 0.5 / (ROOM * (1 + FEW / ones.size**0.5)))


@pytest.mark.parametrize(("element", "rms", "bound"), [(0.5, 0.25, "element"), (0.25, 0.5, "rms")])
def test_a_check_says_which_bound_was_worst(element: float, rms: float, bound: str) -> None:
    check = Check(None, None, "ok", element_share=element, rms_share=rms)  # type: ignore[arg-type]
    assert (check.share, check.bound) == (0.5, bound)


FLOATS = ["float64", "float32", "float16"]
SMALL = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]


def filled(kind: np.dtype, values: object = None) -> PoisonedTensor:  # type: ignore[type-arg]
    return PoisonedTensor(Tensor("c", "", (2, 3), (4, 1), output=True), kind, values)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [*FLOATS, *SMALL])
def test_floats_are_poisoned_with_nan(name: str) -> None:
    """In all types, so that a poisoned element shows wherever it is read, even times 0."""
    kind = np.dtype(name) if name in FLOATS else np.dtype(getattr(ml_dtypes, name))
    placed = filled(kind)
    assert placed.find_untouched().all()
    assert np.isnan(placed.get_values().astype(np.float64)).all()
    assert np.isnan(placed.memory.view(kind).astype(np.float64)).all()


@pytest.mark.parametrize("name", ["int8", "uint8", "int32"])
def test_integers_that_were_never_written_are_no_usual_result(name: str) -> None:
    placed = filled(np.dtype(name))
    assert (
        placed.find_untouched().all()
        and (placed.get_values() == np.iinfo(np.int8).max * (2**24 + 2**16 + 257 if name == "int32" else 1)).all()
    )
    placed.get_values()[...] = 1
    placed.get_values()[0, 0] = -1 if name != "uint8" else 255
    assert not placed.find_untouched().any()
