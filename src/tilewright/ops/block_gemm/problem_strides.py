"""The strides of a problem with one matrix A, B and C each: their fields, and the check of their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.base.errors import InvalidValueError
from tilewright.ops.problem_field import Derived, IntegerType, problem_field

_STRIDE = IntegerType(0)
# The elements of one line of each matrix: the packed stride.
LINES: Mapping[str, Callable[[Any], int]] = {
    "stride_a": lambda p: p.k if p.layout[0] == "r" else p.m,
    "stride_b": lambda p: p.n if p.layout[1] == "r" else p.k,
    "stride_c": lambda p: p.n,
}


def declare_stride(name: str, lines: str) -> Any:
    """The field of a problem with the distance of lines of A or B, or of rows of C; 0 stands for packed ones."""
    return problem_field(_STRIDE, f"elements between {lines}", default=0, stands_for=Derived("packed", LINES[name]))


def check_lines(problem: object) -> None:
    """Raise an error if a stride is shorter than a line."""
    for name, get_line in LINES.items():
        stride, line = getattr(problem, name), get_line(problem)
        if stride < line:
            raise InvalidValueError(f"{name} is {stride}, but one line of the matrix has {line} elements")
