"""Comparisons of traced values whose result is known without the problem."""

from __future__ import annotations

import pytest

from tilewright.ops.in_c.trace import INTEGER, REAL, VARIABLE, TracedNode, TracedRun
from tilewright.ops.in_c.traced import Traced, make_traced


def test_an_integer_equals_itself() -> None:
    """Compilers warn about `a <= a`, and packs are compiled without warnings."""
    trace = TracedRun()
    size, same = (make_traced(trace, TracedNode(VARIABLE, INTEGER, value="p->size")) for _ in range(2))
    assert [size <= same, size >= same, size == same] == [True] * 3
    assert [size < same, size > same, size != same] == [False] * 3
    assert [size + 1 <= same + 1, size + 1 < same + 1] == [True, False]
    assert trace.decisions == []


@pytest.mark.parametrize("type_", [INTEGER, REAL])
def test_other_comparisons_are_left_to_the_program(type_: str) -> None:
    trace = TracedRun()
    names = ("p->one", "p->one", "p->other")
    one, same, other = (make_traced(trace, TracedNode(VARIABLE, type_, value=name)) for name in names)
    assert isinstance(one <= other, Traced)
    assert isinstance(one <= same, Traced) == (type_ == REAL), "a real number may not be a number"
