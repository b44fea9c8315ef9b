"""Constants that several rules share: groups of fields that they read, and parts of their examples."""

from __future__ import annotations

from typing import Any

from tilewright.arch.spec import Shape

TYPES = ("dtype_a", "dtype_b", "dtype_acc")
TILES = ("block", "waves", "mma")
COMPV5_WAVES = Shape(1, 1, 2)

COMPV5: dict[str, Any] = {
    "pipeline": "compv5",
    "waves": COMPV5_WAVES,
    "wave_groups": 2,
    "epilogue": "default",
}
FP8 = {"dtype_a": "fp8", "dtype_b": "fp8", "dtype_c": "fp16"}
