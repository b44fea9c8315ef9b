"""Fast lookup of the kernels that support a problem.

Kernels with equal fields that a rule reads, or with equal keys (`Rule.group_key`), get the same verdict, so each rule
is checked once per group. A set of kernels is an integer with one bit per kernel: removing a group is one operation.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.ops.rule import Rule


@dataclass(frozen=True, slots=True)
class _RuleGroups:
    """A rule and its groups of kernels: the config of one member, and the members as a bit mask."""

    rule: Rule
    groups: tuple[tuple[Any, int], ...]


class SupportIndex:
    """Index of the fit rules of an op for these kernels on one GPU."""

    def __init__(self, op: Op, kernels: Sequence[Kernel], arch: Arch) -> None:
        self._arch = arch
        self._all = (1 << len(kernels)) - 1
        self._count = len(kernels)
        self._asked = tuple(_RuleGroups(rule, _group_kernels(rule, kernels, arch)) for rule in op.fit_rules)

    def compute_mask(self, problem: Any) -> int:
        """A bit mask: bit i is set if kernel i supports the problem."""
        left = self._all
        for asked in self._asked:
            check = asked.rule.check
            for config, members in asked.groups:
                if members & left and check(config, problem, self._arch) is not None:
                    left &= ~members
            if not left:
                break
        return left

    def find_supporting(self, problem: Any) -> list[int]:
        """Indices of the kernels that support the problem."""
        return list_set_bits(self.compute_mask(problem))

    def check_support(self, problem: Any) -> list[bool]:
        """For each kernel, whether it supports the problem."""
        bits = self.compute_mask(problem)
        return [bool(bits >> place & 1) for place in range(self._count)]


def list_set_bits(bits: int) -> list[int]:
    """Indices of the set bits, lowest first."""
    return [place for place, digit in enumerate(reversed(f"{bits:b}")) if digit == "1"]


def _group_kernels(rule: Rule, kernels: Sequence[Kernel], arch: Arch) -> tuple[tuple[Any, int], ...]:
    read, group_key = operator.attrgetter(*rule.reads), rule.group_key
    found: dict[Any, tuple[Any, int]] = {}
    for place, kernel in enumerate(kernels):
        values = read(kernel.config) if group_key is None else group_key(kernel.config, arch)
        config, members = found.get(values, (kernel.config, 0))
        found[values] = (config, members | 1 << place)
    return tuple(found.values())
