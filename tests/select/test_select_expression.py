"""Formulas written out as C: what the text looks like, and that it computes what NumPy computes."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.base.errors import UnknownValueError
from tilewright.ops.cost_model.arithmetic import ceil_div, log2, maximum, minimum, where
from tilewright.ops.cost_model.cost import Facts
from tilewright.ops.cost_model.expression import Expression, Trace, find_variables, format_constant, write_c_lines


def lines(formula: Callable[[Facts], Any]) -> list[str]:
    return write_c_lines({"*us": formula(Trace().add_variables("p", ("a", "b", "c")))})


def test_what_is_computed_twice_is_written_once() -> None:
    def formula(p: Facts) -> Any:
        return (p.a * p.b + 1) / (p.a * p.b) + p.c

    assert lines(formula) == [
        "const double t0 = p->a * p->b;",
        "*us = ((t0 + 1.0) / t0) + p->c;",
    ]


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (lambda p: p.a // p.b, "floor(p->a / p->b)"),
        (lambda p: ceil_div(p.a, 304.0), "-floor((-p->a) / 304.0)"),
        (lambda p: maximum(p.a, p.b), "p->a >= p->b ? p->a : p->b"),
        (lambda p: minimum(1.0, p.b), "1.0 <= p->b ? 1.0 : p->b"),
        (lambda p: where(p.a > 0, p.b, -0.5), "(p->a > 0.0) ? p->b : (-0.5)"),
        (lambda p: (p.a <= p.b) * p.c, "(p->a <= p->b) * p->c"),
        (lambda p: p.a**2, "p->a * p->a"),
        (lambda p: (p.a + p.b) ** (1 / 3), "pow(p->a + p->b, 0.3333333333333333)"),
        (lambda p: 2**p.a, "pow(2.0, p->a)"),
        (lambda p: log2(p.a - p.b), "log2(p->a - p->b)"),
        (lambda p: p.a - (p.b - p.c), "p->a - (p->b - p->c)"),
        (lambda p: sum([p.a, p.b]), "p->a + p->b"),
        (lambda p: 1 * +p.a / 1, "p->a"),
        (lambda p: (p.a == p.b) + (p.a != p.b) + (p.a > 3) + (p.b <= 3), None),
        (lambda _: 0.1, "0.1"),
    ],
)
def test_operations_are_written_as_c_has_them(formula: Callable[[Facts], Any], text: str | None) -> None:
    written = lines(formula)

    assert text is None or written == [f"*us = {text};"]


def test_long_formulas_are_cut_into_lines() -> None:
    written = lines(lambda p: sum((p.a + i) * (p.b + i * 0.123456789) for i in range(1, 30)))

    assert len(written) > 10
    assert max(map(len, written)) < 200
    assert [line.split()[2] for line in written[:-1]] == [f"t{i}" for i in range(len(written) - 1)]


def test_constants_keep_all_of_their_digits() -> None:
    for value in (0.1, 1 / 3, 1e300, 5e-324, 2.0**53, -1.5, 16):
        assert float(format_constant(value).strip("()")) == value
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="it must be finite"):
            format_constant(value)


def test_the_variables_of_a_formula_are_known() -> None:
    trace = Trace()
    p, k = trace.add_variables("p", ("a", "b")), trace.add_variables("k", ("a", "b"))
    result = p.a * 1e6 + where(k.b > 0, 1.0, 2.0)

    assert find_variables([result, 3.0]) == {"p->a", "k->b"}
    assert find_variables([1.0]) == set()


def test_an_expression_decides_nothing() -> None:
    trace = Trace()
    a = trace.add_variable("a")

    with pytest.raises(TypeError, match="neither true nor false: write where"):
        bool(a > 1)
    with pytest.raises(TypeError, match="has no value"):
        float(a)
    with pytest.raises(TypeError, match="two traces"):
        a + Trace().add_variable("b")
    with pytest.raises(TypeError, match="two traces"):
        write_c_lines({"x": a, "y": Trace().add_variable("b")})
    with pytest.raises(UnknownValueError, match="unknown operation of expressions 'sin'"):
        a.apply_operation("sin", (a,))
    with pytest.raises(TypeError):
        hash(a)


def everything(p: Facts) -> dict[str, Any]:
    """Each operation there is, and some inside of others."""
    a, b, c = p.a, p.b, p.c
    shared = maximum(a, b * 0.5, c) + minimum(a, b, 7.0)
    return {
        "sums": a + b - c + 2 - (3 - a) - b + (1.5 + c),
        "products": a * b / c * 2.5 / (1 / a),
        "whole": a // b + ceil_div(a * 100, c) + 50 // b + (-a) // c,
        "powers": a**2 + b**3 + c**0.5 + a ** (1 / 3) + 2 ** (c / 10) + (a * b) ** -1.5,
        "choices": where(a > b, a, where(b <= c, b * 2, c * 3)) + (a < c) * b + (a >= b) * 2.0,
        "equal": (a == b) * 5 + (a != c) * 3.0,
        "logarithms": log2(a) + log2(b + c) * log2(shared),
        "shared": shared * shared + shared // 3,
        "constant": 0.1,
    }


@pytest.mark.compile
def test_c_computes_what_numpy_computes(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    from c_ranking import address, compiled

    count = 10_000
    random = np.random.default_rng(0)
    columns = 2.0 ** random.uniform(-3, 12, size=(3, count))
    columns[:, ::2] = np.round(columns[:, ::2]) + 1
    columns[1, ::5] = columns[0, ::5]
    wanted = everything(Facts(a=columns[0], b=columns[1], c=columns[2]))
    trace = Trace()
    own = Facts(**{name: trace.add_variable(f"{name}[i]") for name in "abc"})
    written = write_c_lines(
        {f"out[i * {len(wanted)} + {n}]": value for n, value in enumerate(everything(own).values())}
    )
    head = "#include <math.h>\n#include <stdint.h>\nvoid all(const double* a, const double* b, const double* c, "
    body = (
        "double* out, int64_t count)\n{\n    for(int64_t i = 0; i < count; ++i)\n    {\n" + "\n".join(written) + "\n}}"
    )
    library = compiled(tmp_path, head + body, [])
    found = np.zeros((count, len(wanted)))
    library.all(*(address(column) for column in columns), address(found), ctypes.c_int64(count))

    for place, (name, value) in enumerate(wanted.items()):
        np.testing.assert_allclose(found[:, place], value, rtol=1e-13, atol=0, err_msg=name)


@pytest.mark.parametrize("name", ["sums", "whole", "choices", "shared"])
def test_python_numbers_go_through_the_same_formula(name: str) -> None:
    np = pytest.importorskip("numpy")
    rows = np.random.default_rng(1).integers(1, 50, size=(200, 3)).astype(float)
    columns = everything(Facts(a=rows[:, 0], b=rows[:, 1], c=rows[:, 2]))[name]

    singles = [everything(Facts(a=float(a), b=float(b), c=float(c)))[name] for a, b, c in rows]
    assert singles == columns.tolist()
    assert isinstance(everything(Trace().add_variables("p", "abc"))[name], Expression)
