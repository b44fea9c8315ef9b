"""The arithmetic of estimates.

An estimate is one formula with three uses: for one kernel with Python's numbers, for many with NumPy arrays, and
translated to C for programs without Python. The model inputs of a problem are computed by one formula in Python and in
C. So both may use only the operators + - * / // ** and comparisons, and these functions, and nothing that needs a truth
value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

# A float, a NumPy array of floats, or an expression that is translated to C.
Number = Any


# Plain numbers are the most frequent arguments, so each function handles them first.
_PLAIN = (int, float)


def maximum(first: Number, *others: Number) -> Number:
    """The largest, element by element."""
    for other in others:
        if isinstance(first, _PLAIN) and isinstance(other, _PLAIN):
            first = first if first >= other else other
        else:
            first = _apply("maximum", first, other)
    return first


def minimum(first: Number, *others: Number) -> Number:
    """The smallest, element by element."""
    for other in others:
        if isinstance(first, _PLAIN) and isinstance(other, _PLAIN):
            first = first if first <= other else other
        else:
            first = _apply("minimum", first, other)
    return first


def where(condition: Number, yes: Number, no: Number) -> Number:
    """`yes` where the condition holds, else `no`. Both are computed: neither may divide by zero."""
    if isinstance(condition, _PLAIN) and isinstance(yes, _PLAIN) and isinstance(no, _PLAIN):
        return yes if condition else no
    return _apply("where", condition, yes, no)


def ceil_div(value: Number, divisor: Number) -> Number:
    """The quotient, rounded up."""
    return -(-value // divisor)


def log2(value: Number) -> Number:
    """The logarithm of base 2 of a positive number."""
    return math.log2(value) if isinstance(value, _PLAIN) else _apply("log2", value)


def sqrt(value: Number) -> Number:
    """The square root of a number."""
    return math.sqrt(value) if isinstance(value, _PLAIN) else _apply("sqrt", value)


def gcd(first: Number, second: Number) -> Number:
    """The greatest common divisor of positive integers."""
    if isinstance(first, int) and isinstance(second, int):
        return math.gcd(first, second)
    return _apply("gcd", first, second)


def make_floats(numbers: Mapping[str, Number]) -> dict[str, Number]:
    """Integers and truth values as floats. Arrays and expressions keep their type."""
    return {name: 1.0 * number for name, number in numbers.items()}


def _apply(name: str, *arguments: Number) -> Number:
    """Apply the implementation for the arguments' types: for expressions, else for arrays."""
    for each in arguments:
        # An object that is neither a number nor an array implements the function itself: see `Expression`.
        traced = getattr(each, "apply_operation", None)
        if traced is not None:
            return traced(name, arguments)
    import numpy  # noqa: PLC0415  (only if there are arrays)

    return getattr(numpy, name)(*arguments)
