"""Rules: checks that reject illegal configs, with the numbers that make them illegal.

A rule is a function `check(config, arch)` that returns None or a `Rejection`. It reads only the fields that it
declares, so that a search over a space can apply it as soon as those fields are bound. `when` limits it to configs with
certain values: a search without such values leaves the rule out. Its docstring is its documentation: the first
paragraph states the requirement, then follow `Why:` and `Fix:`. `rule_forms` has one-line forms for frequent
requirements.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal

from tilewright.arch.spec import Arch

# What detects a violation if the rule does not exist: the compiler rejects the source, the built kernel's `supports`
# rejects every problem, results on the device are wrong, or nothing (the limit is Tilewright's own).
Enforcer = Literal["compiler", "supports", "device", "tilewright"]


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a rule rejects a config: a message with numbers, the field to change, and the nearest legal value.

    `causes` are fields whose values suffice for the rejection in all configs to which the rule applies; empty for all
    fields that the rule reads.
    """

    message: str
    field: str = ""
    nearest: object = None
    causes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated rule, with the contents of its `Rejection`."""

    code: str
    slug: str
    message: str
    field: str
    nearest: object
    fix: str

    def __str__(self) -> str:
        return f"{self.code} {self.slug}: {self.message}"


Check = Callable[..., Rejection | None]
Values = tuple[object, ...]


@dataclass(frozen=True)
class Rule:
    """One rule. `good` and `bad` are field overrides of the op's example config that pass and fail it.

    `when` names fields and the values with which the rule applies; `check` returns None for all other configs.
    `group_key`, if given, returns a key: the rule has the same verdict for all configs with equal keys. One check then
    serves many kernels whose fields differ. `since` and `until` are the first generation of CK Tile with this rule and
    the first one without it; empty for all.
    """

    code: str
    slug: str
    reads: tuple[str, ...]
    enforced_by: Enforcer
    check: Check
    good: Mapping[str, Any]
    bad: Mapping[str, Any]
    arch: str
    what: str
    why: str
    fix: str
    group_key: Callable[[Any, Arch], Hashable] | None = None
    when: Mapping[str, Values] = field(default_factory=dict)
    since: str = ""
    until: str = ""

    def find_violation(self, *subjects: object) -> Violation | None:
        """The violation, or None if the rule passes."""
        fault = self.check(*subjects)
        if fault is None:
            return None
        return Violation(self.code, self.slug, fault.message, fault.field, fault.nearest, self.fix)

    def on(
        self,
        view: Callable[[Any], object | None],
        *,
        reads: Sequence[str] | None = None,
        when: Mapping[str, object] | None = None,
        report: Callable[[Rejection, int], Rejection] | None = None,
        **changes: Any,
    ) -> Rule:
        """This rule for other configs, each of which it sees through `view`: as a config, as a list of configs, or as
        None, where it does not apply.

        `reads` are fields of the other configs, by default those of this rule. `report(rejection, number)` rewrites a
        rejection of the config with this number in the list. By default, a rejection that names another field, one of
        the view, loses its field and its nearest value. `changes` replace other attributes, such as examples.
        """
        limits = _normalize_limits(when)
        fields = _merge_names(limits, self.reads if reads is None else reads)

        def report_known_field(fault: Rejection, _: int) -> Rejection:
            return dataclasses.replace(fault, causes=()) if fault.field in fields else Rejection(fault.message)

        rewrite = report or report_known_field

        def check(config: object, *others: object) -> Rejection | None:
            seen = view(config)
            for number, each in enumerate(seen if isinstance(seen, list) else [seen]):
                fault = None if each is None else self.check(each, *others)
                if fault is not None:
                    return rewrite(fault, number)
            return None

        return dataclasses.replace(self, reads=fields, check=_limit_check(check, limits), when=limits, **changes)

    def also(self, check: Check, *, reads: Sequence[str]) -> Rule:
        """This rule, and a further check of the configs that pass it. `reads` are the fields of both."""

        def check_both(*subjects: object) -> Rejection | None:
            return self.check(*subjects) or check(*subjects)

        return dataclasses.replace(self, reads=tuple(reads), check=check_both, when={})

    def limit(self, field: str, values: Values) -> Rule:
        """This rule, only for configs with one of these values in a field."""
        limits = {field: values}
        names = _merge_names(limits, self.reads)
        return dataclasses.replace(
            self, reads=names, check=_limit_check(self.check, limits), when={**limits, **self.when}
        )

    def limit_generations(self, *, since: str = "", until: str = "") -> Rule:
        """This rule, only for GPUs whose kernels are compiled with these generations of CK Tile."""

        def check(*subjects: Any) -> Rejection | None:
            generation = subjects[-1].ck.generation
            return self.check(*subjects) if since <= generation and (not until or generation < until) else None

        return dataclasses.replace(self, check=check, since=since, until=until)

    @property
    def generations(self) -> str:
        """The generations of CK Tile with this rule, in words; empty for all."""
        limits = [f"since {self.since}"] * bool(self.since) + [f"before {self.until}"] * bool(self.until)
        return " and ".join(limits)


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
    when: Mapping[str, object] | None = None,
    group_key: Callable[[Any, Arch], Hashable] | None = None,
) -> Callable[[Check], Rule]:
    """Make a check function a rule. `arch` is the GPU of the examples; fields of `when` need not be in `reads`."""

    def make(check: Check) -> Rule:
        return make_rule(
            code,
            slug,
            check,
            reads=reads,
            enforced_by=enforced_by,
            good=good,
            bad=bad,
            texts=_parse_sections(check),
            arch=arch,
            when=when,
            group_key=group_key,
        )

    return make


def make_rule(
    code: str,
    slug: str,
    check: Check,
    *,
    reads: Sequence[str],
    enforced_by: Enforcer,
    good: Mapping[str, Any],
    bad: Mapping[str, Any],
    texts: tuple[str, str, str],
    arch: str = "gfx942",
    when: Mapping[str, object] | None = None,
    group_key: Callable[[Any, Arch], Hashable] | None = None,
) -> Rule:
    """A rule from its parts. `texts` are the requirement, the reason and the advice."""
    limits = _normalize_limits(when)
    names = _merge_names(limits, reads)
    limited = _limit_check(check, limits)
    return Rule(code, slug, names, enforced_by, limited, good, bad, arch, *texts, group_key, limits)


def _normalize_limits(when: Mapping[str, object] | None) -> dict[str, Values]:
    """`when` with a tuple of values for each field; a single value becomes a tuple of one."""
    return {name: value if isinstance(value, tuple) else (value,) for name, value in (when or {}).items()}


def _merge_names(limits: Mapping[str, Values], reads: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*limits, *reads)))


def _limit_check(check: Check, limits: Mapping[str, Values]) -> Check:
    if not limits:
        return check
    items = tuple(limits.items())

    def check_if_applicable(config: object, *others: object) -> Rejection | None:
        for name, values in items:
            if getattr(config, name) not in values:
                return None
        return check(config, *others)

    return check_if_applicable


def _parse_sections(check: Callable[..., Any]) -> tuple[str, str, str]:
    doc = inspect.getdoc(check) or ""
    match = re.fullmatch(r"(?P<what>.+?)\n\nWhy: (?P<why>.+?)\n+Fix: (?P<fix>.+)", doc, re.DOTALL)
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


def is_legal(rules: Sequence[Rule], *subjects: object) -> bool:
    """Whether no rule rejects the config. Faster than `find_violations`: the first rejection decides."""
    return all(rule.check(*subjects) is None for rule in rules)


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


def merge_rules(shared: Sequence[Rule], own: Sequence[Rule]) -> tuple[Rule, ...]:
    """Shared rules and an op's own, in the order of their codes.

    An own rule with the code of a shared rule replaces it. Both must have the same slug.
    """
    by_code = {rule.code: rule for rule in shared}
    for rule in own:
        known = by_code.get(rule.code)
        if known is not None and known.slug != rule.slug:
            raise ValueError(f"rule code {rule.code} is used twice: for {known.slug} and for {rule.slug}")
        by_code[rule.code] = rule
    return tuple(by_code[code] for code in sorted(by_code))
