"""Element-wise functions of large arrays, block by block.

Imports NumPy: import this module only where arrays are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Elements of a block: a dozen arrays of float64 stay in a CPU's second-level cache. Storing 640,000 elements to fp16
# takes 15 ns each with 16,384, 24 ns with 65,536, and 30 ns at once, because large arrays are new pages (Xeon, 2 MiB).
BLOCK = 1 << 14

# glibc returns freed memory to the system when it is twice as large as the largest block that was freed so far.
_LARGE = 1 << 24


@cache
def keep_freed_memory() -> None:
    """Free a large block that was never touched, so that the process keeps the memory of later arrays.

    Without it the arrays of each of a kernel's trials are new pages: 6,300 for a GEMM's 17 trials, with it 1,450.
    """
    np.empty(_LARGE, np.uint8)


def list_blocks(size: int) -> Iterator[slice]:
    """The parts of an array of this many elements."""
    return (slice(first, min(first + BLOCK, size)) for first in range(0, size, BLOCK))


def compute_blockwise(
    function: Callable[..., tuple[NDArray[Any], ...]], *arrays: NDArray[Any]
) -> tuple[NDArray[Any], ...]:
    """The results of an element-wise function of arrays of one shape, computed block by block."""
    shape, size = arrays[0].shape, arrays[0].size
    if size <= BLOCK:
        return function(*arrays)
    flat = [np.broadcast_to(each, shape).reshape(-1) for each in arrays]
    made: list[NDArray[Any]] = []
    for part in list_blocks(size):
        found = function(*(each[part] for each in flat))
        made = made or [np.empty(size, each.dtype) for each in found]
        for whole, each in zip(made, found, strict=True):
            whole[part] = each
    return tuple(each.reshape(shape) for each in made)
