"""Numbers at which arithmetic goes wrong, mixed with ordinary and random ones."""

from __future__ import annotations

import numpy as np


def edge_values(kind: np.dtype, count: int, seed: int) -> np.ndarray:
    """Random bits, ordinary numbers and edges of a type."""
    numbers = np.random.default_rng(seed)
    kind = np.dtype(kind)
    if kind == np.bool_:
        return numbers.integers(0, 2, count).astype(np.bool_)
    values = numbers.integers(0, 256, count * kind.itemsize, dtype=np.uint8).view(kind).copy()
    if kind.kind == "f":
        values[::3] = numbers.normal(0, 10, len(values[::3]))
        values[1::9] = np.exp2(numbers.uniform(-14, 15, len(values[1::9])))
        limits = np.finfo(kind)
        edges = [
            0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, limits.max, -limits.max,
            limits.smallest_normal, -limits.smallest_normal, limits.smallest_subnormal, -limits.smallest_subnormal,
            limits.smallest_normal * 0.75, 1 + limits.eps, 1 - limits.eps, 3, 1 / 3,
        ]  # fmt: skip
        if kind.itemsize > 2:
            edges += [65504, 65520, 65519, 6e-8, 1e-7, 448, 464, 465, 240, 248, 57344, 61440, 2**31, -(2**31), 2**32]
    else:
        values[::3] = numbers.integers(0, 64, len(values[::3]))
        limits = np.iinfo(kind)
        edges = [0, 1, 2, 31, 32, 63, 64, 127, limits.max, limits.max - 1, limits.min, limits.min // 2]
        edges += [edge for edge in (128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0xFFFFFF) if edge <= limits.max]
    places = slice(5, None, 11)
    with np.errstate(over="ignore"):
        values[places] = numbers.choice(np.array(edges, kind), len(values[places]))
    return values


def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Equal bits, or both no number."""
    equal = a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}")
    return equal | (np.isnan(a) & np.isnan(b)) if a.dtype.kind == "f" else equal
