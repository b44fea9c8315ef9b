"""Values worth trying for the fields of a work-group's GEMM, and unusual ones for tests."""

from __future__ import annotations

import itertools
from typing import Any

from tilewright.arch.spec import Arch, Shape
from tilewright.ops.block_gemm.rules.examples import COMPV5_WAVES

_BLOCK_EXTENTS = (16, 32, 64, 128, 256)


def _list_blocks(_: Arch) -> tuple[Shape, ...]:
    return tuple(Shape(*s) for s in itertools.product(_BLOCK_EXTENTS, repeat=3))


def _list_mma_tiles(arch: Arch) -> tuple[Shape, ...]:
    return tuple(dict.fromkeys(shape for table in arch.mma.values() for shape in table))


# For the `stars` of an op.
STARS: dict[str, Any] = {
    "block": _list_blocks,
    "waves": lambda arch: (*arch.waves, COMPV5_WAVES),
    "mma": _list_mma_tiles,
    "wave_groups": lambda _: (1, 2),
    "blocks_per_cu": lambda _: (1, 2),
}
# For its `oddities`: they violate rules that sensible values never violate.
ODDITIES: dict[str, tuple[Any, ...]] = {
    "block": tuple(Shape(*s) for s in ((96, 128, 32), (192, 64, 32), (128, 48, 64), (128, 128, 96))),
    "mma": tuple(Shape(*s) for s in ((16, 16, 8), (32, 32, 4), (64, 64, 16), (16, 32, 16))),
    "waves": tuple(Shape(*s) for s in ((8, 4, 1), (16, 2, 1), (1, 1, 2), (2, 2, 2), (8, 2, 1))),
}
