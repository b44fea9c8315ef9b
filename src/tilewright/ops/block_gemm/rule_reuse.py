"""Adapt shared rules to an op."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tilewright.arch.spec import Arch
from tilewright.ops.rule import Rejection, Rule

C = TypeVar("C")  # the config of an op


def rule_through_view(
    rule: Rule,
    view: Callable[[C], object],
    *,
    reads: Sequence[str] | None = None,
    good: Mapping[str, Any] | None = None,
    bad: Mapping[str, Any] | None = None,
    arch: str | None = None,
) -> Rule:
    """The rule for an op's configs, which it reads through `view`. Arguments that are not given keep the rule's values.

    `reads` are fields of the op's config. A rejection that names another field, one of the view, loses its field and
    its nearest value.
    """
    fields = rule.reads if reads is None else tuple(reads)

    def check(config: C, arch: Arch) -> Rejection | None:
        fault = rule.check(view(config), arch)
        if fault is None or fault.field in fields:
            return fault
        return Rejection(fault.message)

    return dataclasses.replace(
        rule,
        reads=fields,
        check=check,
        good=rule.good if good is None else good,
        bad=rule.bad if bad is None else bad,
        arch=rule.arch if arch is None else arch,
    )


def rule_except(rule: Rule, exempt: Callable[[C], bool], *, reads: Sequence[str]) -> Rule:
    """The rule for an op with configs that are exempt from it. `reads` are the fields that rule and `exempt` read."""

    def check(config: C, arch: Arch) -> Rejection | None:
        return None if exempt(config) else rule.check(config, arch)

    return dataclasses.replace(rule, reads=tuple(reads), check=check)
