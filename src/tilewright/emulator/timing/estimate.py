"""Estimate the clocks of a kernel and its stalls by source line, from a profile. A model: nothing here is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.emulator.profile import KernelProfile
from tilewright.emulator.timing.machine import TimingMachine, load_machine
from tilewright.emulator.timing.paths import Loop, find_loop, make_paths
from tilewright.emulator.timing.simulator import ComputeUnit, Timeline, sum_reasons

# Instructions of all waves of a timeline, which takes about 4 µs for each. Of longer paths the first part is estimated.
MOST_INSTRUCTIONS = 200_000
NOTE = "estimated by a model of the GPU, not measured on one"
Place = tuple[str, int] | None  # source file and line; None for instructions without one


@dataclass(frozen=True, slots=True)
class LineEstimate:
    """The clocks of one source line, summed over the waves of the timeline."""

    line: Place
    issued: int
    stalled: Mapping[str, int]  # by reason, the largest first

    @property
    def clocks(self) -> int:
        """Clocks that waves spend at this line."""
        return self.issued + sum(self.stalled.values())


@dataclass(frozen=True, slots=True)
class TimingEstimate:
    """The estimate of one kernel: clocks of work-groups on one compute unit.

    `blocks` work-groups share the compute unit, as many as are resident and as the launch has for each unit.
    """

    arch: str
    blocks: int
    unit_clocks: int  # until all of them have ended
    block_clocks: int  # of a work-group, the mean
    wave_clocks: int  # the sum over waves, as in `lines`
    loop: Loop | None
    round_clocks: float | None  # of one round of the loop, in the first wave
    stalled: Mapping[str, int]  # by reason, the largest first
    lines: tuple[LineEstimate, ...]  # the line with the most clocks first
    cut: bool  # whether only the first part of the waves' paths is estimated

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        loop = self.loop
        return {
            "note": NOTE,
            "gpu": self.arch,
            "blocks": self.blocks,
            "unit_clocks": self.unit_clocks,
            "block_clocks": self.block_clocks,
            "wave_clocks": self.wave_clocks,
            "loop": None
            if loop is None
            else {
                "address": loop.address,
                "rounds": loop.rounds,
                "instructions": loop.instructions,
                "matrix_instructions": loop.matrix,
                "round_clocks": self.round_clocks,
            },
            "stalled": dict(self.stalled),
            "lines": [{"line": each.line, "issued": each.issued, "stalled": dict(each.stalled)} for each in self.lines],
            "cut": self.cut,
        }


def count_resident(profile: KernelProfile, arch: Arch) -> int:
    """Return the work-groups that share a compute unit: as occupancy allows, if the launch has so many."""
    return max(min(profile.blocks_per_unit, -(-profile.grid.count // arch.compute.units)), 1)


def run_timeline(profile: KernelProfile, machine: TimingMachine, *, events: bool = False) -> Timeline:
    """Run the resident work-groups of a profile on one compute unit."""
    loop = find_loop(profile)
    watched = frozenset() if loop is None else frozenset((loop.address,))
    resident = count_resident(profile, machine.arch)
    paths = make_paths(profile, machine, _find_longest(profile, resident))
    return ComputeUnit(machine, paths, watched=watched, events=events).run(resident, resident)


def _find_longest(profile: KernelProfile, resident: int) -> int:
    return max(MOST_INSTRUCTIONS // (resident * len(profile.paths[0])), 1)


def estimate(profile: KernelProfile, arch: Arch) -> TimingEstimate:
    """Estimate the clocks of a profile's kernel, and its stalls by source line."""
    return summarize(profile, run_timeline(profile, load_machine(arch)))


def summarize(profile: KernelProfile, timeline: Timeline) -> TimingEstimate:
    """Summarize a timeline by source line and reason."""
    loop = find_loop(profile)
    longest = _find_longest(profile, len(timeline.blocks))
    visits = () if loop is None else timeline.visits.get(loop.address, ())
    return TimingEstimate(
        arch=profile.arch,
        blocks=len(timeline.blocks),
        unit_clocks=timeline.clocks,
        block_clocks=round(sum(end - start for start, end in timeline.blocks) / len(timeline.blocks)),
        wave_clocks=timeline.wave_clocks,
        loop=loop,
        round_clocks=(visits[-1] - visits[0]) / (len(visits) - 1) if len(visits) > 1 else None,
        stalled=sum_reasons(timeline),
        lines=_sum_lines(profile, timeline),
        cut=any(path.cut or path.executed > longest for block in profile.paths for path in block),
    )


def _sum_lines(profile: KernelProfile, timeline: Timeline) -> tuple[LineEstimate, ...]:
    place: dict[int, Place] = {
        each.address: None if each.source is None else (each.source.file, each.source.line)
        for each in profile.instructions
    }
    issued: dict[Place, int] = {}
    stalled: dict[Place, dict[str, int]] = {}
    for address, clocks in timeline.issued.items():
        issued[place[address]] = issued.get(place[address], 0) + clocks
    for (address, reason), clocks in timeline.stalled.items():
        own = stalled.setdefault(place[address], {})
        own[reason] = own.get(reason, 0) + clocks
    lines = [
        LineEstimate(line, clocks, dict(sorted(stalled.get(line, {}).items(), key=lambda item: -item[1])))
        for line, clocks in issued.items()
    ]
    return tuple(sorted(lines, key=lambda each: -each.clocks))
