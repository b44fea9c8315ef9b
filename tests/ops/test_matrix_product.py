"""Products in parts that BLAS computes with one thread, and element-wise functions block by block."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tilewright import arch as archs
from tilewright.arch.blockwise import BLOCK, compute_blockwise
from tilewright.ops.block_gemm import matrix_product
from tilewright.ops.block_gemm.matrix_product import multiply_matrices
from tilewright.ops.block_gemm.rounding import add_store_error, compute_store_error
from tilewright.ops.tolerance import Tolerance

GFX942 = archs.load("gfx942")
# Rows, columns and terms: parts of equal sizes, remainders, single rows and columns, several depths.
SIZES = [(128, 128, 64), (311, 257, 127), (1, 700, 600), (900, 1, 513), (2, 3, 60000), (67, 5, 1030), (65, 66, 256)]


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("stack", [(), (3,), (2, 2)])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_parts_make_the_whole_product(m: int, n: int, k: int, stack: tuple[int, ...], kind: type) -> None:
    generator = np.random.default_rng([m, n, k])
    a = generator.integers(-3, 4, (*stack, m, k)).astype(kind)
    b = generator.integers(-3, 4, (*stack, n, k)).astype(kind).swapaxes(-1, -2)
    assert m * n * k > matrix_product.ONE_THREAD
    found = multiply_matrices(a, b)
    assert found.dtype == kind
    np.testing.assert_array_equal(found, a.astype(np.float64) @ b.astype(np.float64))


def test_every_part_is_small_enough_for_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    plain = np.matmul

    def matmul(a: np.ndarray, b: np.ndarray, **options: object) -> object:  # type: ignore[type-arg]
        sizes.append((a.shape[-2], b.shape[-1], a.shape[-1]))
        return plain(a, b, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(matrix_product.np, "matmul", matmul)
    for m, n, k in SIZES:
        multiply_matrices(np.ones((m, k)), np.ones((k, n)))
    assert len(sizes) == len(SIZES)
    assert [size for size in sizes if math.prod(size) > matrix_product.ONE_THREAD or min(size[:2]) < 2] == []


def test_blocks_make_the_whole_result() -> None:
    values = np.random.default_rng(1).standard_normal((3, BLOCK)).T
    limit = np.where(values > 0, np.abs(values) * 1e-5, 0.0)
    off = Tolerance(limit, limit / 8)
    whole = off + compute_store_error(values, off, "fp16", "fp32", GFX942)
    found = add_store_error(values, off, "fp16", "fp32", GFX942)
    np.testing.assert_array_equal(found.limit, whole.limit)
    np.testing.assert_array_equal(found.deviation, whole.deviation)
    [doubled] = compute_blockwise(lambda some, factor: (some * factor,), values, np.asarray(2.0))
    np.testing.assert_array_equal(doubled, 2 * values)


def test_exact_steps_add_nothing() -> None:
    size = np.array([[1.0, 2.0], [3.0, 0.0]])
    off, none = Tolerance(size, size / 2), Tolerance(np.zeros((2, 2)), np.zeros((2, 2)))
    assert none.is_exact and not off.is_exact
    assert off + none is off and none + off is off and off + Tolerance(np.zeros(()), np.zeros(())) is off
    unknown = Tolerance(np.array([[np.nan, 0.0], [0.0, 0.0]]), np.zeros((2, 2)))
    assert not unknown.is_exact
    row = Tolerance(np.ones(2), np.ones(2))
    assert (row + none).limit.shape == (2, 2)
