"""Hypothesis strategies for configs: any values that fields accept, legal or not."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tilewright.arch.spec import Shape
from tilewright.ops.fields import (
    ChoiceType,
    ConfigBase,
    CountType,
    FieldType,
    FlagType,
    IntegerListType,
    OptionalTileType,
    TileType,
    list_fields,
)
from tilewright.ops.op import Op

# Numbers that tiles are made of, and some that no tile should be.
EXTENTS = st.sampled_from([1, 2, 3, 4, 7, 8, 16, 17, 32, 48, 64, 96, 128, 192, 256, 512])


def values_of(kind: FieldType) -> st.SearchStrategy[Any]:
    """Any value that a field of this kind accepts."""
    if isinstance(kind, (ChoiceType, FlagType)):
        return st.sampled_from(kind.values)
    if isinstance(kind, CountType):
        return st.integers(kind.least, kind.most)
    if isinstance(kind, TileType):
        extent = EXTENTS.filter(lambda n: n <= kind.most)
        return st.builds(Shape, extent, extent, extent)
    if isinstance(kind, IntegerListType):
        return st.lists(EXTENTS, min_size=kind.fewest, max_size=kind.most).map(tuple)
    assert isinstance(kind, OptionalTileType)
    return st.none() | values_of(kind.tile)


def configs(op: Op) -> st.SearchStrategy[ConfigBase]:
    """Any config of an op."""
    fields = list_fields(op.config_type)
    return st.fixed_dictionaries({n: values_of(f.kind) for n, f in fields.items()}).map(
        lambda values: op.config_type(**values)
    )
