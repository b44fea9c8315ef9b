"""The message if no kernel is left: whether no set has such kernels, the rules reject them, or a profile omits them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import InvalidValueError
from tilewright.cli.kernel_choice import choose_kernels, is_property, read_rows

if TYPE_CHECKING:
    from tilewright.arch.spec import Arch
    from tilewright.ops.kernel_set import KernelSet
    from tilewright.ops.op import Op, Profile
    from tilewright.ops.rule import Violation
    from tilewright.ops.space import Axis, Space

Filters = Mapping[str, tuple[str, ...]]
# Rules that a message names, those that remove the most kernels first.
NAMED_RULES = 3


@dataclasses.dataclass(frozen=True)
class Removed:
    """The number of combinations, all illegal, with the rules that removed them, and the violation of the first one."""

    combinations: int
    rules: Mapping[str, int]
    first: Violation | None

    def __str__(self) -> str:
        codes = sorted(self.rules, key=lambda code: -self.rules[code])[:NAMED_RULES]
        counts = ", ".join(f"{code} {self.rules[code]:,}" for code in codes)
        example = f". For example, {self.first}" if self.first is not None else ""
        return f"the rules reject all {self.combinations:,} of them ({counts}){example}"


def explain_no_kernels(
    op: Op, arch: str, sets: Sequence[KernelSet], wanted: Filters, profile: Profile | None, profile_name: str | None
) -> str:
    """The message for sets without a legal kernel that has the wanted values."""
    from tilewright import arch as archs

    spec = archs.load(arch)
    asked = " and ".join(f"{name} {' or '.join(texts)}" for name, texts in wanted.items() if texts)
    having = f" with {asked}" if asked else ""
    if profile is not None and choose_kernels(op, arch, sets, wanted, 1):
        return (
            f"none of these {op.name} kernels{having} is of profile {profile_name}: {profile.doc}. "
            "`tilewright sets` lists the profiles."
        )
    narrowed = [axes for each in sets for axes in _narrow_spaces(op, each, wanted, spec)]
    if narrowed:
        removed = _count_removed(op, narrowed, spec)
        if removed is not None:
            return f"none of these {op.name} kernels is legal on {arch}{having}: {removed}"
    one = f"the set {sets[0].name} has no kernels{having}"
    fact = one if len(sets) == 1 else f"none of the {len(sets)} sets of {op.name} for {arch} has kernels{having}"
    return f"{fact}. {_propose_settings(op, spec, sets, wanted)}"


def _narrow_spaces(op: Op, kernel_set: KernelSet, wanted: Filters, arch: Arch) -> Iterator[list[Axis]]:
    """The axes of each space with the wanted values only. A space without one of them is left out."""
    for space in kernel_set.spaces:
        axes = _narrow_axes(op, space.list_axes(arch), wanted)
        if axes is not None:
            yield axes


def _narrow_axes(op: Op, axes: Sequence[Axis], wanted: Filters) -> list[Axis] | None:
    from tilewright.ops.space import Axis

    allowed: dict[str, set[Any]] = {}
    for name, texts in wanted.items():
        if not is_property(op, name):  # the values of a property follow from the fields
            fields, rows = read_rows(op, name, texts)
            for place, field in enumerate(fields):
                allowed[field] = {row[place] for row in rows}
    found = []
    for axis in axes:
        places = [(place, allowed[field]) for place, field in enumerate(axis.fields) if field in allowed]
        values = tuple(row for row in axis.values if all(row[place] in kept for place, kept in places))
        if not values:
            return None
        found.append(Axis(axis.fields, values))
    return found


def _count_removed(op: Op, spaces: Sequence[Sequence[Axis]], arch: Arch) -> Removed | None:
    """The combinations of spaces without a legal one; None if one of them is legal."""
    from tilewright.ops.space import Search

    rules: Counter[str] = Counter()
    combinations = 0
    for axes in spaces:
        search = Search(op, axes, arch)
        if search.count():
            return None
        combinations += search.weights[0]
        rules.update({code: count for code, count in search.removed.items() if count})
    return Removed(combinations, rules, _find_first_violation(op, spaces[0], arch))


def _find_first_violation(op: Op, axes: Sequence[Axis], arch: Arch) -> Violation | None:
    from tilewright.ops.rule import find_violations

    values = {field: value for axis in axes for field, value in zip(axis.fields, axis.values[0], strict=True)}
    return next(iter(find_violations(op.rules, op.config_type(**values), arch)), None)


def _propose_settings(op: Op, arch: Arch, sets: Sequence[KernelSet], wanted: Filters) -> str:
    """The -s options that change a set so that it has such kernels, or the reason why none can have them."""
    changes = {name: texts for name, texts in wanted.items() if not is_property(op, name)}
    properties = [name for name in wanted if name not in changes]
    if properties or not changes:
        return "`tilewright sets` lists the sets; -s declares kernels, and --kernel-set reads your own."
    tried: list[tuple[int, int, KernelSet, list[str]]] = []
    illegal: list[list[Axis]] = []
    for found in sets:
        needed = [name for name in changes if not list(_narrow_spaces(op, found, {name: changes[name]}, arch))]
        changed = [_change_space(space, {name: changes[name] for name in needed}) for space in found.spaces]
        axes = [narrowed for s in changed if s and (narrowed := _narrow_axes(op, s.list_axes(arch), changes))]
        legal = sum(_count_legal(op, each, arch) for each in axes)
        if legal:
            tried.append((len(needed), -legal, found, needed))
        else:
            illegal += axes
    if not tried:
        removed = _count_removed(op, illegal, arch) if illegal else None
        reason = f"With such a change of their kernels, {removed}. " if removed is not None else ""
        return f"{reason}`tilewright space {op.name} --gpu {arch.name} -s FIELD=VALUES` counts other kernels."
    _, count, best, needed = min(tried, key=lambda each: each[:2])
    options = " ".join(f"-s {name}={','.join(changes[name])}" for name in needed)
    return f"The rules accept {-count:,} of them: use --preselected {best.name} {options}"


def _change_space(space: Space, changes: Filters) -> Space | None:
    """The space with other values; None if it declares one of these fields by another name."""
    from tilewright.ops.space import Space

    try:
        return Space(space.op, {**space.declared, **{name: list(texts) for name, texts in changes.items()}})
    except InvalidValueError:
        return None


def _count_legal(op: Op, axes: Sequence[Axis], arch: Arch) -> int:
    from tilewright.ops.space import Search

    return Search(op, axes, arch).count()
