"""Profiles of launches: how often each instruction ran, its active lanes, its traffic and its bank conflicts.

Everything here is counted, not timed: the same launch has the same profile on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from tilewright.building.disassembled import DisassembledLine
from tilewright.building.instruction_mix import classify
from tilewright.emulator.demangled_names import demangle, shorten_name
from tilewright.emulator.launch import Extent
from tilewright.emulator.source_lines import SourceLine
from tilewright.emulator.wave_paths import BlockPaths, PathRecorder, paths_from_json, paths_to_json


@dataclass(slots=True)
class InstructionCounts:
    """Counts of one instruction. Lanes and bytes are sums over all its executions by waves."""

    executed: int = 0
    lanes: int = 0
    global_read_bytes: int = 0
    global_write_bytes: int = 0
    lds_read_bytes: int = 0
    lds_write_bytes: int = 0
    cache_lines: int = 0
    bank_conflict_cycles: int = 0
    atomics: int = 0

    def add(self, other: InstructionCounts) -> None:
        """Add the counts of another instruction, or of another launch."""
        for item in fields(InstructionCounts):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))

    def to_json(self) -> dict[str, int]:
        """Plain values for JSON, without zeros."""
        return {item.name: value for item in fields(InstructionCounts) if (value := getattr(self, item.name))}


# Classes of instructions that run for the active lanes only. Matrix instructions run for all lanes.
VECTOR = ("valu", "lds", "global")
# The counts that are also counters of a launch (`Counters`).
TRAFFIC = tuple(item.name for item in fields(InstructionCounts))[2:]


@dataclass(slots=True)
class ProfileRecorder:
    """Collects the counts of a launch by the instruction's address, and paths of waves. The engines fill it."""

    counts: dict[int, InstructionCounts] = field(default_factory=dict)
    paths: PathRecorder = field(default_factory=PathRecorder)

    def at(self, address: int) -> InstructionCounts:
        """Return the counts of the instruction at an address."""
        return self.counts.setdefault(address, InstructionCounts())


@dataclass(frozen=True, slots=True)
class ProfiledInstruction:
    """An instruction that ran, its class and its source line, if the code object has one for it."""

    address: int
    text: str
    kind: str
    source: SourceLine | None
    counts: InstructionCounts  # lanes: of the classes in VECTOR only


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """The profile of a kernel's launches."""

    kernel: str  # the symbol
    arch: str
    wave_size: int
    grid: Extent
    block: Extent
    waves: int
    vgprs: int
    lds_bytes: int
    blocks_per_unit: int  # work-groups that one compute unit holds at once
    instructions: tuple[ProfiledInstruction, ...]  # by address
    launches: int = 1
    paths: BlockPaths = ()  # of the first work-groups of the first launch

    @property
    def short_name(self) -> str:
        """The kernel's name for tables."""
        return shorten_name(self.kernel)

    @property
    def full_name(self) -> str:
        """The kernel's name as in the source, with its parameters."""
        return demangle(self.kernel)

    @property
    def executed(self) -> int:
        """Instructions that waves executed."""
        return sum(each.counts.executed for each in self.instructions)

    def count_classes(self) -> dict[str, int]:
        """Count executed instructions by class, the largest first."""
        found: dict[str, int] = {}
        for each in self.instructions:
            found[each.kind] = found.get(each.kind, 0) + each.counts.executed
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def merge(self, other: KernelProfile) -> KernelProfile:
        """Add the launches of the same kernel; sizes are those of the first launch."""
        counts = {each.address: each for each in other.instructions}
        for each in self.instructions:
            total = replace(each.counts)
            if each.address in counts:
                total.add(counts[each.address].counts)
            counts[each.address] = replace(each, counts=total)
        return replace(
            self,
            waves=self.waves + other.waves,
            instructions=tuple(counts[address] for address in sorted(counts)),
            launches=self.launches + other.launches,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "kernel": self.kernel,
            "kernel_name": self.full_name,
            "gpu": self.arch,
            "wave_size": self.wave_size,
            "launches": self.launches,
            "grid": [self.grid.x, self.grid.y, self.grid.z],
            "block": [self.block.x, self.block.y, self.block.z],
            "waves": self.waves,
            "vgprs": self.vgprs,
            "lds_bytes": self.lds_bytes,
            "blocks_per_unit": self.blocks_per_unit,
            "instructions": [
                {
                    "address": each.address,
                    "text": each.text,
                    "kind": each.kind,
                    "source": None if each.source is None else [each.source.file, each.source.line, each.source.column],
                    **each.counts.to_json(),
                }
                for each in self.instructions
            ],
            "paths": paths_to_json(self.paths),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> KernelProfile:
        """Read the values of `to_json`."""
        names = [item.name for item in fields(InstructionCounts)]
        return cls(
            kernel=document["kernel"],
            arch=document["gpu"],
            wave_size=document["wave_size"],
            grid=Extent(*document["grid"]),
            block=Extent(*document["block"]),
            waves=document["waves"],
            vgprs=document["vgprs"],
            lds_bytes=document["lds_bytes"],
            blocks_per_unit=document["blocks_per_unit"],
            instructions=tuple(
                ProfiledInstruction(
                    each["address"],
                    each["text"],
                    each["kind"],
                    None if each["source"] is None else SourceLine(*each["source"]),
                    InstructionCounts(**{name: each[name] for name in names if name in each}),
                )
                for each in document["instructions"]
            ),
            launches=document["launches"],
            paths=paths_from_json(document["paths"]),
        )


@dataclass(frozen=True, slots=True)
class LineProfile:
    """The instructions of one source line, summed. `line` is None for instructions without one."""

    line: tuple[str, int] | None
    counts: InstructionCounts
    kinds: Mapping[str, int]  # executed instructions by class, the most frequent first

    @property
    def active_lanes(self) -> float | None:
        """The mean number of active lanes of its vector instructions; None if there are none."""
        executed = sum(self.kinds.get(kind, 0) for kind in VECTOR)
        return self.counts.lanes / executed if executed else None

    @property
    def lines_per_access(self) -> float | None:
        """The mean number of cache lines that a wave touches in one access to memory; None without accesses."""
        accesses = self.kinds.get("global", 0)
        return self.counts.cache_lines / accesses if accesses else None


def sum_lines(profile: KernelProfile) -> list[LineProfile]:
    """Sum the counts of each source line, the line with the most executed instructions first."""
    counts: dict[tuple[str, int] | None, InstructionCounts] = {}
    kinds: dict[tuple[str, int] | None, dict[str, int]] = {}
    for each in profile.instructions:
        line = None if each.source is None else (each.source.file, each.source.line)
        counts.setdefault(line, InstructionCounts()).add(each.counts)
        own = kinds.setdefault(line, {})
        own[each.kind] = own.get(each.kind, 0) + each.counts.executed
    found = [
        LineProfile(line, counts[line], dict(sorted(kinds[line].items(), key=lambda item: -item[1]))) for line in counts
    ]
    return sorted(found, key=lambda each: -each.counts.executed)


def list_instructions(
    recorder: ProfileRecorder, lines: Mapping[int, DisassembledLine], find_line: Callable[[int], SourceLine | None]
) -> tuple[ProfiledInstruction, ...]:
    """List the instructions that ran, with their texts and source lines."""
    listed = []
    for address, found in sorted(recorder.counts.items()):
        text = lines[address].text
        kind = classify(text.split()[0])
        own = found if kind in VECTOR else replace(found, lanes=0)
        listed.append(ProfiledInstruction(address, text, kind, find_line(address), own))
    return tuple(listed)
