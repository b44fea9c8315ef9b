"""Launches on the emulated device: modes, engines, sizes and counters."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum


@dataclass(slots=True)
class Counters:
    """Counters of one launch. Instructions are counted per wave, bytes per active lane."""

    waves: int = 0
    steps: int = 0  # vectorised steps of the engine: its own cost, not a property of the kernel
    instructions: dict[str, int] = field(default_factory=dict)  # by class: valu, salu, matrix, lds, global, …
    matrix_flops: int = 0
    global_read_bytes: int = 0
    global_write_bytes: int = 0
    cache_lines: int = 0  # sum of distinct lines that each instruction of a wave touches
    lds_read_bytes: int = 0
    lds_write_bytes: int = 0
    bank_conflict_cycles: int = 0
    barriers: int = 0  # waves that arrived at a barrier
    atomics: int = 0  # active lanes of atomic instructions

    def __add__(self, other: Counters) -> Counters:
        total = Counters()
        for item in fields(Counters):
            mine, theirs = getattr(self, item.name), getattr(other, item.name)
            if isinstance(mine, dict):
                both = {key: mine.get(key, 0) + theirs.get(key, 0) for key in {**mine, **theirs}}
                setattr(total, item.name, both)
            else:
                setattr(total, item.name, mine + theirs)
        return total


NUMPY, NATIVE = "numpy", "native"
AUTO = "auto"  # the native engine if there is a compiler and it supports every instruction, else NumPy's
ENGINES = (NUMPY, NATIVE, AUTO)
LIMIT = 2**31  # wave instructions of a launch
MAX_THREADS = 2**32 - 1  # along one dimension: they have 32 bits in hsa_kernel_dispatch_packet_t


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
    """One launch: `grid` in work-groups, `block` in threads, `arguments` in their memory layout.

    `host_calls` is the address of the packets through which kernels call the host, or 0; `heap` that of the state of
    their heap. The work-groups of a `cooperative` launch all run together, so they may wait for each other.
    """

    grid: Extent
    block: Extent
    arguments: bytes
    dynamic_lds: int = 0
    host_calls: int = 0
    cooperative: bool = False
    heap: int = 0
