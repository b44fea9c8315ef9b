"""Problems of rescale: run-time facts, tensors, and the C struct with which a kernel is called."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ops.call_struct import CallStruct, declare_number, declare_numbers, declare_pointer
from tilewright.ops.execution import Tensor
from tilewright.ops.fields import ChoiceType
from tilewright.ops.problem_field import IntegerType, NumberType, ProblemBase, problem_field
from tilewright.ops.strides import check_strides

# Types of x and y, with their names in C++.
DTYPES = {"fp32": "float", "fp16": "_Float16"}


class Problem(ProblemBase):
    """y = factor · x, with n elements."""

    n: int = problem_field(IntegerType(), "elements of x and y")
    dtype: str = problem_field(ChoiceType(tuple(DTYPES)), "type of x and y", default="fp32")
    factor: float = problem_field(NumberType(), "factor, rounded to fp32", default=2.0)


def list_tensors(problem: Problem) -> tuple[Tensor, ...]:
    """All tensors, inputs first, with shape and strides in elements."""
    shape, strides = (problem.n,), (1,)
    return (Tensor("x", problem.dtype, shape, strides), Tensor("y", problem.dtype, shape, strides, output=True))


def apply_strides(problem: Problem, strides: Mapping[str, tuple[int, ...]]) -> Problem:
    """The problem for tensors with these strides. This op accepts contiguous tensors only."""
    check_strides(list_tensors(problem), strides, "rescale", "copy it")
    return problem


# The C header, the call and its arguments follow from this declaration. Add new members at the end.
CALL = CallStruct(
    op="rescale",
    title="rescale",
    doc="y = factor * x, with n elements.",
    problem_type=Problem,
    members=(
        declare_pointer("x"),
        declare_pointer("y", c_type="void"),
        *declare_numbers("n"),
        declare_number("factor", c_type="double"),
    ),
    places=lambda _: ("x", "y"),
)
