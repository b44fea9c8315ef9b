"""How a kernel may round: steps of a sum that are rounded or cut off, and values stored as CK Tile does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.arch.number_formats import to_numpy_dtype
from tilewright.arch.spec import Arch

F = np.float32


def cut_off(values: Any) -> Any:
    """To fp32 towards zero, as a matrix unit might."""
    near = values.astype(F)
    beyond = np.abs(near.astype(np.float64)) > np.abs(values)
    return np.where(beyond, np.nextafter(near, F(0)), near)


def rounding_of(seed: int) -> Callable[[Any], Any]:
    """To fp32: nearest for odd seeds, cut off for even ones."""
    return (lambda values: values.astype(F)) if seed % 2 else cut_off


def stored(values: Any, name: str, arch: Arch) -> Any:
    """In C's type, as CK Tile makes it: bf16 is cut off."""
    if name == "bf16":
        cut = (np.asarray(values, F).view(np.uint32) & np.uint32(0xFFFF0000)).view(F)
        return cut.astype(to_numpy_dtype(name, arch))
    return np.asarray(values).astype(to_numpy_dtype(name, arch))


def shares_of(error: Any, allowed: Any) -> Any:
    """Error over tolerance, element by element; 0 where both are 0."""
    return np.divide(error, allowed, out=np.where(error > 0, np.inf, 0.0), where=allowed > 0)
