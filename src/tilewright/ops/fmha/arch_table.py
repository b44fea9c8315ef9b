"""The part of a GPU file that only attention reads: `[[op.fmha.tiles]]`, the tiles worth trying on the GPU."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.base.documents import FileProblems
from tilewright.base.errors import InvalidValueError, choose
from tilewright.ops.fields import list_fields
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kinds import KINDS

KEYS = ("families", "dtypes", "tiles")
TILE_FIELDS = ("block", "waves", "mma")


@dataclass(frozen=True, slots=True)
class TileShape:
    """A block with its waves and matrix instructions, for one family and one type."""

    family: str
    dtype: str
    block: tuple[int, ...]
    waves: tuple[int, ...]
    mma: tuple[int, ...]

    @property
    def text(self) -> str:
        """The notation of GPU files and of the shorthand `tile`."""
        return format_tile((self.block, self.waves, self.mma))


def format_tile(values: tuple[tuple[int, ...], ...]) -> str:
    """`128x64x32x64x32x64/4x1x1x4x1x1/16x16x16x16x16x16`: block, waves, mma; only the block without a GEMM."""
    return "/".join("x".join(map(str, numbers)) for numbers in values if numbers)


@functools.lru_cache(maxsize=4096)  # a space with all tiles of a GPU reads them again for each of its reports
def read_tile(text: str) -> tuple[tuple[int, ...], ...]:
    """Parse block, waves and mma."""
    parts = text.split("/")
    if len(parts) not in (1, len(TILE_FIELDS)):
        raise InvalidValueError(f"a tile must be block/waves/mma or only a block, got {text!r}")
    fields = list_fields(Config)
    whole = parts if len(parts) > 1 else (*parts, "none", "none")
    return tuple(fields[name].kind.read(name, part) for name, part in zip(TILE_FIELDS, whole, strict=True))


@functools.cache
def list_tiles(arch: Arch) -> tuple[TileShape, ...]:
    """Return the tiles of a GPU; empty if its file has no table."""
    problems = FileProblems()
    found: dict[TileShape, None] = {}
    for index, table in enumerate(arch.op_tables.get("fmha", {}).get("tiles", ())):
        for key in table:
            problems.try_call(f"op.fmha.tiles.{index}", choose, "key", key, KEYS)
        found.update(dict.fromkeys(_read_rows(table, f"op.fmha.tiles.{index}", problems)))
    problems.raise_any(arch.source)
    return tuple(found)


def _read_rows(table: Mapping[str, Any], where: str, problems: FileProblems) -> Iterator[TileShape]:
    families, dtypes = table.get("families", ()), table.get("dtypes", ())
    before = len(problems.found)
    for family in families:
        problems.try_call(f"{where}.families", choose, "family", family, [kind.name for kind in KINDS])
    for dtype in dtypes:
        problems.try_call(f"{where}.dtypes", choose, "dtype", dtype, DTYPES)
    if len(problems.found) > before:
        return
    for text in table.get("tiles", ()):
        values = problems.try_call(f"{where}.tiles", read_tile, text)
        if values is not None:
            yield from (TileShape(family, dtype, *values) for family in families for dtype in dtypes)


def list_tile_values(field: str, arch: Arch) -> tuple[Any, ...]:
    """Return all values of block, waves or mma in a GPU's table."""
    return tuple(dict.fromkeys(getattr(tile, field) for tile in list_tiles(arch)))


def list_tile_texts(arch: Arch) -> tuple[str, ...]:
    """Return all tiles of a GPU's table as texts: the values of the shorthand `tile` given as "*"."""
    return tuple(dict.fromkeys(tile.text for tile in list_tiles(arch)))
