"""Random configs for tests, documents and measurements: legal ones, and ones that violate a given rule."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from tilewright.arch.spec import Arch, Shape
from tilewright.ops.fields import ConfigBase, Field, list_fields
from tilewright.ops.op import Op
from tilewright.ops.rule import Rule, find_violations
from tilewright.ops.space import Axis, Search

# The probability that an optional field is drawn instead of keeping its default.
OPTIONAL_SHARE = 0.15
# Fields with at most this many values are drawn before the tiles.
SHORT = 9
# Steps of a search with backjumping after which it asks rules for the causes of their rejections. Most searches end
# earlier. They do not ask, since another order of steps would draw other configs for the golden files.
PATIENCE = 4000


def _make_shapes(*tiles: tuple[int, int, int]) -> tuple[Shape, ...]:
    return tuple(Shape(*tile) for tile in tiles)


# Further values of fields, by op: they violate rules that sensible values never violate.
_BLOCK_GEMM: Mapping[str, tuple[Any, ...]] = {
    "block": _make_shapes((96, 128, 32), (192, 64, 32), (128, 48, 64), (128, 128, 96)),
    "mma": _make_shapes((16, 16, 8), (32, 32, 4), (64, 64, 16), (16, 32, 16)),
    "waves": _make_shapes((8, 4, 1), (16, 2, 1), (1, 1, 2), (2, 2, 2), (8, 2, 1)),
}
_ODDITIES: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "gemm": {**_BLOCK_GEMM, "vector": _make_shapes((16, 8, 8), (8, 16, 8), (4, 4, 4), (3, 8, 8))},
    "grouped_conv": {
        **_BLOCK_GEMM,
        "vector": _make_shapes((16, 8, 8), (8, 16, 8), (3, 8, 8), (8, 8, 6)),
        "merge_groups": (3, 5, 16),
    },
    "fmha": {
        "block": (
            *((96, 64, 32, 64, 32, 64), (64, 48, 32, 64, 32, 64), (64, 64, 24, 64, 32, 64), (64, 64, 32, 64, 64, 64)),
            *((64, 64, 32, 64, 32, 80), (128, 256, 128, 256, 128, 256), (64, 64, 32, 128), (24, 64), (64, 64, 72)),
        ),
        "waves": ((3, 1, 1, 3, 1, 1), (4, 1, 1, 2, 1, 1), (2, 1, 2, 2, 1, 2), (32, 1, 1, 32, 1, 1), (4, 1, 1)),
        "mma": ((32, 32, 4, 32, 32, 4), (16, 16, 8, 16, 16, 8), (32, 32, 8, 16, 16, 16), (16, 16, 16)),
        "pad_hdim_q": (2, 4),
        "pad_hdim_v": (2, 4),
        "log_max_splits": (9, 10),
        "max_seqlen_q": (24,),
    },
    "gemm_quant": {
        **_BLOCK_GEMM,
        "block": (*_BLOCK_GEMM["block"], *_make_shapes((192, 128, 64), (64, 64, 1024), (128, 128, 192))),
    },
    "grouped_gemm": _BLOCK_GEMM,
    "moe_sorting": {"tile": (3, 5, 6, 16)},
    "topk": {"experts": (24, 48, 96, 160, 2048), "threads": (96, 192), "vector": (3, 6, 16)},
    "norm": {"rows": (3, 16), "columns": (768, 1000, 1536, 3072), "threads": (96, 192), "vector": (3, 6, 16)},
}


class OrderedAxis(Axis):
    """An axis whose values a random search tries in their order."""


class RandomSearch(Search):
    """A search that tries the values of each axis in random order."""

    steps, patience = 0, PATIENCE

    def draw_member(self, rng: random.Random) -> dict[str, Any] | None:
        """A legal combination; None if there is none."""
        return dict(self.bound.__dict__) if self._bind_axes(0, rng) else None

    def _bind_axes(self, depth: int, rng: random.Random) -> bool:
        """Bind the axes from `depth` on. False if rules reject every combination."""
        if depth == len(self.axes):
            return True
        axis = self.axes[depth]
        for row in _order_rows(axis, rng):
            self.bound.__dict__.update(zip(axis.fields, row, strict=True))
            if self.find_rejecting_rule(depth) is None and self._bind_axes(depth + 1, rng):
                return True
        return False

    def draw_member_backjumping(self, rng: random.Random, patience: int = PATIENCE) -> dict[str, Any] | None:
        """Like `draw_member`, for axes in any order: if no value of an axis is left, the search backjumps to an axis
        that one of the rejecting rules reads, and after `patience` steps to one of the causes of a rejection."""
        level = {name: i for i, axis in enumerate(self.axes) for name in axis.fields}
        self.steps, self.patience = 0, patience
        return dict(self.bound.__dict__) if self._find_blamed_axes(0, level, rng) is None else None

    def _find_blamed_axes(self, depth: int, level: Mapping[str, int], rng: random.Random) -> set[int] | None:
        """None if the axes from `depth` on could be bound, else the earlier axes that prevent it."""
        if depth == len(self.axes):
            return None
        self.steps += 1
        axis = self.axes[depth]
        blamed: set[int] = set()
        for row in _order_rows(axis, rng):
            self.bound.__dict__.update(zip(axis.fields, row, strict=True))
            rejecting = self.find_rejecting_rule(depth)
            if rejecting is None:
                below = self._find_blamed_axes(depth + 1, level, rng)
                if below is None or depth not in below:
                    return below
                blamed |= below
            else:
                blamed |= {level[name] for name in self._list_causes(rejecting)}
        return blamed - {depth}

    def _list_causes(self, rejecting: Rule) -> Sequence[str]:
        """Fields whose values suffice for a rejection."""
        if self.steps < self.patience:
            return rejecting.reads
        rejection = rejecting.check(self.bound, self.arch)
        return (*rejecting.when, *rejection.causes) if rejection and rejection.causes else rejecting.reads


def _order_rows(axis: Axis, rng: random.Random) -> Sequence[tuple[Any, ...]]:
    return axis.values if isinstance(axis, OrderedAxis) else rng.sample(axis.values, len(axis.values))


def list_strata(op: Op, arch: Arch) -> list[dict[str, Any]]:
    """The combinations of the op's distinguishing fields that no rule rejects by themselves."""
    axes = op.strata(arch)
    found = []
    for rows in itertools.product(*axes.values()):
        bound = {n: v for names, row in zip(axes, rows, strict=True) for n, v in zip(names, row, strict=True)}
        view = SimpleNamespace(**bound)
        decidable = (r for r in op.rules if set(r.reads) <= set(bound))
        if all(r.check(view, arch) is None for r in decidable):
            found.append(bound)
    return found


