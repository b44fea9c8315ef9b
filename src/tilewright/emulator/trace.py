"""Traces of programs on the emulated device: a page with hot spots, and timelines for Chrome or Perfetto.

A trace counts; it does not measure time. On the timeline of launches, a launch is as long as the number of its
instructions. Clocks and stalls are estimates of a model (`timing`).
"""

from __future__ import annotations

import json
import linecache
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.arch import load
from tilewright.base.atomic_write import create_folder, write_text
from tilewright.base.documents import parse_json
from tilewright.emulator.demangled_names import demangle, shorten_name
from tilewright.emulator.profile import KernelProfile, LineProfile, sum_lines
from tilewright.emulator.timing.estimate import NOTE, LineEstimate, TimingEstimate, run_timeline, summarize
from tilewright.emulator.timing.machine import load_machine
from tilewright.emulator.timing.wave_events import make_wave_events

PAGE, PROFILES, TIMELINE, WAVES = "index.html", "profile.json", "trace.json", "waves.json"
TEMPLATE = "trace.html.j2"
MOST_LINES = 40  # of each kernel on the page
MOST_ESTIMATED = 12  # source lines with estimated clocks of each kernel on the page
LEAST_SHARE = 0.01  # of the clocks of all waves: stalls below are not named


@dataclass(frozen=True, slots=True)
class ProgramTrace:
    """The profiles of one process, and its launches in order: kernel and executed instructions."""

    program: tuple[str, ...]
    pid: int
    arch: str
    mode: str
    launches: tuple[tuple[str, int], ...]
    kernels: tuple[KernelProfile, ...]

    def to_json(self, estimates: Mapping[str, TimingEstimate]) -> dict[str, Any]:
        """Plain values for JSON, with the estimate of each kernel."""
        return {
            "program": list(self.program),
            "pid": self.pid,
            "gpu": self.arch,
            "mode": self.mode,
            "launches": [{"kernel": kernel, "executed": executed} for kernel, executed in self.launches],
            "kernels": [
                {**profile.to_json(), "estimate": estimates[profile.kernel].to_json()} for profile in self.kernels
            ],
        }


def read_traces(file: Path) -> list[ProgramTrace]:
    """Read the lines that the processes of a program wrote."""
    return [_read_trace(parse_json(line)) for line in file.read_text("utf-8").splitlines()]


def _read_trace(document: Mapping[str, Any]) -> ProgramTrace:
    return ProgramTrace(
        program=tuple(document["program"]),
        pid=document["pid"],
        arch=document["gpu"],
        mode=document["mode"],
        launches=tuple((each["kernel"], each["executed"]) for each in document["launches"]),
        kernels=tuple(KernelProfile.from_json(each) for each in document["kernels"]),
    )


@dataclass(frozen=True, slots=True)
class EstimatedTrace:
    """A trace with the estimate of each kernel, by its symbol, and the events of their timelines."""

    trace: ProgramTrace
    estimates: Mapping[str, TimingEstimate]
    events: Sequence[Mapping[str, Any]]


def estimate_trace(trace: ProgramTrace) -> EstimatedTrace:
    """Estimate the clocks of a program's kernels."""
    machine = load_machine(load(trace.arch))
    estimates: dict[str, TimingEstimate] = {}
    events: list[Mapping[str, Any]] = []
    for number, profile in enumerate(trace.kernels):
        timeline = run_timeline(profile, machine, events=True)
        estimates[profile.kernel] = summarize(profile, timeline)
        events += make_wave_events(profile, timeline, number)
    return EstimatedTrace(trace, estimates, events)


def write_trace(folder: Path, traces: Sequence[EstimatedTrace]) -> None:
    """Write the page, the profiles and the timelines of a program into a folder."""
    create_folder(folder)
    events = [event for each in traces for event in each.events]
    texts = {
        PAGE: render_page(traces),
        PROFILES: json.dumps([each.trace.to_json(each.estimates) for each in traces]),
        TIMELINE: json.dumps(make_timeline([each.trace for each in traces])),
        WAVES: json.dumps({"traceEvents": events, "otherData": {"unit": "1 us is one clock", "note": NOTE}}),
    }
    for name, text in texts.items():
        write_text(folder / name, text)


