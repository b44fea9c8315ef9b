"""One-line forms of frequent rules, and groups of rules with limits and examples in common.

Each form makes a `Rule` with the same parts as the decorator `rule`: `why` and `fix` are its documentation, and `when`
limits it. Numbers come from `numbers(config)`, a mapping; an empty one means that the rule does not apply, such as for
a block whose length is wrong, which is another rule's business.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

from tilewright.arch.spec import Arch
from tilewright.ops.rule import Check, Enforcer, Rejection, Rule, make_rule, rule

Numbers = Callable[[Any], Mapping[str, int]]


@dataclass(frozen=True)
class RuleGroup:
    """Rules of configs with the same values: `when` limits all of them, and their examples are changes of `example`,
    on the GPU `arch`."""

    when: Mapping[str, object] = field(default_factory=dict)
    example: Mapping[str, Any] = field(default_factory=dict)
    arch: str = "gfx942"

    def rule(
        self,
        code: str,
        slug: str,
        enforced_by: Enforcer,
        reads: Sequence[str] = (),
        when: Mapping[str, object] | None = None,
    ) -> Callable[[Check], Rule]:
        """Make a check function a rule of the group, with limits of its own. Its examples are set by `examples`."""
        limits = {**self.when, **(when or {})}
        base, arch = self.example, self.arch
        return rule(code, slug, reads=reads, enforced_by=enforced_by, good=base, bad=base, arch=arch, when=limits)


def examples(
    *, bad: Mapping[str, Any], good: Mapping[str, Any] | None = None, arch: str = ""
) -> Callable[[Rule], Rule]:
    """Set the examples of a group's rule, as changes of the group's example, and the GPU that they are for."""

    def complete(found: Rule) -> Rule:
        passing = {**found.good, **(good or {})}
        return dataclasses.replace(found, good=passing, bad={**found.bad, **bad}, arch=arch or found.arch)

    return complete


def since(generation: str) -> Callable[[Rule], Rule]:
    """Limit a rule to CK Tile's generations from this one on."""
    return lambda found: found.limit_generations(since=generation)


def until(generation: str) -> Callable[[Rule], Rule]:
    """Limit a rule to CK Tile's generations before this one."""
    return lambda found: found.limit_generations(until=generation)


class Overlay:
    """A config that is seen with other values in some fields."""

    def __init__(self, config: object, **values: object) -> None:
        self._config = config
        vars(self).update(values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)


class RuleParts(TypedDict, total=False):
    """The parts that all forms take. All but `arch` and `when` are required."""

    enforced_by: Enforcer
    good: Mapping[str, Any]
    bad: Mapping[str, Any]
    why: str
    fix: str
    arch: str
    when: Mapping[str, object]


def _split_texts(what: str, parts: RuleParts) -> dict[str, Any]:
    """The parts as arguments of `make_rule`."""
    rest: dict[str, Any] = dict(parts)
    return {"texts": (what, rest.pop("why"), rest.pop("fix")), **rest}


def join_rules(
    code: str,
    slug: str,
    what: str,
    rules: Sequence[Rule],
    *,
    report: Callable[[Rule, Rejection], Rejection] | None = None,
    **parts: Unpack[RuleParts],
) -> Rule:
    """Several rules as one, whose rejection is that of the first one that rejects. Limits of all of them limit it.

    `report(rule, rejection)` rewrites a rejection of one of the rules.
    """

    def check(*subjects: object) -> Rejection | None:
        for each in rules:
            fault = each.check(*subjects)
            if fault is not None:
                return report(each, fault) if report else fault
        return None

    common = {name: values for name, values in rules[0].when.items() if all(r.when.get(name) == values for r in rules)}
    parts["when"] = {**common, **parts.get("when", {})}
    reads = tuple(dict.fromkeys(name for each in rules for name in each.reads))
    return make_rule(code, slug, check, reads=reads, **_split_texts(what, parts))


def divides(
    code: str,
    slug: str,
    divisor: str,
    multiple: str,
    *,
    numbers: Numbers,
    reads: Sequence[str],
    nearest: Callable[[Any], object] | None = None,
    what: str = "",
    **parts: Unpack[RuleParts],
) -> Rule:
    """`multiple` must be a multiple of `divisor`, two names of numbers. The first of `reads` is the field to change."""

    def check(config: object, arch: Arch) -> Rejection | None:  # noqa: ARG001
        found = numbers(config)
        if not found or not found[divisor] or found[multiple] % found[divisor] == 0:
            return None
        message = f"{multiple} = {found[multiple]} is not a multiple of {divisor} = {found[divisor]}"
        return Rejection(message, reads[0], nearest(config) if nearest else None)

    what = what or f"{multiple} must be a multiple of {divisor}."
    return make_rule(code, slug, check, reads=reads, **_split_texts(what, parts))


def equal(
    code: str, slug: str, what: str, wanted: Mapping[str, object], message: str, **parts: Unpack[RuleParts]
) -> Rule:
    """Fields must have the wanted values. `message` describes the first other value, with {name}, {value}, {wanted}.

    Fields of the config are available to the message, too, if `when` names them.
    """

    def check(config: object, arch: Arch) -> Rejection | None:
        for name, value in wanted.items():
            if (found := getattr(config, name)) != value:
                limits = {field: getattr(config, field) for field in parts.get("when", {})}
                text = message.format(**limits, name=name, value=found, wanted=value, arch=arch.name)
                return Rejection(text, name, value)
        return None

    return make_rule(code, slug, check, reads=tuple(wanted), **_split_texts(what, parts))


def one_of(
    code: str,
    slug: str,
    what: str,
    allowed: Mapping[str, Sequence[object]],
    message: str,
    *,
    nearest: object = None,
    **parts: Unpack[RuleParts],
) -> Rule:
    """Fields must have one of the allowed values. `message` has {name}, {value}, {allowed} and the fields of `when`."""

    def check(config: object, arch: Arch) -> Rejection | None:
        for name, values in allowed.items():
            if (found := getattr(config, name)) not in values:
                limits = {field: getattr(config, field) for field in parts.get("when", {})}
                listing = ", ".join(map(str, values))
                text = message.format(**limits, name=name, value=found, allowed=listing, arch=arch.name)
                return Rejection(text, name, nearest)
        return None

    return make_rule(code, slug, check, reads=tuple(allowed), **_split_texts(what, parts))


def same_fields(code: str, slug: str, what: str, names: Sequence[str], **parts: Unpack[RuleParts]) -> Rule:
    """A fit rule: fields of the config and of the problem must have the same values."""

    def check(config: object, problem: object, arch: Arch) -> Rejection | None:  # noqa: ARG001
        for name in names:
            mine, wanted = getattr(config, name), getattr(problem, name)
            if mine != wanted:
                return Rejection(f"the kernel has {name} {mine}, the problem {wanted}", name)
        return None

    return make_rule(code, slug, check, reads=tuple(names), **_split_texts(what, parts))
