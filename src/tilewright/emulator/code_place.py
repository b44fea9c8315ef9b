"""Where something happened in a kernel: the instruction, its source line, and the wave that executed it."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.emulator.demangled_names import shorten_name

if TYPE_CHECKING:
    from tilewright.emulator.source_lines import SourceLine


@dataclass(frozen=True, slots=True)
class CodePlace:
    """The place of a fault, or of an instruction that takes part in a finding. Unknown parts are None.

    `calls` are the source lines of the calls through which the instruction was inlined.
    """

    kernel: str | None = None  # the symbol, as the code object has it
    address: int | None = None  # of the instruction, in its code object
    instruction: str | None = None
    block: int | None = None  # index of the work-group in the grid
    wave: int | None = None  # index of the wave in its work-group
    lane: int | None = None
    source: SourceLine | None = None
    calls: tuple[SourceLine, ...] = ()
    action: str = ""  # such as "writes"

    def describe_indices(self) -> str:
        """Work-group, wave and lane, as far as they are known."""
        known = (("work-group", self.block), ("wave", self.wave), ("lane", self.lane))
        return ", ".join(f"{name} {value}" for name, value in known if value is not None)

    def __str__(self) -> str:
        parts = []
        if self.source is not None:
            text = linecache.getline(self.source.file, self.source.line).strip()  # empty if the file is not here
            parts.append(f"source: {self.source}" + (f": {text}" if text else ""))
            parts += [f"inlined at {call}" for call in self.calls]
        if self.instruction is not None:
            at = f" at {self.address:#x}" if self.address is not None else ""
            parts.append(f"instruction{at}: {self.instruction}")
        if where := self.describe_indices():
            parts.append(where)
        if self.kernel is not None:
            parts.append(f"kernel: {shorten_name(self.kernel)}")
        return "\n  ".join(["", *parts]) if parts else ""
