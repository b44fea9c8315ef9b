"""The arithmetic that estimates are written in.

An estimate is one formula with three uses: for one kernel with Python's numbers, for many with NumPy arrays, and
written out as C for programs without Python. So it may use the operators + - * / // ** and comparisons, and these
functions, and nothing that asks for a truth value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

# A float, a NumPy array of floats, or an expression that is written out as C.
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
    """How many parts of that size it takes."""
    return -(-value // divisor)


def log2(value: Number) -> Number:
    """The logarithm of base 2 of what is above zero."""
    return _apply("log2", value)


_PLAIN: Mapping[str, Callable[..., Number]] = {
    "maximum": lambda a, b: a if a >= b else b,
    "minimum": lambda a, b: a if a <= b else b,
    "where": lambda condition, yes, no: yes if condition else no,
    "log2": math.log2,
}


def _apply(name: str, *arguments: Number) -> Number:
    """A function of the kind that its arguments call for: an expression before an array before a float."""
    others = [each for each in arguments if not isinstance(each, (int, float))]
    if not others:
        return _PLAIN[name](*arguments)
    for each in others:
        # What is neither a number nor an array makes the call itself: see `Expression`.
        traced = getattr(each, "traced", None)
        if traced is not None:
            return traced(name, arguments)
    import numpy  # noqa: PLC0415  (only where there are arrays)

    return getattr(numpy, name)(*arguments)
