"""Traced values: integers, real numbers, truth values and names that record how they are computed.

They support the operators of Python, the functions of `cost_model.arithmetic`, and formatting. A truth value decides
the run's way where Python needs one; so does a name that is used as a key, and a small integer that is used as a count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from tilewright.base.errors import choose
from tilewright.ops.in_c.trace import (
    CONSTANT,
    INTEGER,
    REAL,
    TRUTH,
    VARIABLE,
    Placeholder,
    TracedNode,
    TracedRun,
    UntraceableError,
)

# Marks placeholders in texts; no message contains these characters.
START, END = "\x01", "\x02"
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
# Functions of `arithmetic`: the result is real if an argument is.
_FUNCTIONS = ("maximum", "minimum", "where", "log2", "sqrt", "gcd")
_ALWAYS_REAL = ("/", "log2", "sqrt", "**")
# An integer that is used as a count must have at most this many possible values.
_MOST_COUNTS = 64


class Traced:
    """A number or truth value of a run."""

    __slots__ = ("node", "trace")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: TracedRun, node: int) -> None:
        self.trace = trace
        self.node = node

    @property
    def type(self) -> str:
        return self.trace.nodes[self.node].type

    def apply_operation(self, name: str, arguments: Sequence[Any]) -> Any:
        """The result of a function of `arithmetic` or of an operator."""
        if name not in _COMPARISONS and name not in ("+", "-", "*", "/", "//", "%", "**", "negative", "round"):
            choose("operation of traced values", name, _FUNCTIONS)
        values = arguments[1:] if name == "where" else arguments
        real = name in _ALWAYS_REAL or any(_get_type(value) == REAL for value in values)
        nodes = [_add_operand(self.trace, value, REAL if real else INTEGER) for value in values]
        if name == "where":
            if not isinstance(arguments[0], Traced):
                return values[0] if arguments[0] else values[1]
            nodes.insert(0, _add_operand(self.trace, arguments[0], TRUTH))
        if name in _COMPARISONS:
            return _compare(self.trace, name, nodes)
        type_ = INTEGER if name == "round" else REAL if real else INTEGER
        return make_traced(self.trace, TracedNode(name, type_, tuple(nodes)))

    def __add__(self, other: Any) -> Any:
        return self if _is_number(other, 0) else self.apply_operation("+", (self, other))

    def __radd__(self, other: Any) -> Any:
        return self if _is_number(other, 0) else self.apply_operation("+", (other, self))

    def __sub__(self, other: Any) -> Any:
        return self if _is_number(other, 0) else self.apply_operation("-", (self, other))

    def __rsub__(self, other: Any) -> Any:
        return self.apply_operation("-", (other, self))

    def __mul__(self, other: Any) -> Any:
        return self if _is_number(other, 1) else self.apply_operation("*", (self, other))

    def __rmul__(self, other: Any) -> Any:
        if isinstance(other, (list, tuple)):
            return other * self.__index__()
        return self if _is_number(other, 1) else self.apply_operation("*", (other, self))

    def __truediv__(self, other: Any) -> Any:
        return self.apply_operation("/", (self, other))

    def __rtruediv__(self, other: Any) -> Any:
        return self.apply_operation("/", (other, self))

    def __floordiv__(self, other: Any) -> Any:
        return self.apply_operation("//", (self, other))

    def __rfloordiv__(self, other: Any) -> Any:
        return self.apply_operation("//", (other, self))

    def __mod__(self, other: Any) -> Any:
        return self.apply_operation("%", (self, other))

    def __rmod__(self, other: Any) -> Any:
        return self.apply_operation("%", (other, self))

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __pow__(self, other: Any) -> Any:
        return self * self if _is_number(other, 2) else self.apply_operation("**", (self, other))

    def __neg__(self) -> Any:
        return self.apply_operation("negative", (self,))

    def __round__(self) -> Any:
        return self.apply_operation("round", (self,))

    def __lt__(self, other: Any) -> Any:
        return self.apply_operation("<", (self, other))

    def __le__(self, other: Any) -> Any:
        return self.apply_operation("<=", (self, other))

    def __gt__(self, other: Any) -> Any:
        return self.apply_operation(">", (self, other))

    def __ge__(self, other: Any) -> Any:
        return self.apply_operation(">=", (self, other))

    def __eq__(self, other: object) -> Any:
        return self.apply_operation("==", (self, other))

    def __ne__(self, other: object) -> Any:
        return self.apply_operation("!=", (self, other))

    def __bool__(self) -> bool:
        if self.type == TRUTH:
            return self.trace.decide(self.node)
        return bool(self != 0)

    def __float__(self) -> float:
        raise UntraceableError("a traced value has no number: use the functions of cost_model.arithmetic")

    def __index__(self) -> int:
        """The value of an integer that is used as a count. All of its variables must have few possible values."""
        if self.type == TRUTH:
            return int(bool(self))
        return _compute(self.trace, self.node)

    def __format__(self, spec: str) -> str:
        return add_placeholder(self.trace, Placeholder(self.node, spec))

    def __str__(self) -> str:
        return self.__format__("")

    __repr__ = __str__


class Name(str):
    """A field that takes names. Its text is a placeholder, so that it can be a part of a message.

    It is equal to a name on some ways of a run. Used as a key or letter by letter, it has one value on each way.
    """

    trace: TracedRun
    node: int
    names: tuple[str, ...]

    @classmethod
    def create(cls, trace: TracedRun, node: int, names: tuple[str, ...]) -> Self:
        made = cls(add_placeholder(trace, Placeholder(node, "", names)))
        made.trace, made.node, made.names = trace, node, names
        trace.counts[node] = tuple(range(1, len(names) + 1))
        return made

    @property
    def value(self) -> str:
        """The name on this way of the run."""
        return self.names[self.trace.choose_value(self.node, self.trace.counts[self.node]) - 1]

    def __eq__(self, other: object) -> Any:
        if isinstance(other, Name):
            return self.value == other.value
        if not isinstance(other, str) or other not in self.names:
            return False
        number = self.names.index(other) + 1
        known = self.trace.get_fact(self.node)
        if known is not None or self.trace.is_excluded(self.node, number):
            return known == number
        return _compare(self.trace, "==", [self.node, self.trace.add_constant(number, INTEGER)])

    def __ne__(self, other: object) -> Any:
        same = self == other
        return (not same) if isinstance(same, bool) else _negate(same)

    def __hash__(self) -> int:
        return hash(self.value)

    def __getitem__(self, place: Any) -> str:
        return self.value[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __contains__(self, part: object) -> bool:
        return str(part) in self.value


def _on_value(method: str) -> Callable[..., Any]:
    return lambda name, *arguments, **options: getattr(name.value, method)(*arguments, **options)


for _method in dir(str):
    if not _method.startswith("_"):
        setattr(Name, _method, _on_value(_method))


def make_traced(trace: TracedRun, node: TracedNode) -> Traced:
    return Traced(trace, trace.add_node(node))


def add_variable(trace: TracedRun, text: str, type_: str) -> Traced:
    """A value that is this text in the C program."""
    return make_traced(trace, TracedNode(VARIABLE, type_, value=text))


def add_integer(trace: TracedRun, text: str, least: int, most: int) -> Traced:
    """An integer; if it has few possible values, it can be used as a count."""
    made = add_variable(trace, text, INTEGER)
    if most - least < _MOST_COUNTS:
        trace.counts[made.node] = tuple(range(least, most + 1))
    return made


def add_placeholder(trace: TracedRun, placeholder: Placeholder) -> str:
    trace.placeholders.append(placeholder)
    return f"{START}{len(trace.placeholders) - 1}{END}"


def _compare(trace: TracedRun, name: str, nodes: Sequence[int]) -> Traced | bool:
    left, right = (trace.nodes[number] for number in nodes)
    # Equal expressions have one node. Compilers warn about comparisons of a variable with itself.
    if nodes[0] == nodes[1] and left.type != REAL:
        return name in ("<=", ">=", "==")
    known = trace.get_fact(nodes[0])
    if known is not None and right.operation == CONSTANT and left.type != REAL:
        return bool(_PYTHON[name](known, right.value))
    if left.type == TRUTH and right.operation == CONSTANT and name in ("==", "!="):
        same = Traced(trace, nodes[0])
        return same if (name == "==") == bool(right.value) else _negate(same)
    return make_traced(trace, TracedNode(name, TRUTH, tuple(nodes)))


def _negate(condition: Traced) -> Traced:
    return make_traced(condition.trace, TracedNode("not", TRUTH, (condition.node,)))


_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "maximum": max,
    "minimum": min,
}


def _compute(trace: TracedRun, number: int) -> int:
    """The value of an integer, from those of its variables on this way of the run."""
    node = trace.nodes[number]
    if node.operation == CONSTANT:
        return int(node.value)
    if node.operation == VARIABLE:
        if number not in trace.counts and trace.get_fact(number) is None:
            raise UntraceableError(f"{node.value} is used as a count, but it has too many possible values")
        return trace.choose_value(number, trace.counts.get(number, ()))
    if node.operation not in _PYTHON:
        raise UntraceableError(f"the result of {node.operation} is used as a count")
    return int(_PYTHON[node.operation](*(_compute(trace, operand) for operand in node.operands)))


def _get_type(value: Any) -> str:
    if isinstance(value, Traced):
        return value.type
    return REAL if isinstance(value, float) else INTEGER


def _add_operand(trace: TracedRun, value: Any, wanted: str) -> int:
    """The node of a value, converted to a real number if that is wanted."""
    if isinstance(value, Traced):
        if value.trace is not trace:
            raise UntraceableError("values of two runs cannot be combined")
        if wanted == REAL and value.type != REAL:
            return trace.add_node(TracedNode("real", REAL, (value.node,)))
        return value.node
    if not isinstance(value, (bool, int, float)):
        raise UntraceableError(f"a traced value is combined with {value!r}")
    return trace.add_constant(value, REAL if wanted == REAL else INTEGER)


def _is_number(value: Any, number: int) -> bool:
    return type(value) is int and value == number
