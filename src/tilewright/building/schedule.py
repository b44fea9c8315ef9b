"""How far a build is: what runs now, what is left, and when it will end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.building.costs import Costs
from tilewright.building.ninja_run import StepEnded, StepEvent, StepStarted, Waited
from tilewright.building.unit import Unit


def longest_first(units: Sequence[Unit], costs: Costs) -> list[Unit]:
    """The order to begin in: by expected cost, the unknown ones first, so that no long one begins last."""
    return sorted(units, key=lambda unit: -(costs.guess(unit.kernel) or float("inf")))


@dataclass(frozen=True)
class Span:
    """A step that ran, for the trace: seconds since the build began."""

    key: str
    step: str
    start: float
    end: float
    code: int


@dataclass
class Schedule:
    """Follows the steps of one run of ninja."""

    units: Mapping[str, Unit]
    costs: Costs
    jobs: int
    offset: float = 0.0  # when this run began, in seconds since the build began
    running: dict[tuple[str, str], float] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    codes: dict[str, dict[str, int]] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _done_guess: float = 0.0

    def take(self, event: StepEvent) -> None:
        if isinstance(event, StepStarted):
            self.running[event.key, event.step] = event.at
            return
        if isinstance(event, Waited):
            return
        start = self.running.pop((event.key, event.step), event.at)
        self.codes.setdefault(event.key, {})[event.step] = event.code
        self.spans.append(Span(event.key, event.step, self.offset + start, self.offset + event.at, event.code))

    def finished(self, event: StepEnded, steps: Sequence[str]) -> bool:
        """Whether this event settles its kernel: the last step ended, or one failed and no other runs."""
        codes = self.codes[event.key]
        idle = not any(key == event.key for key, _ in self.running)
        return idle and (len(codes) == len(steps) or (any(codes.values()) and len(codes) >= len(steps) - 1))

    def settle(self, unit: Unit) -> None:
        """Count a kernel as done."""
        self._done_guess += self.costs.guess(unit.kernel) or 0.0

    @property
    def now(self) -> tuple[str, ...]:
        """The kernels that are being compiled, the longest running first."""
        keys = dict.fromkeys(key for key, _ in sorted(self.running, key=lambda step: self.running[step]))
        return tuple(self.units[key].kernel.slug for key in keys)

    @property
    def left_s(self) -> float | None:
        """Seconds to the end: what is left by the record, at the pace that this run has shown."""
        total = sum(self.costs.guess(unit.kernel) or 0.0 for unit in self.units.values())
        if total == 0.0:
            return None
        elapsed = time.monotonic() - self._began
        # The record is in CPU seconds; until something is done, assume that every job has a core.
        pace = self._done_guess / elapsed if self._done_guess else float(min(self.jobs, len(self.units)))
        return max(total - self._done_guess, 0.0) / pace - (0.0 if self._done_guess else min(elapsed, total / pace))
