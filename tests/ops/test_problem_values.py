"""Values of problems as texts, and problems in messages."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from tilewright.ops.problem_text import problem_text, short_text
from tilewright.ops.problem_values import read_value, value_text


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
    assert value_text(found) == text


def test_extents_are_written_with_an_x() -> None:
    assert value_text((28, 14)) == "28x14"


def test_a_problem_in_a_message() -> None:
    problem = tw.gemm.Problem(m=64, n=32, k=16, dtype="fp16", layout="rcr")
    config = tw.gemm.OP.example_config()
    assert problem_text(problem, config) == "m=64,n=32,k=16"
    assert short_text(problem).startswith("Problem(m=64, n=32, k=16, ") and "stride" not in short_text(problem)
    assert short_text("512") == "'512'"
