"""Rules: checks that reject illegal configs, with the numbers that make them illegal.

A rule is a function `check(config, arch)` that returns None or a `RejectedKernel`. It reads only the fields that it
declares, so that a search over a space can apply it as soon as those fields are bound. Its docstring is its
documentation: the first paragraph states the requirement, then follow `Why:` and `Fix:`.
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

# What detects a violation if the rule does not exist: the compiler rejects the source, the built kernel's `supports`
# rejects every problem, results on the device are wrong, or nothing (the limit is Tilewright's own).
Enforcer = Literal["compiler", "supports", "device", "tilewright"]


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a rule rejects a config: a message with numbers, the field to change, and the nearest legal value."""

    message: str
    field: str = ""
    nearest: object = None


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated rule, with the contents of its `RejectedKernel`."""

    code: str
    slug: str
    message: str
    field: str
    nearest: object
    fix: str

    def __str__(self) -> str:
        return f"{self.code} {self.slug}: {self.message}"


@dataclass(frozen=True)
class Rule:
    """One rule. `good` and `bad` are field overrides of the op's example config that pass and fail it.

    `group_key`, if given, returns a key: the rule has the same verdict for all configs with equal keys. One check then
    serves many kernels whose fields differ.
    """

    code: str
    slug: str
    reads: tuple[str, ...]
    enforced_by: Enforcer
    check: Callable[..., Rejection | None]
    good: Mapping[str, Any]
    bad: Mapping[str, Any]
    arch: str
    what: str
    why: str
    fix: str
    group_key: Callable[[Any, Arch], Hashable] | None = None

    def find_violation(self, *subjects: object) -> Violation | None:
        """The violation, or None if the rule passes."""
        fault = self.check(*subjects)
        if fault is None:
            return None
        return Violation(self.code, self.slug, fault.message, fault.field, fault.nearest, self.fix)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one rule for one config."""

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
    group_key: Callable[[Any, Arch], Hashable] | None = None,
) -> Callable[[Callable[..., Rejection | None]], Rule]:
    """Make a check function a rule. `arch` is the GPU of the examples."""

    def make_rule(check: Callable[..., Rejection | None]) -> Rule:
        what, why, fix = _parse_sections(check)
        return Rule(code, slug, tuple(reads), enforced_by, check, good, bad, arch, what, why, fix, group_key)

    return make_rule


def _parse_sections(check: Callable[..., Any]) -> tuple[str, str, str]:
    doc = inspect.getdoc(check) or ""
    match = re.fullmatch(r"(?P<what>.+?)\n\nWhy: (?P<why>.+?)\n\nFix: (?P<fix>.+)", doc, re.DOTALL)
    if match is None:
        raise ValueError(f"rule {check.__name__} must be documented as: what, 'Why: …', 'Fix: …'")
    what, why, fix = (" ".join(match[part].split()) for part in ("what", "why", "fix"))
    return what, why, fix


def list_verdicts(rules: Sequence[Rule], *subjects: object) -> list[Verdict]:
    """The verdict of every rule, passes as well as failures."""
    return [Verdict(rule, rule.find_violation(*subjects)) for rule in rules]


def find_violations(rules: Sequence[Rule], *subjects: object) -> list[Violation]:
    """All violations; empty for a legal config."""
    return [v.violation for v in list_verdicts(rules, *subjects) if v.violation is not None]


def is_legal(rules: Sequence[Rule], config: object, arch: Arch) -> bool:
    """Whether no rule rejects the config."""
    return all(rule.check(config, arch) is None for rule in rules)


class Legality:
    """`is_legal` for many configs on one GPU. Caches each rule's result by the values that the rule reads."""

    def __init__(self, rules: Sequence[Rule], arch: Arch) -> None:
        self.arch = arch
        self.known = [(rule, operator.attrgetter(*rule.reads), dict[Any, bool]()) for rule in rules]

    def __call__(self, config: object) -> bool:
        for rule, read, answers in self.known:
            key = read(config)
            passes = answers.get(key)
            if passes is None:
                passes = answers[key] = rule.check(config, self.arch) is None
            if not passes:
                return False
        return True


def collect_rules(*modules: ModuleType) -> tuple[Rule, ...]:
    """All rules of some modules, in the order of their codes. Codes must be unique."""
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Rule)]
    codes = [rule.code for rule in found]
    if len(set(codes)) != len(codes):
        raise ValueError(f"rule codes used twice: {sorted({c for c in codes if codes.count(c) > 1})}")
    return tuple(sorted(found, key=lambda rule: rule.code))
