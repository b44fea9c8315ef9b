"""Suggestions: legal configs that differ little from an illegal one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeGuard

from tilewright.arch.spec import Arch
from tilewright.ops.fields import ConfigBase, TileType, list_fields
from tilewright.ops.op import Op
from tilewright.ops.rule import find_violations, is_legal

# A suggestion with more than three changed fields is not similar to the given config.
MOST_CHANGES = 3
# Numbers of tiles are at most 2^16, so tuples of different length are farther apart than any two of the same length.
_MOST_OCTAVES = math.log2(TileType.most)


@dataclass(frozen=True)
class Suggestion:
    """A legal config, the fields that differ from the given config, and their distance."""

    config: ConfigBase
    changes: Mapping[str, tuple[Any, Any]]  # field → (was, proposed)
    distance: float


def suggest_configs(op: Op, config: ConfigBase, arch: Arch, limit: int = 5) -> list[Suggestion]:
    """Up to `limit` legal configs nearest to an illegal one, fewest and smallest changes first.

    Changes only fields that a violated rule reads. Empty for a legal config, and if no config within three changes
    is legal. The given config is never changed.
    """
    broken = {v.code for v in find_violations(op.rules, config, arch)}
    if not broken:
        return []
    fields = [n for n in op.field_names if any(n in r.reads for r in op.rules if r.code in broken)]
    choices = {name: _list_alternatives(op, name, getattr(config, name), arch) for name in fields}
    found: list[Suggestion] = []
    for count in range(1, min(MOST_CHANGES, len(fields)) + 1):
        for changed in _iterate_changes(choices, count):
            candidate = SimpleNamespace(**{**_get_values(config), **changed})
            if is_legal(op.rules, candidate, arch):
                found.append(_make_suggestion(op, config, changed))
        if len(found) >= limit:
            break
    found.sort(key=lambda s: (len(s.changes), s.distance, str(s.changes)))
    return found[:limit]


def _get_values(config: ConfigBase) -> dict[str, Any]:
    return {name: getattr(config, name) for name in list_fields(type(config))}


def _iterate_changes(choices: Mapping[str, list[Any]], count: int) -> Iterator[dict[str, Any]]:
    for names in itertools.combinations(choices, count):
        for values in itertools.product(*(choices[name] for name in names)):
            yield dict(zip(names, values, strict=True))


def _list_alternatives(op: Op, name: str, current: object, arch: Arch) -> list[Any]:
    """Other values of a field to suggest. If there are many, only the nearest."""
    others = [v for v in op.list_candidates(name, arch) if v != current]
    others.sort(key=lambda v: _distance(current, v))
    return others[:24]


def _make_suggestion(op: Op, config: ConfigBase, changed: dict[str, Any]) -> Suggestion:
    values = {**_get_values(config), **changed}
    changes = {name: (getattr(config, name), value) for name, value in changed.items()}
    distance = sum(_distance(was, now) for was, now in changes.values())
    return Suggestion(op.config_type(**values), changes, distance)


def _distance(was: object, now: object) -> float:
    """Octaves between numbers, or between the numbers of two tuples; 1 between names. Only for ranking."""
    if _is_number(was) and _is_number(now):
        return abs(math.log2(max(was, 1) / max(now, 1)))
    if _is_number_tuple(was) and _is_number_tuple(now):
        if len(was) != len(now):
            return _MOST_OCTAVES * (1 + max(len(was), len(now)))
        return sum(map(_distance, was, now))
    return 1.0


def _is_number(value: object) -> TypeGuard[int]:
    return type(value) is int  # a flag is not a number


def _is_number_tuple(value: object) -> TypeGuard[tuple[int, ...]]:
    return isinstance(value, tuple) and all(map(_is_number, value))
