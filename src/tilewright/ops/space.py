"""Spaces: declarative, lazy sets of kernels.

A space binds every field of a config to a list of values. Its members on a GPU are the combinations that no rule
rejects. They are found by depth-first search: fields are bound one axis after another, and a rule is applied as soon
as all fields that it reads are bound. A rejection prunes a subtree, and the number of combinations that it removes is
known without visiting them. Counting visits only one of the subtrees that no rule distinguishes.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tilewright import arch as archs
from tilewright.arch.spec import Arch, Shape
from tilewright.base.errors import InvalidValueError
from tilewright.base.short_text import cut
from tilewright.ops.declaration import STAR, normalize_declaration
from tilewright.ops.fields import Field, list_fields
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.ops.rule import Rule

# Kernels of a space that are built or written without an explicit limit: 1,000 take some five hours of CPU.
MOST_KERNELS = 1000
_SHOWN = 3  # values of a field at a prompt


@dataclass(frozen=True)
class Axis:
    """One or more fields that are bound together, and the values they take."""

    fields: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class RuleCount:
    """The number of combinations of a space that a rule was the first to reject."""

    rule: Rule
    removed: int


@dataclass(frozen=True)
class SpaceReport:
    """The legal part of a space on one GPU. `raw` is the sum of `legal` and all removed combinations."""

    op: str
    arch: str
    raw: int
    legal: int
    removed: tuple[RuleCount, ...]

    def __str__(self) -> str:
        lines = [f"{self.op} on {self.arch}: {self.legal:,} of {self.raw:,} combinations are legal"]
        width = max((len(c.rule.slug) for c in self.removed if c.removed), default=0)
        lines += [f"  {c.rule.code}  {c.rule.slug:<{width}}  removed {c.removed:,}" for c in self.removed if c.removed]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON."""
        return {
            "op": self.op,
            "arch": self.arch,
            "raw": self.raw,
            "legal": self.legal,
            "removed": {c.rule.code: c.removed for c in self.removed},
        }


def merge_reports(reports: Sequence[SpaceReport]) -> SpaceReport:
    """Merge reports on parts of a space on one GPU."""
    first = reports[0]
    removed = tuple(
        RuleCount(counts[0].rule, sum(count.removed for count in counts))
        for counts in zip(*(report.removed for report in reports), strict=True)
    )
    raw, legal = sum(report.raw for report in reports), sum(report.legal for report in reports)
    return SpaceReport(first.op, first.arch, raw, legal, removed)


