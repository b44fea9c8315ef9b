"""Types of the keywords that `space` and `config` of an op take, for editors and type checkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar

T = TypeVar("T")

# What `Kind.read` takes for a value of that kind. Names are texts as well: a program may compute them.
TileValue: TypeAlias = tuple[int, int, int] | Mapping[str, int] | str
NumbersValue: TypeAlias = Sequence[int] | str
# A field of a space: a value, a list of values, or all there are. A tile may also list the values of each dimension.
Several: TypeAlias = T | Sequence[T] | set[T] | Literal["*"]
SeveralTiles: TypeAlias = Several[TileValue] | Mapping[str, int | Sequence[int]]
