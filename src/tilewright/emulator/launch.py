"""What is asked of the emulated device, and what it counted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NUMPY, NATIVE = "numpy", "native"
AUTO = "auto"  # the native engine where there is a compiler and it knows every instruction, else NumPy's
ENGINES = (NUMPY, NATIVE, AUTO)


class Mode(Enum):
    """FAST runs all waves in lock-step. STRICT makes every missing barrier and every missing wait visible."""

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
    """One launch: `grid` in work-groups, `block` in threads, `arguments` as the host laid them out in memory."""

    grid: Extent
    block: Extent
    arguments: bytes
    dynamic_lds: int = 0
