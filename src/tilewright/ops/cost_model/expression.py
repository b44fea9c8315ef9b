"""Numbers that record how they were computed, so that a formula can be translated to C."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tilewright.base.errors import choose
from tilewright.ops.cost_model.cost import Facts

Operand: TypeAlias = "Expression | float"
# The C code of each operation, with the operand order and the ties of `arithmetic`. Operands have parentheses if they
# need them. Numbers are doubles, so a comparison used as a number is 0 or 1.
_C: Mapping[str, Callable[..., str]] = {
    "+": lambda a, b: f"{a} + {b}",
    "-": lambda a, b: f"{a} - {b}",
    "*": lambda a, b: f"{a} * {b}",
    "/": lambda a, b: f"{a} / {b}",
    "//": lambda a, b: f"floor({a} / {b})",
    "**": lambda a, b: f"pow({_drop_parentheses(a)}, {_drop_parentheses(b)})",
    "negative": lambda a: f"-{a}",
    "<": lambda a, b: f"{a} < {b}",
    "<=": lambda a, b: f"{a} <= {b}",
    ">": lambda a, b: f"{a} > {b}",
    ">=": lambda a, b: f"{a} >= {b}",
    "==": lambda a, b: f"{a} == {b}",
    "!=": lambda a, b: f"{a} != {b}",
    "maximum": lambda a, b: f"{a} >= {b} ? {a} : {b}",
    "minimum": lambda a, b: f"{a} <= {b} ? {a} : {b}",
    "where": lambda condition, yes, no: f"{condition} ? {yes} : {no}",
    "log2": lambda a: f"log2({_drop_parentheses(a)})",
}
# C function calls need no parentheses; everything else does as part of a larger expression.
_CALLS = ("//", "**", "log2")
# These use an operand twice: it must not be computed twice.
_TWICE = ("maximum", "minimum")
# A longer formula gets its own variable.
_LINE = 88


@dataclass(frozen=True, slots=True)
class _Node:
    """One operation on earlier nodes, a variable or a constant."""

    operation: str  # of `_C`; "text" for C code
    operands: tuple[int, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class Trace:
    """All computations from some variables. Repeated computations share a node."""

    nodes: list[_Node] = field(default_factory=list)
    known: dict[_Node, int] = field(default_factory=dict)

    def add_variable(self, text: str) -> Expression:
        """A number that has this name in the C program."""
        return Expression(self, self.add_node(_Node("text", text=text)))

    def add_variables(self, struct: str, names: Iterable[str]) -> Facts:
        """Numbers that are members of a C struct, accessed through a pointer with this name."""
        return Facts(**{name: self.add_variable(f"{struct}->{name}") for name in names})

    def add_node(self, node: _Node) -> int:
        if node not in self.known:
            self.known[node] = len(self.nodes)
            self.nodes.append(node)
        return self.known[node]

    def add_operand(self, value: Operand) -> int:
        """The node of an expression or of a constant."""
        if isinstance(value, Expression):
            if value.trace is not self:
                raise TypeError("expressions of two traces cannot be combined")
            return value.number
        return self.add_node(_Node("text", text=format_constant(value)))


class Expression:
    """A number of a trace. It has no value, so it cannot be a condition: use `arithmetic.where`."""

    __slots__ = ("number", "trace")

    def __init__(self, trace: Trace, number: int) -> None:
        self.trace = trace
        self.number = number

    def apply_operation(self, name: str, arguments: Sequence[Operand]) -> Expression:
        """The result of a function of `arithmetic` or of an operator."""
        choose("operation of expressions", name, _C)
        operands = tuple(self.trace.add_operand(argument) for argument in arguments)
        return Expression(self.trace, self.trace.add_node(_Node(name, operands)))

    def __add__(self, other: Operand) -> Expression:
        # `sum` starts with 0, and adding that changes nothing.
        return self if _is_number(other, 0) else self.apply_operation("+", (self, other))

    def __radd__(self, other: Operand) -> Expression:
        return self if _is_number(other, 0) else self.apply_operation("+", (other, self))

    def __sub__(self, other: Operand) -> Expression:
        return self.apply_operation("-", (self, other))

    def __rsub__(self, other: Operand) -> Expression:
        return self.apply_operation("-", (other, self))

    def __mul__(self, other: Operand) -> Expression:
        return self if _is_number(other, 1) else self.apply_operation("*", (self, other))

    def __rmul__(self, other: Operand) -> Expression:
        return self if _is_number(other, 1) else self.apply_operation("*", (other, self))

    def __truediv__(self, other: Operand) -> Expression:
        return self if _is_number(other, 1) else self.apply_operation("/", (self, other))

    def __rtruediv__(self, other: Operand) -> Expression:
        return self.apply_operation("/", (other, self))

    def __floordiv__(self, other: Operand) -> Expression:
        return self.apply_operation("//", (self, other))

    def __rfloordiv__(self, other: Operand) -> Expression:
        return self.apply_operation("//", (other, self))

    def __pow__(self, other: Operand) -> Expression:
        # As NumPy does. For other powers, both use the C library.
        return (
            self.apply_operation("*", (self, self))
            if _is_number(other, 2)
            else self.apply_operation("**", (self, other))
        )

    def __rpow__(self, other: Operand) -> Expression:
        return self.apply_operation("**", (other, self))

    def __neg__(self) -> Expression:
        return self.apply_operation("negative", (self,))

    def __pos__(self) -> Expression:
        return self

    def __lt__(self, other: Operand) -> Expression:
        return self.apply_operation("<", (self, other))

    def __le__(self, other: Operand) -> Expression:
        return self.apply_operation("<=", (self, other))

    def __gt__(self, other: Operand) -> Expression:
        return self.apply_operation(">", (self, other))

    def __ge__(self, other: Operand) -> Expression:
        return self.apply_operation(">=", (self, other))

    def __eq__(self, other: Operand) -> Expression:  # type: ignore[override]
        return self.apply_operation("==", (self, other))

    def __ne__(self, other: Operand) -> Expression:  # type: ignore[override]
        return self.apply_operation("!=", (self, other))

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError("an expression is neither true nor false: write where(condition, yes, no)")

    def __float__(self) -> float:
        raise TypeError("an expression has no value: it is computed by the C program")


def format_constant(value: float) -> str:
    """A number as a C double literal, with all digits."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} cannot be a constant in a formula: it must be finite")
    return f"({number!r})" if number < 0 else repr(number)


