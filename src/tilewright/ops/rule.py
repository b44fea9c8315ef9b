"""Rules: what makes a config illegal, said with numbers.

A rule is a function `check(config, arch)` that returns None or a `Fault`. It reads only the fields it
declares, so that a search over a space can apply it as soon as those fields are bound. Its docstring is its
documentation: the first paragraph says what, then `Why:` and `Fix:`.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from tilewright.arch.spec import Arch

# Who would notice a violation if the rule did not exist: the compiler refuses the source, the built kernel's
# `supports` refuses every problem, results are wrong on the device, or nobody (a limit that is ours).
Enforcer = Literal["compiler", "supports", "device", "tilewright"]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a rule refuses: the message with its numbers, the field to look at, and a legal value near by."""

    message: str
    field: str = ""
    nearest: Any = None


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule and its fault: the value that a rejection is."""

    code: str
    slug: str
    message: str
    field: str
    nearest: Any
    fix: str

    def __str__(self) -> str:
        return f"{self.code} {self.slug}: {self.message}"


@dataclass(frozen=True)
class Rule:
    """One rule. `good` and `bad` are field overrides of the op's example config that pass and fail it.

    `tells`, if given, is all that the rule makes of a config: where it is equal, so is the answer. It lets many kernels
    be asked about at once whose fields differ, but not what follows from them.
    """

    code: str
    slug: str
    reads: tuple[str, ...]
    enforced_by: Enforcer
    check: Callable[..., Fault | None]
    good: Mapping[str, Any]
    bad: Mapping[str, Any]
    arch: str
    what: str
    why: str
    fix: str
    tells: Callable[[Any, Arch], Hashable] | None = None

    def violation(self, *subjects: Any) -> Violation | None:
        """None when the rule passes, else what is wrong."""
        fault = self.check(*subjects)
        if fault is None:
            return None
        return Violation(self.code, self.slug, fault.message, fault.field, fault.nearest, self.fix)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One rule's answer about one config."""

    rule: Rule
    violation: Violation | None

    @property
    def passed(self) -> bool:
        return self.violation is None


def rule(
    code: str,
    slug: str,
    *,
    reads: Sequence[str],
    enforced_by: Enforcer,
    good: Mapping[str, Any],
    bad: Mapping[str, Any],
    arch: str = "gfx942",
    tells: Callable[[Any, Arch], Hashable] | None = None,
) -> Callable[[Callable[..., Fault | None]], Rule]:
    """Make a rule of a check function; `arch` is the GPU on which the examples hold."""

    def make(check: Callable[..., Fault | None]) -> Rule:
        what, why, fix = _sections(check)
        return Rule(code, slug, tuple(reads), enforced_by, check, good, bad, arch, what, why, fix, tells)

    return make


def _sections(check: Callable[..., Any]) -> tuple[str, str, str]:
    doc = inspect.getdoc(check) or ""
    match = re.fullmatch(r"(?P<what>.+?)\n\nWhy: (?P<why>.+?)\n\nFix: (?P<fix>.+)", doc, re.DOTALL)
    if match is None:
        raise ValueError(f"rule {check.__name__} must be documented as: what, 'Why: …', 'Fix: …'")
    what, why, fix = (" ".join(match[part].split()) for part in ("what", "why", "fix"))
    return what, why, fix


def verdicts(rules: Sequence[Rule], *subjects: Any) -> list[Verdict]:
    """Every rule's answer, passes as well as failures."""
    return [Verdict(rule, rule.violation(*subjects)) for rule in rules]


def violations(rules: Sequence[Rule], *subjects: Any) -> list[Violation]:
    """All that is wrong; empty for a legal config."""
    return [v.violation for v in verdicts(rules, *subjects) if v.violation is not None]


def is_legal(rules: Sequence[Rule], config: Any, arch: Arch) -> bool:
    """Whether no rule refuses."""
    return all(rule.check(config, arch) is None for rule in rules)


class Legality:
    """`is_legal` for many configs on one GPU: a rule's answer is remembered for the values it reads."""

    def __init__(self, rules: Sequence[Rule], arch: Arch) -> None:
        self.arch = arch
        self.known = [(rule, operator.attrgetter(*rule.reads), dict[Any, bool]()) for rule in rules]

    def __call__(self, config: Any) -> bool:
        for rule, read, answers in self.known:
            key = read(config)
            passes = answers.get(key)
            if passes is None:
                passes = answers[key] = rule.check(config, self.arch) is None
            if not passes:
                return False
        return True


def rules_in(*modules: ModuleType) -> tuple[Rule, ...]:
    """All rules that modules define, in the order of their codes; a code may be used once."""
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Rule)]
    codes = [rule.code for rule in found]
    if len(set(codes)) != len(codes):
        raise ValueError(f"rule codes used twice: {sorted({c for c in codes if codes.count(c) > 1})}")
    return tuple(sorted(found, key=lambda rule: rule.code))
