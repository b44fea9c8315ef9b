"""The progress of a build: running kernels, exit codes and the estimated remaining time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.building.compile_costs import CompileCosts
from tilewright.building.compile_job import CompileJob
from tilewright.building.ninja_run import IdleTick, StepEnded, StepEvent, StepStarted


def sort_longest_first(units: Sequence[CompileJob], costs: CompileCosts) -> list[CompileJob]:
    """Sort units by expected cost, unknown ones first, so that no long one starts last."""
    return sorted(units, key=lambda unit: -(costs.estimate_cpu_s(unit.kernel) or float("inf")))


@dataclass(frozen=True)
class Span:
    """A finished step, for the trace; times are seconds since the start of the build."""

    key: str
    step: str
    start: float
    end: float
    code: int


@dataclass
class BuildProgress:
    """Tracks the steps of one ninja run."""

    units: Mapping[str, CompileJob]
    costs: CompileCosts
    jobs: int
    offset: float = 0.0  # start of this run, in seconds since the start of the build
    running: dict[tuple[str, str], float] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    codes: dict[str, dict[str, int]] = field(default_factory=dict)
    was_full: bool = False  # whether the disk had no room when a step started or ended, or in between
    _began: float = field(default_factory=time.monotonic)
    _done_guess: float = 0.0

    def record_event(self, event: StepEvent, *, disk_full: bool) -> None:
        """Record an event, and whether the disk is full now: when a failure is judged, there may be room again."""
        self.was_full |= disk_full
        if isinstance(event, StepStarted):
            self.running[event.key, event.step] = event.at
            return
        if isinstance(event, IdleTick):
            return
        start = self.running.pop((event.key, event.step), event.at)
        self.codes.setdefault(event.key, {})[event.step] = event.code
        self.spans.append(Span(event.key, event.step, self.offset + start, self.offset + event.at, event.code))

    def is_finished(self, event: StepEnded, steps: Sequence[str]) -> bool:
        """Return whether this event finishes its kernel: all steps ended, or one failed and no other runs."""
        codes = self.codes[event.key]
        idle = not any(key == event.key for key, _ in self.running)
        return idle and (len(codes) == len(steps) or (any(codes.values()) and len(codes) >= len(steps) - 1))

    def mark_done(self, unit: CompileJob) -> None:
        """Mark a kernel as done."""
        self._done_guess += self.costs.estimate_cpu_s(unit.kernel) or 0.0

    @property
    def running_kernels(self) -> tuple[str, ...]:
        """The kernels that are being compiled, longest running first."""
        keys = dict.fromkeys(key for key, _ in sorted(self.running, key=lambda step: self.running[step]))
        return tuple(self.units[key].kernel.slug for key in keys)

    @property
    def remaining_s(self) -> float | None:
        """Estimated seconds to the end: remaining recorded cost, divided by the speed of this run."""
        total = sum(self.costs.estimate_cpu_s(unit.kernel) or 0.0 for unit in self.units.values())
        if total == 0.0:
            return None
        elapsed = time.monotonic() - self._began
        # Costs are in CPU seconds; until a kernel is done, assume that every job has a core.
        pace = self._done_guess / elapsed if self._done_guess else float(min(self.jobs, len(self.units)))
        return max(total - self._done_guess, 0.0) / pace - (0.0 if self._done_guess else min(elapsed, total / pace))


def build_trace(spans: Sequence[Span], units: Mapping[str, CompileJob]) -> dict[str, Any]:
    """Build a trace in Chrome's "Trace Event Format": steps as complete events in microseconds, one row per job."""
    rows: list[float] = []
    events = []
    for span in sorted(spans, key=lambda span: span.start):
        row = next((i for i, free in enumerate(rows) if free <= span.start), len(rows))
        rows[row : row + 1] = [span.end]
        unit = units[span.key]
        events.append(
            {
                "name": unit.kernel.slug,
                "cat": span.step,
                "ph": "X",
                "pid": 1,
                "tid": row + 1,
                "ts": round(span.start * 1e6),
                # From rounded times, so that an event never overlaps the next one in its row.
                "dur": round(span.end * 1e6) - round(span.start * 1e6),
                "args": {"step": span.step, "key": span.key, "arch": unit.kernel.arch, "code": span.code},
            }
        )
    names = [_make_name_event(1, 0, "process_name", "tilewright build")]
    names += [_make_name_event(1, row + 1, "thread_name", f"job {row + 1}") for row in range(len(rows))]
    return {"traceEvents": [*names, *events], "displayTimeUnit": "ms"}


def _make_name_event(process: int, thread: int, kind: str, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
