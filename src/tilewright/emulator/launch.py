"""Launches on the emulated device: modes, engines and sizes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NUMPY, NATIVE = "numpy", "native"
AUTO = "auto"  # the native engine if there is a compiler and it supports every instruction, else NumPy's
ENGINES = (NUMPY, NATIVE, AUTO)


class Mode(Enum):
    """FAST runs all waves in lockstep. STRICT exposes missing barriers and missing waits."""

    FAST = "fast"
    STRICT = "strict"


@dataclass(frozen=True, slots=True)
class Extent:
    """A size in three dimensions."""

    x: int
    y: int = 1
    z: int = 1

    @property
    def count(self) -> int:
        return self.x * self.y * self.z


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: `grid` in work-groups, `block` in threads, `arguments` in their memory layout."""

    grid: Extent
    block: Extent
    arguments: bytes
    dynamic_lds: int = 0
