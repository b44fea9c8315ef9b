"""The timeline of waves in Chrome's trace format, which Perfetto reads too: one microsecond is one clock."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.emulator.profile import KernelProfile
from tilewright.emulator.source_lines import SourceLine
from tilewright.emulator.timing.estimate import NOTE
from tilewright.emulator.timing.simulator import Stall, Timeline

# Shorter stalls are not drawn: most of them are the slots of other waves.
SHORTEST = 8
MOST_EVENTS = 50_000  # of a kernel


def make_wave_events(profile: KernelProfile, timeline: Timeline, process: int) -> list[dict[str, Any]]:
    """Return the stalls of each wave, with reason and source line. Between stalls, a wave issues instructions."""
    place = {each.address: _format_place(each.source) for each in profile.instructions}
    text = {each.address: each.text for each in profile.instructions}
    label = {"name": f"{profile.short_name} ({NOTE})"}
    named: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": label}]
    shown = [stall for stall in timeline.events if stall.end - stall.start >= SHORTEST]
    return named + [_make_event(stall, process, place, text) for stall in shown[:MOST_EVENTS]]


def _make_event(stall: Stall, process: int, place: Mapping[int, str], text: Mapping[int, str]) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": stall.reason,
        "pid": process,
        "tid": stall.wave,
        "ts": stall.start,
        "dur": stall.end - stall.start,
        "args": {"line": place[stall.address], "instruction": text[stall.address]},
    }


def _format_place(source: SourceLine | None) -> str:
    return "" if source is None else f"{Path(source.file).name}:{source.line}"
