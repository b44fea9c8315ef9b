"""Paths of waves: the instructions that the waves of the first work-groups of a launch executed, in order.

A path is a sequence of runs. A run is a number of instructions that follow each other in the code, so a loop of a
thousand rounds has a thousand runs, not a million addresses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Work-groups whose paths are kept. Work-groups of one launch seldom differ, except at the edges of a problem.
RECORDED_BLOCKS = 4
# Runs of one wave that are kept. A main loop has one to ten runs per round.
MOST_RUNS = 4096


@dataclass(frozen=True, slots=True)
class WavePath:
    """The runs of one wave: the address of the first instruction, and their number. Not all, if it is `cut`."""

    runs: tuple[tuple[int, int], ...]
    cut: bool = False

    @property
    def executed(self) -> int:
        """The number of instructions."""
        return sum(count for _, count in self.runs)


BlockPaths = tuple[tuple[WavePath, ...], ...]  # of each recorded work-group, the path of each of its waves


@dataclass(slots=True)
class PathRecorder:
    """Collects paths of waves by their number in the grid. The engines fill it."""

    blocks: int = RECORDED_BLOCKS
    most_runs: int = MOST_RUNS
    _runs: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    _ends: dict[int, int] = field(default_factory=dict)  # the address behind the last run of a wave
    _cut: set[int] = field(default_factory=set)

    def add_run(self, wave: int, address: int, count: int, end: int) -> None:
        """Add `count` instructions from `address` on; `end` is the address behind them."""
        runs = self._runs.setdefault(wave, [])
        if wave in self._cut:
            return
        if runs and self._ends[wave] == address:
            runs[-1] = (runs[-1][0], runs[-1][1] + count)
        elif len(runs) < self.most_runs:
            runs.append((address, count))
        else:
            self._cut.add(wave)
            return
        self._ends[wave] = end

    def add_path(self, wave: int, path: WavePath) -> None:
        """Add a whole path."""
        self._runs[wave] = list(path.runs)
        if path.cut:
            self._cut.add(wave)

    def list_paths(self, waves_per_block: int) -> BlockPaths:
        """Return the paths by work-group and wave."""
        waves = [WavePath(tuple(runs), wave in self._cut) for wave, runs in sorted(self._runs.items())]
        return tuple(tuple(waves[at : at + waves_per_block]) for at in range(0, len(waves), waves_per_block))


def paths_to_json(paths: BlockPaths) -> list[list[Mapping[str, object]]]:
    """Return plain values for JSON."""
    return [[{"runs": [list(run) for run in path.runs], "cut": path.cut} for path in block] for block in paths]


def paths_from_json(document: Sequence[Sequence[Mapping[str, object]]]) -> BlockPaths:
    """Read the values of `paths_to_json`."""
    return tuple(tuple(_read_path(path) for path in block) for block in document)


def _read_path(document: Mapping[str, object]) -> WavePath:
    runs = document["runs"]
    assert isinstance(runs, list)
    return WavePath(tuple((first, count) for first, count in runs), bool(document["cut"]))
