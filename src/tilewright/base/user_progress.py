"""Progress of the functions that a Python program calls: a line in a terminal or notebook, else log lines.

The command line has displays of its own; a listener that is already there replaces the one here. Only the standard
library is used. Log lines go to the logger `tilewright`, which a program configures as any other.
"""

from __future__ import annotations

import functools
import logging
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import ParamSpec, TextIO, TypeVar

from tilewright.base import events

P = ParamSpec("P")
R = TypeVar("R")

LOGGER = logging.getLogger("tilewright")
# Tasks that end sooner are not shown in a terminal.
PATIENCE_S = 0.5
# Seconds between two changes of the line in a terminal, and between two progress lines in a log.
REDRAW_S, LOG_S = 0.2, 30.0


def report_progress(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function: its events are shown or logged, unless the caller listens to them."""

    @functools.wraps(function)
    def reporting(*args: P.args, **kwargs: P.kwargs) -> R:
        if events.has_listener():
            return function(*args, **kwargs)
        listener = UserProgress(sys.stderr if is_interactive(sys.stderr) else None)
        try:
            with events.add_listener(listener):
                return function(*args, **kwargs)
        finally:
            listener.close()

    return reporting


def is_interactive(stream: TextIO) -> bool:
    """Whether someone watches the stream: in a terminal, or in a notebook, whose stderr is not a terminal."""
    return stream.isatty() or "ipykernel" in sys.modules


class UserProgress:
    """Logs every event, and shows the current task in one line of a stream if there is one."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._totals: dict[str, int | None] = {}
        self._started: dict[str, float] = {}
        self._logged: dict[str, float] = {}
        self._done: Counter[str] = Counter()
        self._drawn = ""
        self._drawn_at = 0.0

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.Started):
            self._start_task(event)
        elif isinstance(event, events.Advanced):
            self._done[event.task] += event.done
            self._show_task(event.task, event.detail)
        elif isinstance(event, events.Working):
            self._show_task(event.task, format_working(event))
        elif isinstance(event, events.Finished):
            self._finish_task(event.task)
        elif isinstance(event, events.Notice):
            self._clear_line()
            LOGGER.warning("%s", event.message)
        elif isinstance(event, events.Detail):
            LOGGER.debug("%s", event.message)

    def close(self) -> None:
        """Remove the line from the screen."""
        self._clear_line()

    def _start_task(self, event: events.Started) -> None:
        now = time.monotonic()
        self._totals[event.task], self._done[event.task] = event.total, 0
        self._started[event.task] = self._logged[event.task] = now
        LOGGER.debug("%s: started%s", event.task, "" if event.total is None else f", {event.total:,} steps")

    def _finish_task(self, task: str) -> None:
        self._clear_line()
        seconds = time.monotonic() - self._started.pop(task, time.monotonic())
        level = logging.INFO if seconds >= PATIENCE_S else logging.DEBUG
        LOGGER.log(level, "%s: %s, finished after %.1f s", task, self._format_count(task), seconds)

    def _show_task(self, task: str, text: str) -> None:
        now = time.monotonic()
        line = " · ".join(filter(None, (f"{task} {self._format_count(task)}", text)))
        if now - self._logged.get(task, now) >= LOG_S:
            self._logged[task] = now
            LOGGER.info("%s", line)
        if now - self._started.get(task, now) >= PATIENCE_S and now - self._drawn_at >= REDRAW_S:
            self._drawn_at = now
            self._draw_line(line)

    def _draw_line(self, line: str) -> None:
        if self._stream is not None:
            shown = line[: max(shutil.get_terminal_size().columns - 1, 20)]
            self._stream.write(f"\r{shown:<{len(self._drawn)}}")
            self._stream.flush()
            self._drawn = shown

    def _clear_line(self) -> None:
        if self._stream is not None and self._drawn:
            self._stream.write(f"\r{'':<{len(self._drawn)}}\r")
            self._stream.flush()
            self._drawn = ""

    def _format_count(self, task: str) -> str:
        total = self._totals.get(task)
        return f"{self._done[task]:,}" + ("" if total is None else f" of {total:,}")


def format_working(event: events.Working) -> str:
    """The remaining time, the number of running items, and the item that has run longest."""
    parts = [] if event.left_s is None else [f"about {format_duration(event.left_s)} left"]
    if len(event.on) > 1:
        parts.append(f"{len(event.on)} at once")
    parts += event.on[:1]
    return " · ".join(parts)


def format_duration(seconds: float) -> str:
    """`8 s`, `3 min`, `2.5 h`: with the precision of an estimate."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
