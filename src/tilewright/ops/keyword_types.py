"""Types of the keyword arguments of an op's `space` and `config`, for editors and type checkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar

T = TypeVar("T")

# The values that `FieldType.read` accepts. Names may be any str, since a program may compute them.
TileValue: TypeAlias = tuple[int, int, int] | Mapping[str, int] | str
NumbersValue: TypeAlias = Sequence[int] | str
# A field of a space: a value, a list of values, or all values. A tile may also list the values of each dimension.
Several: TypeAlias = T | Sequence[T] | set[T] | Literal["*"]
SeveralTiles: TypeAlias = Several[TileValue] | Mapping[str, int | Sequence[int]]
