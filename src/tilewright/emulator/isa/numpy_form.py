"""Operations as Python functions over arrays, compiled once from their expressions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tilewright.emulator.isa.arrays import Array
from tilewright.emulator.isa.functions import FUNCTIONS
from tilewright.emulator.isa.operation import Operation

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
class Direct:
    """An expression that is a single ufunc of sources: it can write to its destination without a temporary."""

    ufunc: np.ufunc
    order: tuple[int, ...]  # the indices of its sources


def function_of(expression: str, count: int, extra: str = "") -> Callable[..., Array]:
    """Return the function of the first `count` sources, and of `extra` if given ("r", the result)."""
    return _compiled(expression, ", ".join([*NAMES[:count], *extra]))


@cache
def _compiled(expression: str, arguments: str) -> Callable[..., Array]:
    code = compile(f"lambda {arguments}: {expression}", f"<operation {expression}>", "eval")
    function: Callable[..., Array] = eval(code, dict[str, Any](FUNCTIONS))
    return function


def direct(operation: Operation) -> Direct | None:
    """Return the single ufunc of an operation whose sources all have its result type (or that returns a mask)."""
    kinds = set(operation.sources)
    if len(kinds) != 1 or (operation.result != "mask" and kinds != {operation.result}):
        return None
    node = ast.parse(operation.expression, mode="eval").body
    if isinstance(node, ast.BinOp):
        return _of(_OPERATORS.get(type(node.op)), [node.left, node.right])
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _of(_OPERATORS.get(type(node.ops[0])), [node.left, *node.comparators])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _of(_UFUNCS.get(node.func.id), node.args)
    return None


def _of(ufunc: np.ufunc | None, arguments: list[ast.expr]) -> Direct | None:
    if ufunc is None or not all(isinstance(argument, ast.Name) for argument in arguments):
        return None
    return Direct(ufunc, tuple(NAMES.index(argument.id) for argument in arguments if isinstance(argument, ast.Name)))
