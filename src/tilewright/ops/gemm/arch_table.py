"""GEMM's part of a GPU file: `[op.gemm]`."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from tilewright.arch.schema import TRIPLES, parse_shape
from tilewright.arch.spec import Arch, Shape, Triple
from tilewright.base.errors import FileFormatError, FileProblem, UnknownValueError

KEYS = ("preshuffle",)


@functools.cache
def load_preshuffle_tiles(arch: Arch) -> Mapping[Triple, frozenset[Shape]]:
    """Matrix tiles of the preshuffle pipeline on a GPU, by types. Empty if the file has no table."""
    table = arch.op_tables.get("gemm", {})
    problems = [
        FileProblem(f"op.gemm.{key}", str(UnknownValueError("key", key, KEYS))) for key in table if key not in KEYS
    ]
    tiles: dict[Triple, frozenset[Shape]] = {}
    for key, shapes in table.get("preshuffle", {}).items():
        where = f"op.gemm.preshuffle.{key}"
        if key not in TRIPLES:
            problems.append(FileProblem(where, str(UnknownValueError("triple of types", key, TRIPLES))))
            continue
        listed = frozenset(parse_shape(shape) for shape in shapes)
        unknown = sorted(str(shape) for shape in listed - set(arch.mma.get(TRIPLES[key], {})))
        if unknown:
            problems.append(FileProblem(where, f"not among the tiles of mma.{key}: {', '.join(unknown)}"))
        tiles[TRIPLES[key]] = listed
    if problems:
        raise FileFormatError(arch.source, problems)
    return tiles
