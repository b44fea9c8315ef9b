"""The functions that expressions of the instruction table may call, for NumPy arrays. functions.h has the same in C;
tests compare the names and the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.emulator.isa import conversion_functions, division, fused, integer_functions
from tilewright.emulator.isa.conversion_functions import SMALL_FUNCTIONS
from tilewright.emulator.isa.float_functions import FLOAT_FUNCTIONS
from tilewright.emulator.isa.operation import TYPES, Array, to_bits

Function = Callable[..., Array]


def _make_conversion(kind: np.dtype[Any]) -> Function:
    """Return a cast. Integers keep their lowest bits; floats are rounded to nearest, ties to even."""

    def convert(x: Any) -> Array:
        return np.asarray(x).astype(kind, copy=False)

    return convert


def _make_float_view(kind: np.dtype[Any]) -> Function:
    def to_float(bits: Array) -> Array:
        return bits.view(kind)

    return to_float


def _list_public(module: Any) -> dict[str, Function]:
    return {
        name: value
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    }


FUNCTIONS: dict[str, Function] = {
    **{name: _make_conversion(kind) for name, kind in TYPES.items()},
    **_list_public(integer_functions),
    **_list_public(fused),
    **_list_public(division),
    **_list_public(conversion_functions),
    **SMALL_FUNCTIONS,
    **FLOAT_FUNCTIONS,
    "select": np.where,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "negation": np.logical_not,
    "bits16": to_bits,
    "bits32": to_bits,
    "bits64": to_bits,
    "float16": _make_float_view(TYPES["f16"]),
    "float32": _make_float_view(TYPES["f32"]),
    "float64": _make_float_view(TYPES["f64"]),
}
