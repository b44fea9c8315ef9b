"""Findings: what a check found, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.demangled_names import demangle, shorten_name
from tilewright.emulator.faults import Fault
from tilewright.emulator.source_lines import SourceLine

# Names of findings and what they mean. Faults have the names of their classes.
KINDS = {
    "uninitialized-read": "A kernel reads memory or LDS that nobody wrote.",
    "race": "Two waves access the same bytes, at least one writes, and nothing orders them.",
    "divergent-barrier": "Not all waves or lanes of a work-group reach a barrier.",
    "spin": "All waves wait for a change that no wave makes.",
    "leak": "Memory is not freed when the program ends.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. The first place is the instruction at which it was found; `count` is how often it was."""

    name: str
    message: str
    gpu: str = ""
    places: tuple[CodePlace, ...] = ()
    advice: str = ""
    count: int = 1
    has_lines: bool = field(default=True, compare=False)  # whether the code object has a line table

    @property
    def kernel(self) -> str:
        """The symbol of the kernel, empty for findings without one."""
        return (self.places[0].kernel or "") if self.places else ""

    @property
    def source(self) -> SourceLine | None:
        """The source line of the first place."""
        return self.places[0].source if self.places else None

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.message}"]
        for place in self.places:
            where = f"{place.source}: " if place.source is not None else ""
            at = f" (at {place.address:#x})" if place.address is not None else ""
            told = ", ".join(filter(None, (place.describe_indices(), place.action)))
            lines.append(f"  {where}{told}")
            lines += [f"    inlined at {call}" for call in place.calls]
            if place.instruction is not None:
                lines.append(f"    {place.instruction}{at}")
        if self.kernel:
            times = "" if self.count == 1 else f", found {self.count} times"
            lines.append(f"  kernel: {shorten_name(self.kernel)}{times}")
        if self.advice:
            lines.append(f"  {self.advice}")
        if not self.has_lines:
            lines.append("  no source lines: the kernel was compiled without -gline-tables-only or -g")
        return "\n".join(lines)


class CheckFault(Fault):
    """The checks of a launch found something; the launch ran to its end. `findings` has everything."""

    name = "check"

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        first = self.findings[0]
        others = len(self.findings) - 1
        more = f"\n  and {others} more, see the attribute `findings`" if others else ""
        super().__init__(f"{first}{more}", CodePlace())

    def add_location(self, **_: object) -> Fault:
        """Return itself: each finding has its own location."""
        return self


def make_fault_finding(fault: Fault, gpu: str) -> Finding:
    """Return a fault as a finding."""
    return Finding(fault.name, fault.what, gpu, (fault.place,))


def finding_to_json(finding: Finding) -> dict[str, Any]:
    """Plain values for JSON: `kernel` is the symbol, `kernel_name` its full name in the source."""
    return {**asdict(finding), "kernel": finding.kernel, "kernel_name": demangle(finding.kernel)}


def finding_from_json(document: Mapping[str, Any]) -> Finding:
    """Return the finding of a JSON document."""
    places = tuple(
        CodePlace(
            **{
                **place,
                "source": None if place["source"] is None else SourceLine(**place["source"]),
                "calls": tuple(SourceLine(**call) for call in place["calls"]),
            }
        )
        for place in document["places"]
    )
    derived = ("kernel", "kernel_name")
    return Finding(**{key: value for key, value in document.items() if key not in derived} | {"places": places})