@dataclass(frozen=True, repr=False)
class Space:
    """A declared set of configs of one op: each field a value, a list of values, or "*".

    A required field that is not named is "*"; an optional one keeps its default.
    """

    op: Op
    declared: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "declared", normalize_declaration(self.op, self.declared))
        self._list_fixed_axes()  # so that a shorthand that clashes is an error already when the space is declared

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_format_values(values)}" for name, values in self.declared.items())
        return cut(f"Space({', '.join(filter(None, (self.op.name, fields)))})")

    def list_axes(self, arch: Arch) -> list[Axis]:
        """Every field with its values on this GPU, in search order: axes with one value come first, so that rules are
        applied as early as possible."""
        axes = self._list_fixed_axes(arch)
        bound = {name for axis in axes for name in axis.fields}
        for name, field in list_fields(self.op.config_type).items():
            if name not in bound:
                axes.append(Axis((name,), self._list_open_values(field, arch)))
        order = {name: i for i, name in enumerate(self.op.field_names)}
        return sorted(axes, key=lambda axis: (len(axis.values) > 1, max(order[name] for name in axis.fields)))

    @property
    def same_everywhere(self) -> bool:
        """Whether the combinations are the same on every GPU: no field has values that depend on the GPU."""
        bound = {name for axis in self._list_fixed_axes() for name in axis.fields}
        open_ = [n for n, field in list_fields(self.op.config_type).items() if field.required and n not in bound]
        return not open_ and STAR not in self.declared.values()

    def count_raw(self, arch: str) -> int:
        """The number of all combinations, legal or not."""
        return math.prod(len(axis.values) for axis in self.list_axes(archs.load(arch)))

    def count(self, arch: str) -> int:
        """The number of legal members on a GPU."""
        return self.report(arch).legal

    def report(self, arch: str) -> SpaceReport:
        """The number of legal members on a GPU, and of combinations that each rule removed."""
        spec = archs.load(arch)
        return self._make_report(self.list_axes(spec), spec)

    def report_by(self, name: str, arch: str) -> dict[Any, SpaceReport]:
        """A report for each value of a field."""
        spec = archs.load(arch)
        axes = self.list_axes(spec)
        place = next(i for i, axis in enumerate(axes) if name in axis.fields)
        whole = axes[place]
        rows: dict[Any, list[tuple[Any, ...]]] = {}
        for row in whole.values:
            rows.setdefault(row[whole.fields.index(name)], []).append(row)
        reports, verdicts = {}, Verdicts()
        for value, kept in rows.items():
            axes[place] = Axis(whole.fields, tuple(kept))
            reports[value] = self._make_report(axes, spec, verdicts)
        return reports

    def _make_report(self, axes: Sequence[Axis], arch: Arch, verdicts: Verdicts | None = None) -> SpaceReport:
        search = Search(self.op, axes, arch, verdicts)
        legal = search.count()
        removed = tuple(RuleCount(r, search.removed[r.code]) for r in self.op.rules)
        return SpaceReport(self.op.name, arch.name, search.weights[0], legal, removed)

    def iter(self, arch: str, keep: Callable[[Any], bool] | None = None) -> Iterator[Kernel]:
        """The legal kernels on a GPU, in a fixed order; only those that `keep` accepts."""
        spec = archs.load(arch)
        for values in Search(self.op, self.list_axes(spec), spec).iterate_members(keep):
            yield Kernel(self.op.name, self.op.config_type(**values), spec.name)

    def sample(self, arch: str, n: int, seed: int) -> list[Kernel]:
        """n random legal kernels (all, if there are fewer), the same for the same seed."""
        chosen = set(random.Random(seed).sample(range(count), n)) if (count := self.count(arch)) > n else None
        return [k for i, k in enumerate(self.iter(arch)) if chosen is None or i in chosen]

    def _list_fixed_axes(self, arch: Arch | None = None) -> list[Axis]:
        """Axes of the fields with given values. Fields with "*" and absent fields have no axis here.

        A shorthand given as "*" has the values of the GPU; without a GPU it has none.
        """
        axes: list[Axis] = []
        for name, values in self.declared.items():
            if name in self.op.shorthands:
                short = self.op.shorthands[name]
                stars = short.stars(arch) if short.stars and arch else ()
                listed = stars if values == STAR else values
                axes.append(Axis(short.fields, tuple(short.row(value) for value in listed)))
            elif values != STAR:
                axes.append(Axis((name,), tuple((value,) for value in values)))
        names = [name for axis in axes for name in axis.fields]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidValueError(f"declared twice, once by a shorthand: {', '.join(twice)}")
        return axes

    def _list_open_values(self, field: Field, arch: Arch) -> tuple[tuple[Any, ...], ...]:
        """Values of a field without given values: all values, or the default of an optional field."""
        if not field.required and self.declared.get(field.name) != STAR:
            return ((field.default,),)
        values = self.op.list_candidates(field.name, arch)
        if not values:
            raise InvalidValueError(f'{field.name} cannot be "*" on {arch.name}: list its values')
        return tuple((value,) for value in values)


def _format_values(values: Any) -> str:
    """The values of one field at a prompt: "*", a single value, or a short list."""
    if values == STAR:
        return repr(STAR)
    shown = [repr(str(value)) if isinstance(value, Shape) else repr(value) for value in values[:_SHOWN]]
    if len(values) == 1:
        return shown[0]
    return f"[{', '.join(shown)}{f', … {len(values):,} values' if len(values) > _SHOWN else ''}]"


_Pick = Callable[[Mapping[str, Any]], Any]
Verdicts = dict[str, dict[Any, bool]]  # rule code → values that the rule reads → whether they pass


def _make_picker(names: Sequence[str]) -> _Pick:
    """A function that takes the values of these fields from a mapping, as a key. In C: counting mostly does this."""
    return operator.itemgetter(*names) if names else _pick_nothing


def _pick_nothing(_: Mapping[str, Any]) -> None:
    return None


