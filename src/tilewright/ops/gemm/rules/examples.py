"""Parts of examples that several rules share."""

from __future__ import annotations

from typing import Any

from tilewright.arch.spec import Shape

PRESHUFFLE: dict[str, Any] = {
    "variant": "preshuffle",
    "pipeline": "preshufflev2",
    "scheduler": "default",
    "waves": Shape(1, 4, 1),
    "mma": Shape(16, 16, 32),
    "block": Shape(128, 128, 64),
}