def make_timeline(traces: Iterable[ProgramTrace]) -> dict[str, Any]:
    """Make a timeline in Chrome's trace format, which Perfetto reads too: one microsecond is one instruction."""
    events: list[dict[str, Any]] = []
    for trace in traces:
        label = {"name": " ".join(trace.program)}
        events.append({"ph": "M", "name": "process_name", "pid": trace.pid, "tid": 0, "args": label})
        start = 0
        for kernel, executed in trace.launches:
            events.append(
                {
                    "ph": "X",
                    "name": shorten_name(kernel),
                    "pid": trace.pid,
                    "tid": 0,
                    "ts": start,
                    "dur": executed,
                    "args": {"instructions": executed, "kernel": demangle(kernel)},
                }
            )
            start += executed
    return {"traceEvents": events, "otherData": {"unit": "1 us is one executed wave instruction"}}


@dataclass(frozen=True, slots=True)
class _Row:
    """A source line on the page."""

    place: str
    text: str
    share: float
    line: LineProfile


@dataclass(frozen=True, slots=True)
class _EstimatedRow:
    """The estimated clocks of a source line on the page."""

    place: str
    text: str
    share: float
    issued: float
    stalls: str


@dataclass(frozen=True, slots=True)
class _Section:
    """A kernel on the page."""

    profile: KernelProfile
    classes: list[tuple[str, int, float]]
    rows: list[_Row]
    hidden: int  # source lines that the page leaves out
    hottest: int  # executions of the instruction that ran most often
    estimate: TimingEstimate
    stalls: list[tuple[str, float]]  # shares of the clocks of all waves, by reason, with those that issue
    estimated: list[_EstimatedRow]


def render_page(traces: Sequence[EstimatedTrace]) -> str:
    """Render the page of a trace, which needs no other file."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - takes long to import

    loader = FileSystemLoader(Path(__file__).with_name("templates"))
    environment = Environment(loader=loader, undefined=StrictUndefined, autoescape=True)
    sections = [
        (
            each.trace,
            [
                _make_section(profile, each.estimates[profile.kernel])
                for profile in sorted(each.trace.kernels, key=lambda profile: -profile.executed)
            ],
        )
        for each in traces
    ]
    return environment.get_template(TEMPLATE).render(traces=sections)


def _make_section(profile: KernelProfile, estimate: TimingEstimate) -> _Section:
    total = max(profile.executed, 1)
    lines = sum_lines(profile)
    rows = [_make_row(line, total) for line in lines[:MOST_LINES]]
    return _Section(
        profile,
        [(name, count, count / total) for name, count in profile.count_classes().items()],
        rows,
        max(len(lines) - MOST_LINES, 0),
        max(each.counts.executed for each in profile.instructions),
        estimate,
        list_shares(estimate),
        [_make_estimated_row(line, estimate.wave_clocks) for line in estimate.lines[:MOST_ESTIMATED]],
    )


def list_shares(estimate: TimingEstimate) -> list[tuple[str, float]]:
    """Return the shares of a kernel's clocks in which waves issue, and in which they wait for each reason."""
    stalled = sum(estimate.stalled.values())
    shares = [("issuing", (estimate.wave_clocks - stalled) / estimate.wave_clocks)]
    shares += [(reason, clocks / estimate.wave_clocks) for reason, clocks in estimate.stalled.items()]
    return [(name, share) for name, share in shares if share >= LEAST_SHARE]


def _make_estimated_row(line: LineEstimate, total: int) -> _EstimatedRow:
    shown = ((reason, clocks / total) for reason, clocks in line.stalled.items())
    stalls = ", ".join(f"{reason} {100 * share:.1f} %" for reason, share in shown if share >= LEAST_SHARE)
    return _EstimatedRow(*_find_text(line.line), line.clocks / total, line.issued / total, stalls)


def _make_row(line: LineProfile, total: int) -> _Row:
    return _Row(*_find_text(line.line), line.counts.executed / total, line)


def _find_text(line: tuple[str, int] | None) -> tuple[str, str]:
    """Return place and text of a source line."""
    if line is None:
        return "", "instructions without a source line"
    file, number = line
    # Empty if the file is not here: the page shows the place only.
    return f"{Path(file).name}:{number}", linecache.getline(file, number).strip()
