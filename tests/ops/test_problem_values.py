"""Values of problems as texts, and problems in messages."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from tilewright.ops.problem_text import format_problem, format_short_problem
from tilewright.ops.problem_values import format_problem_value, read_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("64", 64),
        ("-1", -1),
        ("0.125", 0.125),
        ("-1.5", -1.5),
        ("1e-05", 1e-05),
        ("true", True),
        ("false", False),
        ("fp16", "fp16"),
        ("28x28", "28x28"),
        ("1.2.3", "1.2.3"),
        ("nan", "nan"),
        ("-", "-"),
    ],
)
def test_texts_are_read(text: str, value: Any) -> None:
    found = read_value(text)
    assert found == value and type(found) is type(value)
    assert format_problem_value(found) == text


def test_extents_are_written_with_an_x() -> None:
    assert format_problem_value((28, 14)) == "28x14"


def test_a_problem_in_a_message() -> None:
    problem = tw.gemm.Problem(m=64, n=32, k=16, dtype="fp16", layout="rcr")
    config = tw.gemm.OP.make_example()
    assert format_problem(problem, config) == "m=64,n=32,k=16"
    assert format_short_problem(problem).startswith(
        "Problem(m=64, n=32, k=16, "
    ) and "stride" not in format_short_problem(problem)
    assert format_short_problem("512") == "'512'"
