"""Progress on stderr: one listener of the library's events."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tilewright.base import events

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# Work that ends sooner shows nothing.
PATIENCE_S = 0.5


class ProgressDisplay:
    """Shows a bar (or a moving one, for work of unknown length) per task that is under way."""

    def __init__(self) -> None:
        self._tasks: dict[str, TaskID] = {}
        self._progress: Progress | None = None
        self._timer: threading.Timer | None = None

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.Started):
            self._tasks[event.task] = self._shown().add_task(event.task, total=event.total)
        elif isinstance(event, events.Advanced) and event.task in self._tasks:
            self._shown().advance(self._tasks[event.task], event.done)
        elif isinstance(event, events.Finished) and event.task in self._tasks:
            self._shown().remove_task(self._tasks.pop(event.task))

    def close(self) -> None:
        """Take everything off the screen."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        if self._progress is not None:
            self._progress.stop()

    def _shown(self) -> Progress:
        if self._progress is None:
            self._progress = _progress()
            self._timer = threading.Timer(PATIENCE_S, self._progress.start)
            self._timer.daemon = True
            self._timer.start()
        return self._progress


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        TaskProgressColumn(text_format_no_percentage=""),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        transient=True,
    )


@contextmanager
def progress(*, as_json: bool = False) -> Iterator[None]:
    """Show the progress of everything in the `with` block, if stderr is a terminal."""
    if as_json or not sys.stderr.isatty():
        yield
        return
    display = ProgressDisplay()
    try:
        with events.listening(display):
            yield
    finally:
        display.close()
