"""The arithmetic of estimates.

An estimate is one formula with three uses: for one kernel with Python's numbers, for many with NumPy arrays, and
translated to C for programs without Python. The model inputs of a problem are computed by one formula in Python and in
C. So both may use only the operators + - * / // ** and comparisons, and these functions, and nothing that needs a truth
value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

# A float, a NumPy array of floats, or an expression that is translated to C.
Number = Any


def maximum(first: Number, *others: Number) -> Number:
    """The largest, element by element."""
    for other in others:
        first = _apply("maximum", first, other)
    return first


def minimum(first: Number, *others: Number) -> Number:
    """The smallest, element by element."""
    for other in others:
        first = _apply("minimum", first, other)
    return first


def where(condition: Number, yes: Number, no: Number) -> Number:
    """`yes` where the condition holds, else `no`. Both are computed: neither may divide by zero."""
    return _apply("where", condition, yes, no)


def ceil_div(value: Number, divisor: Number) -> Number:
    """The quotient, rounded up."""
    return -(-value // divisor)


def log2(value: Number) -> Number:
    """The logarithm of base 2 of a positive number."""
    return _apply("log2", value)


def make_floats(numbers: Mapping[str, Number]) -> dict[str, Number]:
    """Integers and truth values as floats. Arrays and expressions keep their type."""
    return {name: 1.0 * number for name, number in numbers.items()}


_PLAIN: Mapping[str, Callable[..., Number]] = {
    "maximum": lambda a, b: a if a >= b else b,
    "minimum": lambda a, b: a if a <= b else b,
    "where": lambda condition, yes, no: yes if condition else no,
    "log2": math.log2,
}


def _apply(name: str, *arguments: Number) -> Number:
    """Apply the implementation for the arguments' types: for expressions, else for arrays, else for floats."""
    for each in arguments:
        if not isinstance(each, (int, float)):
            break
    else:
        return _PLAIN[name](*arguments)
    for each in arguments:
        # An object that is neither a number nor an array implements the function itself: see `Expression`.
        traced = getattr(each, "apply_operation", None)
        if traced is not None:
            return traced(name, arguments)
    import numpy  # noqa: PLC0415  (only if there are arrays)

    return getattr(numpy, name)(*arguments)
