"""Export a build as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.building.build_progress import Span
from tilewright.building.compile_job import CompileJob


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
