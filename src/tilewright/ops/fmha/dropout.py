"""The random numbers of a kernel with dropout, reproduced bit by bit, and the probabilities that they drop.

Imports NumPy: import this module only where arrays are at hand.

CK Tile draws one byte for each pair of a query and a key. The bytes come from Philox4x32 with 7 rounds (Salmon et al.,
Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011), a function of a key (the seed) and a counter of 128 bits. Scores
are divided into squares of 32 × 32. A square takes 64 results of 16 bytes:

- the low half of the counter is the offset + 64 · (sequence · heads + head) + the index of the result, 0 to 63,
- the high half has the row of the square in its lower and the column in its upper 32 bits,
- byte b of result r belongs to row 16 · (b // 8) + 8 · (r // 32) + b % 8 and column r % 32 of the square.

This is the register layout of a 32 × 32 matrix instruction, and kernels with 16 × 16 instructions use the same bytes.
So the mask does not depend on the kernel's tiles, on its direction or on the GPU.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tilewright.ops.fmha.problem import Problem

Words = NDArray[np.uint32]

_ROUNDS = 7
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_SQUARE = 32
_RESULTS = 64  # of one square
_LOW = np.uint64(0xFFFFFFFF)


def compute_philox(seed: int, low: NDArray[np.uint64], high: NDArray[np.uint64]) -> Words:
    """Return the four words of each counter, along a new last dimension."""
    words = [low & _LOW, low >> np.uint64(32), high & _LOW, high >> np.uint64(32)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(_ROUNDS):
        first, second = _MULTIPLIERS[0] * words[0], _MULTIPLIERS[1] * words[2]
        words = [
            (second >> np.uint64(32)) ^ words[1] ^ np.uint64(key[0]),
            second & _LOW,
            (first >> np.uint64(32)) ^ words[3] ^ np.uint64(key[1]),
            first & _LOW,
        ]
        key = [(word + step) & 0xFFFFFFFF for word, step in zip(key, _KEY_STEPS, strict=True)]
    return np.stack(words, axis=-1).astype(np.uint32)


def draw_random_bytes(problem: Problem, sequence: int, queries: int, keys: int) -> NDArray[np.uint8]:
    """Return the random bytes of one sequence: (heads, queries, keys)."""
    down, across = -(-queries // _SQUARE), -(-keys // _SQUARE)
    shape = (problem.heads, down, across, _RESULTS)
    head, row, column, result = (axis.astype(np.uint64) for axis in np.indices(shape))
    heads_before = np.uint64(sequence * problem.heads) + head
    low = np.uint64(problem.drop_offset) + np.uint64(_RESULTS) * heads_before + result
    words = compute_philox(problem.drop_seed, low, row | column << np.uint64(32))
    little_endian = words.astype("<u4").view(np.uint8)
    # The index of a result is (half of 8 rows, column), its bytes are (half of 16 rows, row within 8).
    split = little_endian.reshape(problem.heads, down, across, 2, _SQUARE, 2, 8)
    squares = split.transpose(0, 1, 5, 3, 6, 2, 4)
    whole = squares.reshape(problem.heads, down * _SQUARE, across * _SQUARE)
    return np.ascontiguousarray(whole[:, :queries, :keys])


def keep_probability(problem: Problem) -> float:
    """1 - p_drop, in fp32 as in kernels."""
    return float(np.float32(1.0 - float(np.float32(problem.p_drop))))


def draw_keep_mask(problem: Problem, sequence: int, queries: int, keys: int) -> NDArray[np.bool_]:
    """Return which probabilities of a sequence are kept: their byte is at most 255 times the share, rounded down."""
    largest = math.floor(np.float32(keep_probability(problem)) * np.float32(255))
    return draw_random_bytes(problem, sequence, queries, keys) <= largest


def dropout_scale(problem: Problem) -> float:
    """The factor of the probabilities that are kept, in fp32 as in kernels."""
    return float(np.float32(1.0 / keep_probability(problem)))