def draw_legal(
    op: Op, arch: Arch, rng: random.Random, fixed: Mapping[str, Any], tries: int = 4, patience: int = PATIENCE
) -> ConfigBase | None:
    """A legal config with some fields fixed and the others drawn; None if none was found.

    Optional fields mostly keep their defaults, as in the kernels that users build. They and the other fields with
    few values are drawn first, so that the long search for tiles runs only if it can succeed. If the op has tables of
    tiles, one of these is drawn.
    """
    open_fields = {n: f for n, f in list_fields(op.config_type).items() if n not in fixed}
    tables = _list_tables(op, arch)
    if tables:
        tied = {name for axis in tables for name in axis.fields}
        others = [_make_axis(op, field, arch, rng) for name, field in open_fields.items() if name not in tied]
        axes = [Axis(tuple(fixed), (tuple(fixed.values()),)), *tables, *others]
        found = RandomSearch(op, axes, arch).draw_member_backjumping(rng, patience)
        return None if found is None else op.config_type(**found)
    for _ in range(tries):
        axes = [_make_axis(op, field, arch, rng) for field in open_fields.values()]
        axes.sort(key=lambda axis: len(axis.values))
        short = [axis for axis in axes if len(axis.values) <= SHORT]
        bound = _draw_member(op, arch, rng, fixed, short)
        if bound is None:
            return None
        member = _draw_member(op, arch, rng, bound, [axis for axis in axes if axis not in short])
        if member is not None:
            return op.config_type(**member)
    return None


def _list_tables(op: Op, arch: Arch) -> list[Axis]:
    """Axes of the shorthands that have a list of values for a GPU, such as matching tiles."""
    return [
        Axis(short.fields, tuple(short.row(value) for value in short.stars(arch)))
        for short in op.shorthands.values()
        if short.stars
    ]


def _make_axis(op: Op, field: Field, arch: Arch, rng: random.Random) -> Axis:
    values = op.list_candidates(field.name, arch)
    if field.required or rng.random() < OPTIONAL_SHARE:
        return Axis((field.name,), tuple((value,) for value in values))
    others = rng.sample(values, len(values))
    ordered = (field.default, *(value for value in others if value != field.default))
    return OrderedAxis((field.name,), tuple((value,) for value in ordered))


def _draw_member(
    op: Op, arch: Arch, rng: random.Random, fixed: Mapping[str, Any], axes: Sequence[Axis]
) -> dict[str, Any] | None:
    return RandomSearch(op, [Axis(tuple(fixed), (tuple(fixed.values()),)), *axes], arch).draw_member(rng)


def draw_breaking(
    op: Op,
    arch: Arch,
    rng: random.Random,
    code: str,
    strata_of_arch: Sequence[Mapping[str, Any]],
    tries: int = 60,
) -> ConfigBase | None:
    """A config that violates exactly the rule with this code, found by changing fields that the rule reads."""
    rule = next(r for r in op.rules if r.code == code)
    for _ in range(tries):
        config = draw_legal(op, arch, rng, rng.choice(strata_of_arch), patience=0)
        if config is None:
            continue
        for _ in range(40):
            other = _change_config(op, arch, rng, config, rule.reads)
            if rule.check(other, arch) is None:
                continue  # without a check of all other rules
            if {v.code for v in find_violations(op.rules, other, arch)} == {code}:
                return other
    return None


def _change_config(op: Op, arch: Arch, rng: random.Random, config: ConfigBase, names: Sequence[str]) -> ConfigBase:
    values = {name: getattr(config, name) for name in list_fields(op.config_type)}
    for name in rng.sample(list(names), k=min(len(names), rng.choice((1, 1, 2)))):
        pool = (*op.list_candidates(name, arch), *_ODDITIES.get(op.name, {}).get(name, ()))
        values[name] = rng.choice(pool)
    return op.config_type(**values)
