"""Operations as Python functions over arrays, compiled once from their expressions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tilewright.emulator.isa.functions import FUNCTIONS
from tilewright.emulator.isa.operation import Array, Operation

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
