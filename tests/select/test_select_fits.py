"""Asking rules once for each group of kernels gives what asking them for each kernel gives."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tilewright import arch as archs
from tilewright.ops import OPS, find_op
from tilewright.ops.kernel import Kernel
from tilewright.ops.rule import find_violations
from tilewright.select.select import SupportIndex, list_set_bits

GFX942 = archs.load("gfx942")


def kernels_of(name: str, most: int) -> list[Kernel]:
    """Kernels of the op's sets, some of each."""
    sets = [found for found in find_op(name).sets().values() if "gfx942" in found.archs]
    share = -(-most // len(sets))
    return [kernel for found in sets for kernel in itertools.islice(found.kernels("gfx942"), share)]


def problems_of(kernels: list[Kernel], each: int) -> list[Any]:
    """What tries the edges of some of the kernels: problems that these support and the others may not."""
    execution = find_op(kernels[0].op).execution
    assert execution is not None
    return [problem for kernel in kernels for problem in execution.trials(kernel.config, GFX942)[::each]]


@pytest.mark.parametrize("name", [op.name for op in OPS])
def test_the_same_answers_as_one_by_one(name: str) -> None:
    kernels = kernels_of(name, 60)
    fits = SupportIndex(find_op(name), kernels, GFX942)
    rules = find_op(name).fit_rules
    seen = set()
    for problem in problems_of(kernels[::15], 5):
        wanted = [not find_violations(rules, kernel.config, problem, GFX942) for kernel in kernels]
        assert fits.check_support(problem) == wanted, problem
        assert fits.find_supporting(problem) == [place for place, able in enumerate(wanted) if able]
        seen |= set(wanted)
    assert seen == {True, False}, "the problems tell kernels apart"


def test_places_are_the_set_bits() -> None:
    assert list_set_bits(0) == []
    assert list_set_bits(0b1010010) == [1, 4, 6]


def test_a_rule_is_asked_once_for_each_group() -> None:
    kernels = kernels_of("gemm", 200)
    fits = SupportIndex(find_op("gemm"), kernels, GFX942)
    groups = [len(asked.groups) for asked in fits._asked]
    assert max(groups) < len(kernels), "no rule tells all kernels apart"
    for asked in fits._asked:
        members = [bits for _, bits in asked.groups]
        assert sum(members) == (1 << len(kernels)) - 1, "each kernel is in one group"
