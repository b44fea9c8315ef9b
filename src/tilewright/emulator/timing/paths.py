"""The operations that waves execute, from the recorded paths of a profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.emulator.profile import KernelProfile
from tilewright.emulator.timing.machine import TimingMachine
from tilewright.emulator.timing.operations import BRANCH, TimedOperation, make_operations
from tilewright.emulator.wave_paths import WavePath


@dataclass(frozen=True, slots=True)
class Loop:
    """The loop with the most executed instructions: where a round begins, its rounds in a wave and their length."""

    address: int
    rounds: int
    instructions: int  # of one round of a wave
    matrix: int  # matrix instructions among them


def make_paths(
    profile: KernelProfile, machine: TimingMachine, most: int | None = None
) -> list[list[list[TimedOperation]]]:
    """Return the operations of each wave of each recorded work-group, at most `most` of each wave.

    Waves with the same path share them.
    """
    operations = make_operations(profile.instructions, machine)
    made: dict[WavePath, list[TimedOperation]] = {}
    for block in profile.paths:
        for path in block:
            if path not in made:
                made[path] = _expand(path, operations, machine)[:most]
    return [[made[path] for path in block] for block in profile.paths]


def _expand(path: WavePath, operations: Mapping[int, TimedOperation], machine: TimingMachine) -> list[TimedOperation]:
    addresses = list(operations)
    places = {address: at for at, address in enumerate(addresses)}
    listed: list[TimedOperation] = []
    for first, count in path.runs:
        at = places[first]
        listed += (operations[address] for address in addresses[at : at + count])
        if listed[-1].unit == BRANCH:  # a run ends with a jump that was taken
            listed[-1] = replace(listed[-1], step=machine.jump)
    return listed


def find_loop(profile: KernelProfile) -> Loop | None:
    """Return the loop in which the first wave executes the most instructions; None without a loop."""
    runs = profile.paths[0][0].runs
    heads = Counter(first for first, _ in runs)
    best: Loop | None = None
    matrix = {each.address for each in profile.instructions if each.kind == "matrix"}
    for head, rounds in heads.items():
        if rounds < 2:
            continue
        places = [at for at, (first, _) in enumerate(runs) if first == head]
        body = runs[places[0] : places[1]]
        length = sum(count for _, count in body)
        if best is None or rounds * length > best.rounds * best.instructions:
            best = Loop(head, rounds, length, _count_matrix(body, profile, matrix))
    return best


def _count_matrix(body: Sequence[tuple[int, int]], profile: KernelProfile, matrix: set[int]) -> int:
    addresses = [each.address for each in profile.instructions]
    places = {address: at for at, address in enumerate(addresses)}
    return sum(
        address in matrix for first, count in body for address in addresses[places[first] : places[first] + count]
    )
