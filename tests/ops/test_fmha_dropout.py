"""Random numbers of dropout: the generator against a plain one, their places, and how many are dropped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ops.fmha.dropout import (
    compute_philox,
    draw_keep_mask,
    draw_random_bytes,
    dropout_scale,
    keep_probability,
)
from tilewright.ops.fmha.problem import Problem

WORD = 0xFFFFFFFF


def problem(**values: Any) -> Problem:
    return Problem(**{"family": "forward", "dtype": "fp16", "heads": 3, "seqlen_q": 40, "hdim_q": 8, **values})


def one(seed: int, low: int, high: int) -> list[int]:
    """Philox4x32 with 7 rounds, one counter, in Python's whole numbers."""
    a, b, c, d = low & WORD, low >> 32, high & WORD, high >> 32
    x, y = seed & WORD, seed >> 32
    for _ in range(7):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (second >> 32) ^ b ^ x, second & WORD, (first >> 32) ^ d ^ y, first & WORD
        x, y = (x + 0x9E3779B9) & WORD, (y + 0xBB67AE85) & WORD
    return [a, b, c, d]


@pytest.mark.parametrize("seed", [0, 1234, 2**64 - 3])
@pytest.mark.parametrize("low", [0, 77, 2**64 - 1])
def test_generator(seed: int, low: int) -> None:
    high = 5 << 32 | 3
    assert compute_philox(seed, np.uint64([low]), np.uint64([high])).tolist() == [one(seed, low, high)]


def test_places() -> None:
    """Any byte, found from the place it has according to the text of dropout.py."""
    of = problem(drop_seed=99, drop_offset=2**64 - 70, seqlen_k=70)
    found = draw_random_bytes(of, 2, 40, 70)
    assert found.shape == (3, 40, 70)
    for head, row, column in [(0, 0, 0), (1, 8, 1), (2, 39, 69), (0, 17, 33), (1, 31, 31), (2, 32, 64)]:
        down, within = divmod(row, 32)
        byte, half = (within // 16) * 8 + within % 8, within // 8 % 2
        number = half * 32 + column % 32
        low = (2**64 - 70 + 64 * (2 * 3 + head) + number) % 2**64
        words = one(99, low, (column // 32) << 32 | down)
        assert found[head, row, column] == words[byte // 4] >> 8 * (byte % 4) & 0xFF


def test_does_not_depend_on_sizes() -> None:
    """A longer sequence begins with the same bytes."""
    of = problem(drop_seed=7)
    np.testing.assert_array_equal(draw_random_bytes(of, 1, 65, 100)[:, :10, :33], draw_random_bytes(of, 1, 10, 33))


def test_share_that_is_dropped() -> None:
    of = problem(p_drop=0.2, drop_seed=3)
    share = draw_keep_mask(of, 0, 512, 512).mean()
    # fp32's 0.8 times 255, rounded to fp32 and down, is 204: 205 of 256 bytes are at most that.
    assert share == pytest.approx(205 / 256, abs=0.003)
    assert keep_probability(of) == float(np.float32(0.8))
    assert dropout_scale(of) == float(np.float32(1 / keep_probability(of)))


def test_nothing_is_dropped_without_dropout() -> None:
    assert draw_keep_mask(problem(), 0, 64, 64).all()
