"""Values worth trying for the fields of a work-group's GEMM."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from tilewright.arch.spec import Arch, Shape
from tilewright.ops.block_gemm.rules.examples import COMPV5_WAVES

_BLOCK_EXTENTS = (16, 32, 64, 128, 256)


def _list_blocks(_: Arch) -> tuple[Shape, ...]:
    return tuple(Shape(*s) for s in itertools.product(_BLOCK_EXTENTS, repeat=3))


def _list_mma_tiles(arch: Arch) -> tuple[Shape, ...]:
    return tuple(dict.fromkeys(shape for table in arch.mma.values() for shape in table))


# For the `stars` of an op.
STARS: Mapping[str, Callable[[Arch], tuple[Any, ...]]] = {
    "block": _list_blocks,
    "waves": lambda arch: (*arch.waves, COMPV5_WAVES),
    "mma": _list_mma_tiles,
    "wave_groups": lambda _: (1, 2),
    "blocks_per_cu": lambda _: (1, 2),
}
