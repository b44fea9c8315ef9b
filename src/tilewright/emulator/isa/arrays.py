"""Arrays and types for the NumPy functions of the instruction table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

TYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(kind)
    for name, kind in {
        "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
        "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
        "f16": np.float16, "f32": np.float32, "f64": np.float64,
    }.items()
}  # fmt: skip
BITS = {"f16": np.dtype(np.uint16), "f32": np.dtype(np.uint32), "f64": np.dtype(np.uint64)}


def view(values: Array, kind: np.dtype[Any]) -> Array:
    """View the bits as another type of the same size; also for strided and broadcast arrays."""
    if values.dtype == kind:
        return values
    return values.view(kind)


def to_bits(values: Array) -> Array:
    """Return the bits of floats."""
    return values.view(f"u{values.dtype.itemsize}")
