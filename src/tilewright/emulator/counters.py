"""Exact counters of a launch."""

from __future__ import annotations

from dataclasses import dataclass, field, fields


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
