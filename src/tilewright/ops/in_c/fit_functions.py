"""The fit rules of kernels as C functions.

Each rule is translated for each group of kernels whose fields it reads in the same way. It may rely on the rules before
it: `facts` are the values of problem fields that follow from them. Functions that differ in constants only are written
once; each kernel has the constants.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.in_c.problem_struct import ProblemStruct, StructProblem
from tilewright.ops.in_c.statements import open_constants, quote_c, write_message, write_tree
from tilewright.ops.in_c.trace import Leaf, RaisedError, Tree, UntraceableError, explore, list_leaves
from tilewright.ops.kernel import Kernel
from tilewright.ops.rule import Rule

Facts = Mapping[str, int]
# As many as a pack has ops and GPUs, usually.
_MOST_KEPT = 16
_translated: dict[Any, FitFunctions] = {}


@dataclass(frozen=True, slots=True)
class FitCheck:
    """One check of a kernel: the number of its rule, of its C function, and where its constants begin."""

    rule: int
    function: int
    constants: int


@dataclass(frozen=True)
class FitFunctions:
    """The C functions of all checks, each as its statements; their constants; the checks of each kernel in order; and
    the facts about problems that each kernel supports."""

    functions: tuple[tuple[str, ...], ...]
    constants: tuple[str, ...]
    checks: tuple[tuple[FitCheck, ...], ...]
    facts: tuple[Facts, ...]


def translate_fit_rules(
    struct: ProblemStruct, rules: Sequence[Rule], kernels: Sequence[Kernel], arch: Arch
) -> FitFunctions:
    """Translate the fit rules of kernels of one op. The result for the last kernels is kept: rankings need it, too."""
    key = (struct.problem_type, tuple(kernels), arch.name, arch.ck.generation, tuple(rule.code for rule in rules))
    if key not in _translated:
        work = _Translation(struct, arch)
        found = [work.translate_kernel(rules, kernel) for kernel in kernels]
        checks, facts = zip(*found, strict=True)
        if len(_translated) >= _MOST_KEPT:
            _translated.clear()
        _translated[key] = FitFunctions(tuple(work.functions), tuple(work.constants), checks, facts)
    return _translated[key]


@dataclass(frozen=True, slots=True)
class _Translated:
    """A rule for a group of kernels: the facts that it relies on, its check, and the facts that follow from it."""

    needed: Facts
    check: FitCheck | None
    learned: Facts


@dataclass
class _Translation:
    struct: ProblemStruct
    arch: Arch
    functions: dict[tuple[str, ...], int] = field(default_factory=dict)
    constants: list[str] = field(default_factory=list)
    _known: dict[Any, list[_Translated]] = field(default_factory=dict)
    _places: dict[tuple[str, ...], int] = field(default_factory=dict)

    def translate_kernel(self, rules: Sequence[Rule], kernel: Kernel) -> tuple[tuple[FitCheck, ...], Facts]:
        facts: Facts = {}
        checks = []
        for number, rule in enumerate(rules):
            check, facts = self._translate_rule(number, rule, kernel.config, facts)
            if check is not None:
                checks.append(check)
        return tuple(checks), facts

    def _translate_rule(self, number: int, rule: Rule, config: Any, facts: Facts) -> tuple[FitCheck | None, Facts]:
        read: Callable[[Any], object] = operator.attrgetter(*rule.reads) if rule.reads else bool
        values = read(config) if rule.group_key is None else rule.group_key(config, self.arch)
        known = self._known.setdefault((number, values), [])
        for entry in known:
            if all(facts.get(name) == value for name, value in entry.needed.items()):
                return entry.check, {**facts, **entry.learned}
        try:
            tree = explore(lambda trace: rule.check(config, StructProblem(self.struct, trace), self.arch), facts)
        except UntraceableError as error:
            raise UntraceableError(f"rule {rule.code} {rule.slug} of {self.struct.op}: {error}") from error
        used = {name for leaf in list_leaves(tree) for name in leaf.trace.read}
        needed = {name: value for name, value in facts.items() if name in used}
        learned = {name: value for name, value in _find_facts(tree).items() if name not in facts}
        known.append(_Translated(needed, self._add_check(number, tree), learned))
        return known[-1].check, {**facts, **known[-1].learned}

    def _add_check(self, number: int, tree: Tree) -> FitCheck | None:
        lines, constants = open_constants(write_tree(tree, self._write_verdict), "k")
        if not any("return 1;" in line for line in lines):
            return None
        function = self.functions.setdefault(tuple(lines), len(self.functions))
        place = self._places.get(tuple(constants))
        if place is None:
            place = self._places[tuple(constants)] = len(self.constants)
            self.constants += constants
        return FitCheck(number, function, place)

    def _write_verdict(self, leaf: Leaf) -> list[str]:
        if leaf.result is None:
            return ["return 0;"]
        if isinstance(leaf.result, RaisedError):  # a function that the rule calls rejects the problem itself
            return [*write_message(leaf.trace, leaf.result.message, self.struct.tables), "return 1;"]
        lines = write_message(leaf.trace, leaf.result.message, self.struct.tables)
        return [*lines, f"*field = {quote_c(leaf.result.field)};", "return 1;"]


def _find_facts(tree: Tree) -> Facts:
    """The values of fields with which a problem passes a rule, whatever way it takes."""
    found: dict[str, int] | None = None
    for leaf in list_leaves(tree):
        if leaf.result is None:
            facts = leaf.trace.facts
            found = dict(facts) if found is None else {name: v for name, v in found.items() if facts.get(name) == v}
    return found or {}
