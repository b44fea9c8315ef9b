"""The order of B for preshuffle kernels, against the place that each element is looked for by a lane."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.ops import find_op
from tilewright.ops.gemm.kinds.preshuffle import shuffle_b

GEMM = find_op("gemm")
assert GEMM.execution is not None
PREPARATIONS = GEMM.execution.preparations


def config(**values: Any) -> Any:
    fields = {
        **GEMM.example,
        "variant": "preshuffle",
        "pipeline": "preshufflev2",
        "scheduler": "default",
        "block": (64, 128, 32),
        "waves": (1, 2, 1),
        "mma": (32, 32, 8),
    }
    return GEMM.make_config(**{**fields, **values})


def problem(**values: Any) -> Any:
    return tw.gemm.Problem(**{"m": 64, "n": 256, "k": 64, "dtype": "fp16", "layout": "rcr", **values})


def looked_for(kernel: Any, k: int, n: int) -> np.ndarray[Any, Any]:
    """Element (k, n) of B at each place of memory, by what the kernel's lanes do.

    Tile (i, j) is the i-th along n and the j-th along k; they lie row by row. Lane l of a wave has the column l modulo
    the tile's width, and the l // width-th part of the tile's k, in one piece.
    """
    width, depth = kernel.mma.n, kernel.mma.k
    share = depth * width // 64
    places = []
    for i in range(n // width):
        for j in range(k // depth):
            for lane in range(64):
                for x in range(share):
                    row, column = j * depth + lane // width * share + x, lane % width
                    places.append((row, real_column(kernel, i, column)))
    return np.array(places)


def real_column(kernel: Any, tile: int, column: int) -> int:
    """The column of B that a tile's column stands for: of C's columns, a lane stores `repeat` neighbours."""
    width, waves = kernel.mma.n, kernel.waves.n
    if not kernel.permute_n:
        return tile * width + column
    repeat = kernel.block.n // (waves * width)
    block, within = divmod(tile, repeat * waves)
    turn, wave = divmod(within, waves)  # a wave's tiles are `waves` apart
    return block * kernel.block.n + wave * width * repeat + column * repeat + turn


@pytest.mark.parametrize("mma", [(32, 32, 8), (16, 16, 16), (32, 32, 16), (16, 16, 32)])
@pytest.mark.parametrize("permute_n", [False, True])
def test_every_element_lies_where_its_lane_looks(mma: tuple[int, int, int], permute_n: bool) -> None:
    kernel = config(mma=mma, permute_n=permute_n)
    b = np.arange(64 * 256).reshape(64, 256)
    (preparation,) = PREPARATIONS(kernel, problem())
    made = preparation.apply(b)
    assert (preparation.tensor, made.shape) == ("b", b.shape)
    memory = made.ravel(order="F")  # the kernel's B is column-major
    places = looked_for(kernel, 64, 256)
    assert np.array_equal(memory, b[places[:, 0], places[:, 1]])


def test_the_memory_of_the_array_does_not_matter() -> None:
    b = np.arange(64 * 256).reshape(64, 256)
    assert np.array_equal(shuffle_b(config(), b), shuffle_b(config(), np.asfortranarray(b)))


def test_other_variants_need_nothing() -> None:
    assert PREPARATIONS(GEMM.make_config(**GEMM.example), problem()) == ()


@pytest.mark.parametrize(
    ("values", "made", "what"),
    [
        ({"permute_n": True, "pad_n": True}, {"n": 192}, "N = 192 is not a multiple of block n = 128"),
        ({"pad_k": True}, {"k": 68}, "K = 68 is not a multiple of mma k = 8"),
        ({}, {"stride_b": 72}, "stride_b is 72"),
    ],
)
def test_what_has_no_order_does_not_fit(values: dict[str, Any], made: dict[str, Any], what: str) -> None:
    found = {violation.code: violation.message for violation in tw.fits(config(**values), problem(**made), "gfx942")}
    assert found["S509"].startswith(what)
