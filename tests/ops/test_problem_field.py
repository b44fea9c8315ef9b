"""Declared fields of problems: checks, values that defaults stand for, and descriptions."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import InitVar
from typing import Any

import pytest

import tilewright as tw
from tilewright.base.errors import InvalidValueError, UnknownValueError
from tilewright.ops import OPS, load_problem
from tilewright.ops.fields import ChoiceType, FlagType
from tilewright.ops.op import Op
from tilewright.ops.problem_field import (
    Derived,
    ExtentsType,
    IntegerType,
    NumberType,
    ProblemBase,
    list_declared_fields,
    problem_field,
    problem_shorthand,
)
from tilewright.ops.problem_list import list_parameters


class Sums(ProblemBase):
    """Rows that are summed."""

    rows: int = problem_field(IntegerType(), "number of rows")
    columns: int = problem_field(IntegerType(0), "elements of a row", default=0, stands_for="rows")
    both: InitVar[int | None] = problem_shorthand("an integer", "rows and columns at once", default=None)
    order: str = problem_field(ChoiceType(("row", "col")), "memory order", default="row")
    exact: bool = problem_field(FlagType(), "sums without rounding", default=False)
    share: float = problem_field(
        NumberType(0, 1), "share of the rows", default=0.0, stands_for=Derived("1 / rows", lambda p: 1 / p.rows)
    )

    def __post_init__(self, both: int | None) -> None:
        if both is not None:
            self.__dict__.update(rows=both, columns=both)
        super().__post_init__()

    def check_values(self) -> None:
        if self.exact and self.order == "col":
            raise InvalidValueError("exact sums need order=row")


def test_defaults_stand_for_other_values() -> None:
    assert Sums(rows=4) == Sums(rows=4, columns=4, share=0.25)
    assert Sums(rows=4, columns=2).columns == 2
    assert Sums(rows=1, both=3) == Sums(rows=3)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rows": 0}, "rows is 0, must be at least 1"),
        ({"rows": "4"}, "rows must be an integer, got '4'"),
        ({"rows": 4, "columns": True}, "columns must be an integer, got True"),
        ({"rows": 4, "order": "rwo"}, "unknown order 'rwo'. Did you mean 'row'?"),
        ({"rows": 4, "exact": "yes"}, "unknown exact 'yes'"),
        ({"rows": 4, "share": 1.0}, "share is 1.0, must be at least 0 and below 1"),
        ({"rows": 4, "share": float("nan")}, "share is nan, must be finite"),
        ({"rows": 4, "exact": True, "order": "col"}, "exact sums need order=row"),
    ],
)
def test_values_are_checked(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        Sums(**values)
    assert str(caught.value).startswith(message)


def test_a_problem_is_a_frozen_dataclass() -> None:
    problem = Sums(rows=4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem.rows = 5  # type: ignore[misc]
    assert problem == copy.deepcopy(problem) == pickle.loads(pickle.dumps(problem))
    assert hash(problem) == hash(dataclasses.replace(problem))
    assert [field.name for field in dataclasses.fields(problem)] == ["rows", "columns", "order", "exact", "share"]
    assert list(inspect.signature(Sums).parameters) == list(list_declared_fields(Sums))


def test_fields_are_described() -> None:
    fields = list_declared_fields(Sums)
    assert {name: (field.kind.describe(), field.describe_default()) for name, field in fields.items()} == {
        "rows": ("integer, at least 1", ""),
        "columns": ("integer, at least 0", "0: the same as rows"),
        "both": ("an integer", ""),
        "order": ("row, col", "row"),
        "exact": ("false, true", "false"),
        "share": ("number, at least 0 and below 1", "0.0: 1 / rows"),
    }
    assert [field.name for field in fields.values() if field.required] == ["rows"]
    assert ExtentsType(0).describe() == "28x28 or one integer, each at least 0"


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_field_of_every_op_is_declared(op: Op) -> None:
    fields = list_declared_fields(op.problem_type)
    assert list(fields) == list(list_parameters(op))
    assert all(field.doc and field.kind.describe() for field in fields.values())


def test_a_misspelt_field_names_the_nearest() -> None:
    with pytest.raises(UnknownValueError, match=r"unknown field of a fmha problem 'familyy'\. Did you mean 'family'"):
        tw.fmha.Problem(familyy="forward", dtype="fp16", seqlen_q=64, hdim_q=64)  # type: ignore[call-arg]
    with pytest.raises(UnknownValueError, match=r"unknown field of a problem 'hdim'\. Did you mean 'hdim_"):
        load_problem(tw.fmha.Problem, {"family": "forward", "dtype": "fp16", "seqlen_q": 64, "hdim": 64})
