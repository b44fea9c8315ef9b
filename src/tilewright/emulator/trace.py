"""Traces of programs on the emulated device: a page with hot spots, and a timeline for Chrome or Perfetto.

A trace counts; it does not measure time. On the timeline, a launch is as long as the number of its instructions.
"""

from __future__ import annotations

import json
import linecache
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base.atomic_write import write_atomically
from tilewright.base.documents import parse_json
from tilewright.emulator.demangled_names import demangle, shorten_name
from tilewright.emulator.profile import KernelProfile, LineProfile, sum_lines

PAGE, PROFILES, TIMELINE = "index.html", "profile.json", "trace.json"
TEMPLATE = "trace.html.j2"
MOST_LINES = 40  # of each kernel on the page


@dataclass(frozen=True, slots=True)
class ProgramTrace:
    """The profiles of one process, and its launches in order: kernel and executed instructions."""

    program: tuple[str, ...]
    pid: int
    arch: str
    mode: str
    launches: tuple[tuple[str, int], ...]
    kernels: tuple[KernelProfile, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "program": list(self.program),
            "pid": self.pid,
            "gpu": self.arch,
            "mode": self.mode,
            "launches": [{"kernel": kernel, "executed": executed} for kernel, executed in self.launches],
            "kernels": [profile.to_json() for profile in self.kernels],
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


def write_trace(folder: Path, traces: Sequence[ProgramTrace]) -> None:
    """Write the page, the profiles and the timeline of a program into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        PAGE: render_page(traces),
        PROFILES: json.dumps([trace.to_json() for trace in traces]),
        TIMELINE: json.dumps(make_timeline(traces)),
    }
    for name, text in texts.items():
        with write_atomically(folder / name) as draft:
            draft.write_text(text, "utf-8")


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
class _Section:
    """A kernel on the page."""

    profile: KernelProfile
    classes: list[tuple[str, int, float]]
    rows: list[_Row]
    hidden: int  # source lines that the page leaves out
    hottest: int  # executions of the instruction that ran most often


def render_page(traces: Sequence[ProgramTrace]) -> str:
    """Render the page of a trace, which needs no other file."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - takes long to import

    loader = FileSystemLoader(Path(__file__).with_name("templates"))
    environment = Environment(loader=loader, undefined=StrictUndefined, autoescape=True)
    sections = [
        (trace, [_make_section(profile) for profile in sorted(trace.kernels, key=lambda each: -each.executed)])
        for trace in traces
    ]
    return environment.get_template(TEMPLATE).render(traces=sections)


def _make_section(profile: KernelProfile) -> _Section:
    total = max(profile.executed, 1)
    lines = sum_lines(profile)
    rows = [_make_row(line, total) for line in lines[:MOST_LINES]]
    return _Section(
        profile,
        [(name, count, count / total) for name, count in profile.count_classes().items()],
        rows,
        max(len(lines) - MOST_LINES, 0),
        max(each.counts.executed for each in profile.instructions),
    )


def _make_row(line: LineProfile, total: int) -> _Row:
    share = line.counts.executed / total
    if line.line is None:
        return _Row("", "instructions without a source line", share, line)
    file, number = line.line
    text = linecache.getline(file, number).strip()  # empty if the file is not here: the page shows the place only
    return _Row(f"{Path(file).name}:{number}", text, share, line)
