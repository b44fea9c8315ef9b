"""The combinations of a kernel set that violate rules on one of its GPUs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright import arch as gpus
from tilewright.base.errors import InvalidValueError
from tilewright.ops.fields import ConfigBase
from tilewright.ops.kernel_set import KernelSet
from tilewright.ops.rule import Violation, find_violations
from tilewright.ops.space import Space


@dataclass(frozen=True)
class IllegalMember:
    """A combination of a set that violates rules on one of the set's GPUs."""

    arch: str
    space: int  # index of the space in the set
    config: ConfigBase
    violations: tuple[Violation, ...]

    def __str__(self) -> str:
        faults = "; ".join(str(violation) for violation in self.violations)
        return f"space.{self.space} on {self.arch}: {self.config}: {faults}"


def find_illegal_members(kernel_set: KernelSet) -> list[IllegalMember]:
    """Every combination that is illegal on a GPU of `archs`; empty for a correct set.

    A field with "*" counts with all its values.
    """
    if not kernel_set.archs:
        raise InvalidValueError(f"set {kernel_set.name!r} lists no GPUs: give it archs")
    found: list[IllegalMember] = []
    for arch, (index, space) in itertools.product(kernel_set.archs, enumerate(kernel_set.spaces)):
        report = space.report(arch)
        if report.legal == report.raw:
            continue
        spec = gpus.load(arch)
        for config in _iterate_combinations(space, spec):
            faults = find_violations(space.op.rules, config, spec)
            if faults:
                found.append(IllegalMember(arch, index, config, tuple(faults)))
    return found


def _iterate_combinations(space: Space, arch: gpus.Arch) -> Iterator[ConfigBase]:
    """Every combination of a space, legal or not."""
    axes = space.list_axes(arch)
    names = [name for axis in axes for name in axis.fields]
    for rows in itertools.product(*(axis.values for axis in axes)):
        values = itertools.chain.from_iterable(rows)
        yield space.op.config_type(**dict(zip(names, values, strict=True)))
