"""The ways to declare a field of a space, and their normal form.

A declaration is "*", a value, a list of values or, for tiles, a table of values per dimension.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.document_values import to_integer
from tilewright.base.errors import InvalidValueError, choose
from tilewright.ops.fields import Field, IntegerListType, OptionalTileType, TileType, list_fields
from tilewright.ops.op import Op

STAR = "*"
# Tiles given per dimension are expanded to all combinations. More than this many are surely a mistake.
MOST_TILES = 100_000


def normalize_declaration(op: Op, declared: Mapping[str, Any]) -> dict[str, Any]:
    """The normal form of a declaration: declarations with the same meaning become equal.

    Every field has "*" or a tuple of checked values without repeats. A field that is declared with its default only
    is left out. Shorthands stay. A misspelt field or value is an error.
    """
    fields = list_fields(op.config_type)
    kept: dict[str, Any] = {}
    for name, value in declared.items():
        choose(f"field of {op.name}", name, (*fields, *op.shorthands))
        if name in op.shorthands and isinstance(value, str) and value == STAR:
            if op.shorthands[name].stars is None:
                raise InvalidValueError(f'{name} stands for several fields: list its values, not "*"')
            kept[name] = STAR
        elif name in op.shorthands:
            kept[name] = tuple(dict.fromkeys(op.shorthands[name].normalize(v) for v in to_list(name, value)))
        elif isinstance(value, str) and value == STAR:
            kept[name] = STAR
        else:
            field = fields[name]
            values = tuple(dict.fromkeys(field.kind.read(name, v) for v in list_values(field, value)))
            if field.required or values != (field.default,):
                kept[name] = values
    return kept


def list_values(field: Field, declared: object) -> Sequence[Any]:
    """The values that a declaration lists. The values themselves are not checked yet."""
    tile = find_tile_type(field)
    if tile is not None and isinstance(declared, Mapping):
        return _expand_table(field.name, tile, declared)
    if (tile is not None or isinstance(field.kind, IntegerListType)) and _is_integer_list(declared):
        return [declared]
    return to_list(field.name, declared)


def find_tile_type(field: Field) -> TileType | None:
    """The tile type of a field, also of an optional tile; None for other types."""
    kind = field.kind.tile if isinstance(field.kind, OptionalTileType) else field.kind
    return kind if isinstance(kind, TileType) else None


def to_list(name: str, declared: object) -> Sequence[Any]:
    """The declared value as a list; a single value becomes a list of one."""
    if isinstance(declared, (set, frozenset)):
        return sorted(declared, key=str)  # the order of a set differs between runs
    values = declared if isinstance(declared, (list, tuple)) else [declared]
    if not values:
        raise InvalidValueError(f"{name} is an empty list, so there would be no kernels")
    return values


def _is_integer_list(value: object) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(to_integer(v) is not None for v in value)


def _expand_table(name: str, tile: TileType, declared: Mapping[str, Any]) -> Sequence[tuple[Any, ...]]:
    for label in declared:
        choose(f"dimension of {name}", label, tile.labels)
    missing = [label for label in tile.labels if label not in declared]
    if missing:
        raise InvalidValueError(f"{name} has no values for {', '.join(missing)}")
    return expand_tiles(name, [to_list(f"{name} {label}", declared[label]) for label in tile.labels])


def expand_tiles(name: str, columns: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """All combinations of a tile's values per dimension. Too many are an error."""
    count = math.prod(len(column) for column in columns)
    if count > MOST_TILES:
        raise InvalidValueError(f"{name} has {count:,} combinations, at most {MOST_TILES:,}: list fewer values")
    return list(itertools.product(*columns))


def find_grid_columns(tiles: Sequence[Sequence[Any]]) -> list[list[Any]] | None:
    """Values per dimension whose combinations, in order, are these tiles; None if there are none."""
    columns = [list(dict.fromkeys(column)) for column in zip(*tiles, strict=True)]
    if math.prod(len(column) for column in columns) != len(tiles):
        return None
    full = itertools.product(*columns)
    return columns if all(tuple(x) == y for x, y in zip(tiles, full, strict=True)) else None