class Search:
    """Depth-first search of a space on one GPU that counts the combinations that each rule removes.

    Rules that read fields without an axis are left out, so that a part of a config can be searched by itself.
    """

    def __init__(self, op: Op, axes: Sequence[Axis], arch: Arch, verdicts: Verdicts | None = None) -> None:
        """Searches of one op on one GPU may share `verdicts`, a cache of rule results."""
        verdicts = {} if verdicts is None else verdicts
        self.axes = axes
        self.arch = arch
        self.removed = {rule.code: 0 for rule in op.rules}
        # weights[i]: combinations below a node at which the first i axes are bound
        self.weights = [1]
        for axis in reversed(axes):
            self.weights.insert(0, self.weights[0] * len(axis.values))
        level = {name: i for i, axis in enumerate(axes) for name in axis.fields}
        # Per level: the rules that can be checked there, a picker of the values they read, and their cached verdicts.
        self.rules_at: list[list[tuple[Rule, _Pick, dict[Any, bool]]]] = [[] for _ in axes]
        listed = {name: {row[i] for row in axis.values} for axis in axes for i, name in enumerate(axis.fields)}
        for rule in op.rules:
            # A rule that applies to none of the listed values can never reject.
            if any(listed.get(name, set()).isdisjoint(values) for name, values in rule.when.items()):
                continue
            if all(name in level for name in rule.reads):
                known = verdicts.setdefault(rule.code, {})
                self.rules_at[max(level[name] for name in rule.reads)].append((rule, _make_picker(rule.reads), known))
        # From this depth on, no rule can reject.
        self.decided = max((i + 1 for i, rules in enumerate(self.rules_at) if rules), default=0)
        # awaited[i] picks the fields of the first i axes that rules of the others read
        self.awaited = [
            _make_picker(
                sorted({n for rules in self.rules_at[i:] for rule, _, _ in rules for n in rule.reads if level[n] < i})
            )
            for i in range(len(axes))
        ]
        self.counted: list[dict[Any, tuple[int, dict[str, int]]]] = [{} for _ in axes]
        self.bound = SimpleNamespace()

    def count(self) -> int:
        """The number of combinations that no rule rejects. Adds the rejected ones to `removed`, by rule."""
        legal, removed = self._count_below(0)
        for code, number in removed.items():
            self.removed[code] += number
        return legal

    def _count_below(self, depth: int) -> tuple[int, dict[str, int]]:
        """The number of legal combinations below a node, and of rejected ones by rule.

        Nodes with equal values in all fields that later rules read have equal subtrees, which are counted once.
        """
        if depth >= self.decided:
            return self.weights[depth], {}
        values = self.bound.__dict__
        key = self.awaited[depth](values)
        known = self.counted[depth].get(key)
        if known is not None:
            return known
        legal, removed = 0, dict[str, int]()
        for row in self.axes[depth].values:
            values.update(zip(self.axes[depth].fields, row, strict=True))
            refused = self.find_rejecting_rule(depth)
            if refused is not None:
                removed[refused.code] = removed.get(refused.code, 0) + self.weights[depth + 1]
                continue
            below, refused_below = self._count_below(depth + 1)
            legal += below
            if refused_below:
                for code, number in refused_below.items():
                    removed[code] = removed.get(code, 0) + number
        self.counted[depth][key] = legal, removed
        return legal, removed

    def iterate_members(self, keep: Callable[[Any], bool] | None = None) -> Iterator[dict[str, Any]]:
        for _ in self._visit_leaves(0):
            if keep is None or keep(self.bound):
                yield dict(self.bound.__dict__)

    def _visit_leaves(self, depth: int) -> Iterator[None]:
        """Bind the axes from `depth` on to every combination that no rule rejects."""
        if depth == len(self.axes):
            yield
            return
        axis = self.axes[depth]
        values = self.bound.__dict__
        for row in axis.values:
            values.update(zip(axis.fields, row, strict=True))
            if self.find_rejecting_rule(depth) is None:
                yield from self._visit_leaves(depth + 1)

    def find_rejecting_rule(self, depth: int) -> Rule | None:
        """The first rule that rejects the values of the first `depth + 1` axes; None if no rule does."""
        values = self.bound.__dict__
        for rule, pick, known in self.rules_at[depth]:
            key = pick(values)
            passes = known.get(key)
            if passes is None:
                passes = known[key] = rule.check(self.bound, self.arch) is None
            if not passes:
                return rule
        return None
