"""One run of a function with traced values: the expressions that it computes, and the decisions that it takes.

A function of a problem is called with values that record how they are computed (`traced`). Where it needs a truth
value, or the value of a name, the run takes one of the possible decisions. `explore` repeats the call until every
decision has been taken: the result is a tree, which `statements` writes as C.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.base.errors import InvalidValueError

VARIABLE, CONSTANT = "variable", "constant"
# Types of nodes.
INTEGER, REAL, TRUTH = "integer", "real", "truth"
# More decisions than this are surely those of an endless loop.
_MOST_LEAVES = 50_000


class UntraceableError(TypeError):
    """A function of a problem does something that cannot be translated to C."""


@dataclass(frozen=True, slots=True)
class TracedNode:
    """One operation on earlier nodes, a variable with its C text, or a constant."""

    operation: str
    type: str
    operands: tuple[int, ...] = ()
    value: Any = None  # the text of a variable, the number of a constant


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A traced value in a text: its node, and how it is written."""

    node: int
    spec: str = ""
    names: tuple[str, ...] = ()  # of a name, whose node is its number


@dataclass(frozen=True, slots=True)
class Decision:
    """A point where a run goes one of several ways: by a condition, or by the value of a variable."""

    node: int
    values: tuple[int, ...]  # of the variable; empty for a condition, which is true in the first way
    taken: int

    @property
    def ways(self) -> int:
        return len(self.values) or 2


@dataclass
class TracedRun:
    """One run. `replay` are the first decisions, by number; later ones take their first way.

    `facts` are values of variables, by their C text: those that are given, and those that follow from decisions.
    """

    replay: Sequence[int] = ()
    facts: dict[str, int] = field(default_factory=dict)
    nodes: list[TracedNode] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    placeholders: list[Placeholder] = field(default_factory=list)
    counts: dict[int, tuple[int, ...]] = field(default_factory=dict)  # possible values of variables that have few
    read: set[str] = field(default_factory=set)  # variables whose facts were used
    _known: dict[TracedNode, int] = field(default_factory=dict)
    _outcomes: dict[int, bool] = field(default_factory=dict)
    _excluded: dict[str, set[int]] = field(default_factory=dict)

    def add_node(self, node: TracedNode) -> int:
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return found

    def add_constant(self, value: float, type_: str) -> int:
        return self.add_node(TracedNode(CONSTANT, type_, value=float(value) if type_ == REAL else int(value)))

    def decide(self, number: int) -> bool:
        """The truth of a condition in this run."""
        if number in self._outcomes:
            return self._outcomes[number]
        node = self.nodes[number]
        if node.operation == VARIABLE and (known := self.find_fact(node.value)) is not None:
            return bool(known)
        if node.operation == "!=":
            return not self.decide(self.add_node(TracedNode("==", TRUTH, node.operands)))
        if node.operation == "not":
            return not self.decide(node.operands[0])
        outcome = self._take(number, (), 2) == 0
        self._outcomes[number] = outcome
        self._learn(node, outcome)
        return outcome

    def choose_value(self, number: int, values: Sequence[int]) -> int:
        """The value of a variable in this run."""
        text = self.nodes[number].value
        if self.find_fact(text) is None:
            left = tuple(value for value in values if value not in self._excluded.get(text, ()))
            self.facts[text] = left[0] if len(left) == 1 else left[self._take(number, left, len(left))]
        return self.facts[text]

    def get_fact(self, number: int) -> int | None:
        """The value of a variable, if it is known."""
        node = self.nodes[number]
        return self.find_fact(node.value) if node.operation == VARIABLE else None

    def find_fact(self, variable: str) -> int | None:
        """The value of a variable, by its C text, if it is known."""
        known = self.facts.get(variable)
        if known is not None:
            self.read.add(variable)
        return known

    def is_excluded(self, number: int, value: int) -> bool:
        node = self.nodes[number]
        return node.operation == VARIABLE and value in self._excluded.get(node.value, ())

    def _take(self, number: int, values: tuple[int, ...], ways: int) -> int:
        place = len(self.decisions)
        taken = self.replay[place] if place < len(self.replay) else 0
        assert taken < ways
        self.decisions.append(Decision(number, values, taken))
        return taken

    def _learn(self, node: TracedNode, outcome: bool) -> None:
        if node.operation == VARIABLE:
            self.facts[node.value] = int(outcome)
        if node.operation not in ("==", "!="):
            return
        left, right = (self.nodes[operand] for operand in node.operands)
        if left.operation == VARIABLE and right.operation == CONSTANT and left.type != REAL:
            if outcome == (node.operation == "=="):
                self.facts[left.value] = right.value
            else:
                excluded = self._excluded.setdefault(left.value, set())
                excluded.add(right.value)
                rest = [value for value in self.counts.get(node.operands[0], ()) if value not in excluded]
                if len(rest) == 1:
                    self.facts[left.value] = rest[0]


@dataclass(frozen=True)
class RaisedError:
    """The result of a run that ended with an `InvalidValueError`: its message, with placeholders."""

    message: str


@dataclass(frozen=True)
class Leaf:
    """The result of one run."""

    trace: TracedRun
    result: Any


@dataclass(frozen=True)
class Fork:
    """A decision, and the tree of each way. `trace` has the nodes of the decision."""

    trace: TracedRun
    decision: Decision
    ways: tuple[Tree, ...]


Tree = Leaf | Fork


def explore(run: Callable[[TracedRun], Any], facts: Mapping[str, int] | None = None) -> Tree:
    """Call a function with traces until all decisions are taken."""
    leaves = 0

    def grow(taken: list[int]) -> Tree:
        nonlocal leaves
        leaves += 1
        if leaves > _MOST_LEAVES:
            raise UntraceableError(f"a function of a problem takes more than {_MOST_LEAVES:,} ways")
        trace = TracedRun(taken, dict(facts or {}))
        try:
            tree: Tree = Leaf(trace, run(trace))
        except InvalidValueError as error:
            tree = Leaf(trace, RaisedError(str(error)))
        made = [decision.taken for decision in trace.decisions]
        for place in range(len(made) - 1, len(taken) - 1, -1):
            decision = trace.decisions[place]
            others = (grow([*made[:place], way]) for way in range(1, decision.ways))
            tree = Fork(trace, decision, (tree, *others))
        return tree

    return grow([])


def list_leaves(tree: Tree) -> list[Leaf]:
    """All results, in the order of the decisions."""
    return [tree] if isinstance(tree, Leaf) else [leaf for way in tree.ways for leaf in list_leaves(way)]