def write_c_lines(results: Mapping[str, Operand]) -> list[str]:
    """C statements that compute results: assignment target (`*us`, `features[3]`) → expression or number."""
    traces = {id(value.trace): value.trace for value in results.values() if isinstance(value, Expression)}
    if len(traces) > 1:
        raise TypeError("results of two traces cannot be written together")
    trace = next(iter(traces.values()), Trace())
    wanted = {name: trace.add_operand(value) for name, value in results.items()}
    texts, lines = _format_nodes(trace, wanted.values())
    return [*lines, *(f"{name} = {_drop_parentheses(texts[number])};" for name, number in wanted.items())]


def find_variables(values: Iterable[Operand]) -> set[str]:
    """The variables that expressions depend on, by their names in C."""
    given = [value for value in values if isinstance(value, Expression)]
    found: set[str] = set()
    for trace in {id(value.trace): value.trace for value in given}.values():
        reached = _count_uses(trace, [value.number for value in given if value.trace is trace])
        texts = (trace.nodes[number] for number in reached)
        found |= {node.text for node in texts if node.operation == "text" and node.text[0].isalpha()}
    return found


def _count_uses(trace: Trace, wanted: Iterable[int]) -> dict[int, int]:
    """The nodes that results depend on, in the order of their creation, and how often each is used."""
    uses: dict[int, int] = {}
    for number in wanted:
        uses[number] = uses.get(number, 0) + 1
    for number in range(len(trace.nodes) - 1, -1, -1):  # operands come before the nodes that use them
        if number in uses:
            node = trace.nodes[number]
            for operand in node.operands:
                uses[operand] = uses.get(operand, 0) + (2 if node.operation in _TWICE else 1)
    return dict(sorted(uses.items()))


def _format_nodes(trace: Trace, wanted: Iterable[int]) -> tuple[dict[int, str], list[str]]:
    """The C code of each node, and the definitions of variables for nodes that are long or used twice."""
    texts: dict[int, str] = {}
    lines: list[str] = []
    for number, count in _count_uses(trace, wanted).items():
        node = trace.nodes[number]
        if node.operation == "text":
            texts[number] = node.text
            continue
        text = _C[node.operation](*(texts[operand] for operand in node.operands))
        if count > 1 or len(text) > _LINE:
            name = f"t{len(lines)}"
            lines.append(f"const double {name} = {text};")
            texts[number] = name
        else:
            texts[number] = text if node.operation in _CALLS else f"({text})"
    return texts, lines


def _drop_parentheses(text: str) -> str:
    """The text without its outer parentheses."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and place < len(text) - 1:
            return text
    return text[1:-1]


def _is_number(value: Operand, number: int) -> bool:
    return not isinstance(value, Expression) and value == number
