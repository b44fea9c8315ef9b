"""Operations as Python functions over arrays, compiled once from their expressions, and the functions that expressions
may call."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tilewright.emulator.isa import fma_and_division, integer_functions
from tilewright.emulator.isa.float_functions import FLOAT_FUNCTIONS, Function
from tilewright.emulator.isa.lookup import trig_preop
from tilewright.emulator.isa.operation import TYPES, Array, Operation, to_bits
from tilewright.emulator.isa.small_floats import SMALL_FUNCTIONS

NAMES = "abcd"

_OPERATORS: dict[type[ast.AST], np.ufunc] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.BitAnd: np.bitwise_and,
    ast.BitOr: np.bitwise_or,
    ast.BitXor: np.bitwise_xor,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}


def _make_conversion(kind: np.dtype[Any]) -> Function:
    """Return a cast. Integers keep their lowest bits; floats are rounded to nearest, ties to even."""

    def convert(x: Any) -> Array:
        return np.asarray(x).astype(kind, copy=False)

    return convert


def _make_float_view(kind: np.dtype[Any]) -> Function:
    def to_float(bits: Array) -> Array:
        return bits.view(kind)

    return to_float


def _list_public(module: Any) -> dict[str, Function]:
    return {
        name: value
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    }


# The functions that expressions may call. functions.h has the same in C; tests compare the names and the results.
FUNCTIONS: dict[str, Function] = {
    **{name: _make_conversion(kind) for name, kind in TYPES.items()},
    **_list_public(integer_functions),
    **_list_public(fma_and_division),
    **FLOAT_FUNCTIONS,
    **SMALL_FUNCTIONS,
    "trig_preop": trig_preop,
    "select": np.where,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "negation": np.logical_not,
    "bits16": to_bits,
    "bits32": to_bits,
    "bits64": to_bits,
    "float16": _make_float_view(TYPES["f16"]),
    "float32": _make_float_view(TYPES["f32"]),
    "float64": _make_float_view(TYPES["f64"]),
}
# Functions that are ufuncs themselves.
_UFUNCS = {name: function for name, function in FUNCTIONS.items() if isinstance(function, np.ufunc)}


@dataclass(frozen=True, slots=True)
class DirectUfunc:
    """An expression that is a single ufunc of sources: it can write to its destination without a temporary."""

    ufunc: np.ufunc
    order: tuple[int, ...]  # the indices of its sources


def make_function(expression: str, count: int, extra: str = "") -> Callable[..., Array]:
    """Return the function of the first `count` sources, and of `extra` if given ("r", the result)."""
    return _compile_expression(expression, ", ".join([*NAMES[:count], *extra]))


@cache
def _compile_expression(expression: str, arguments: str) -> Callable[..., Array]:
    code = compile(f"lambda {arguments}: {expression}", f"<operation {expression}>", "eval")
    function: Callable[..., Array] = eval(code, dict[str, Any](FUNCTIONS))
    return function


def find_direct_ufunc(operation: Operation) -> DirectUfunc | None:
    """Return the single ufunc of an operation whose sources all have its result type (or that returns a mask)."""
    kinds = set(operation.sources)
    if len(kinds) != 1 or (operation.result != "mask" and kinds != {operation.result}):
        return None
    node = ast.parse(operation.expression, mode="eval").body
    if isinstance(node, ast.BinOp):
        return _make_direct(_OPERATORS.get(type(node.op)), [node.left, node.right])
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _make_direct(_OPERATORS.get(type(node.ops[0])), [node.left, *node.comparators])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _make_direct(_UFUNCS.get(node.func.id), node.args)
    return None


def _make_direct(ufunc: np.ufunc | None, arguments: list[ast.expr]) -> DirectUfunc | None:
    if ufunc is None or not all(isinstance(argument, ast.Name) for argument in arguments):
        return None
    return DirectUfunc(
        ufunc, tuple(NAMES.index(argument.id) for argument in arguments if isinstance(argument, ast.Name))
    )
