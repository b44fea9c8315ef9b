"""Progress and notices on stderr: listeners of the library's events."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import click

from tilewright.base import events
from tilewright.base.user_progress import format_duration, format_working
from tilewright.cli.verbosity import Verbosity, get_verbosity

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# Tasks that end sooner are not shown.
PATIENCE_S = 0.5
# Interval between two lines in a log: a log of three days then has some thousand lines.
LINES_S = 60.0
# Tasks that end sooner are not reported in a log.
PATIENCE_IN_LOGS_S = 2.0


class ProgressDisplay:
    """Shows a bar per running task (a moving one for work of unknown length)."""

    def __init__(self) -> None:
        self._tasks: dict[str, TaskID] = {}
        self._progress: Progress | None = None
        self._timer: threading.Timer | None = None

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.Started):
            self._tasks[event.task] = self._ensure_progress().add_task(event.task, total=event.total, now="")
        elif isinstance(event, events.Advanced) and event.task in self._tasks:
            self._ensure_progress().advance(self._tasks[event.task], event.done)
        elif isinstance(event, events.Working) and event.task in self._tasks:
            self._ensure_progress().update(self._tasks[event.task], now=format_working(event))
        elif isinstance(event, events.Finished) and event.task in self._tasks:
            self._ensure_progress().remove_task(self._tasks.pop(event.task))
        elif isinstance(event, events.Notice):
            self._print_above_bars(event)

    def _print_above_bars(self, event: events.Notice) -> None:
        if self._progress is not None and self._progress.live.is_started:
            self._progress.console.print(f"note: {event.message}", markup=False, highlight=False, soft_wrap=True)
        else:
            print_notice(event)

    def close(self) -> None:
        """Remove everything from the screen."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        if self._progress is not None:
            self._progress.stop()

    def _ensure_progress(self) -> Progress:
        if self._progress is None:
            self._progress = _make_progress()
            self._timer = threading.Timer(PATIENCE_S, self._progress.start)
            self._timer.daemon = True
            self._timer.start()
        return self._progress


class ProgressLines:
    """Prints the progress of tasks as a line now and then: for logs of long work.

    With `steps` also for tasks that count finished steps and never report the remaining time.
    """

    def __init__(self, every_s: float = LINES_S, *, steps: bool = False) -> None:
        self._every_s = every_s
        self._steps = steps
        self._printed = time.monotonic()
        self._working: set[str] = set()
        self._totals: dict[str, int | None] = {}
        self._done: Counter[str] = Counter()

    def __call__(self, event: events.Event) -> None:
        print_notice(event)
        if isinstance(event, events.Started):
            self._totals[event.task], self._done[event.task] = event.total, 0
        elif isinstance(event, events.Advanced):
            self._done[event.task] += event.done
            if self._steps and event.task not in self._working:
                self._print_line(event.task, event.detail)
        elif isinstance(event, events.Working):
            self._working.add(event.task)
            self._print_line(event.task, format_working(event))

    def _print_line(self, name: str, text: str) -> None:
        now = time.monotonic()
        if now - self._printed >= self._every_s:
            self._printed = now
            click.echo(f"{name}: {' · '.join(filter(None, (self._format_count(name), text)))}", err=True)

    def _format_count(self, name: str) -> str:
        total = self._totals.get(name)
        return f"{self._done[name]:,}" + ("" if total is None else f" of {total:,}")


class LongTaskLines:
    """Prints a line for a task that runs for long: for logs of work that does not report progress."""

    def __init__(self, after_s: float, every_s: float = LINES_S) -> None:
        self._after_s = after_s
        self._every_s = every_s
        self._over: dict[str, threading.Event] = {}

    def __call__(self, event: events.Event) -> None:
        print_notice(event)
        if isinstance(event, events.Started):
            over = self._over[event.task] = threading.Event()
            threading.Thread(target=self._report_until_finished, args=(event.task, over), daemon=True).start()
        elif isinstance(event, events.Finished) and event.task in self._over:
            self._over.pop(event.task).set()

    def _report_until_finished(self, task: str, over: threading.Event) -> None:
        passed = wait = self._after_s
        while not over.wait(wait):
            click.echo(f"{task}: under way for {format_duration(passed)}", err=True)
            wait = self._every_s
            passed += wait


class VerboseLines:
    """Prints a line for each event, with the seconds since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._starts: dict[str, float] = {}
        self._done: Counter[str] = Counter()
        self._totals: dict[str, int | None] = {}

    def __call__(self, event: events.Event) -> None:
        print_notice(event)
        if isinstance(event, events.Started):
            self._starts[event.task], self._totals[event.task] = time.monotonic(), event.total
            self._done[event.task] = 0
            self._print(f"{event.task}: started" + ("" if event.total is None else f", {event.total:,} steps"))
        elif isinstance(event, events.Advanced):
            self._done[event.task] += event.done
            total = self._totals.get(event.task)
            count = f"{self._done[event.task]:,}" + ("" if total is None else f" of {total:,}")
            self._print(": ".join(filter(None, (event.task, " ".join(filter(None, (count, event.detail)))))))
        elif isinstance(event, events.Finished):
            seconds = time.monotonic() - self._starts.pop(event.task, self._began)
            self._print(f"{event.task}: finished after {seconds:.2f} s")
        elif isinstance(event, events.Detail):
            self._print(event.message)

    def _print(self, text: str) -> None:
        click.echo(f"{time.monotonic() - self._began:8.2f} s  {text}", err=True)


def _make_progress() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.table import Column

    # The last column gets the remaining width: a kernel's name is cut, and the others stay.
    rest = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        BarColumn(bar_width=20),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[now]}", markup=False, style="dim", table_column=rest),
        console=Console(file=sys.stderr),
        transient=True,
        expand=True,
    )


@contextmanager
def report_progress(
    *, as_json: bool = False, lines: bool = False, steps: bool = False, after_s: float | None = None
) -> Iterator[None]:
    """Show the progress of the `with` block if stderr is a terminal, and print notices.

    With -q neither is printed. With -v every event is a line, also in a terminal and with --json.

    If stderr is not a terminal, `lines` prints the progress as a line now and then, and so does `steps`, also for tasks
    that only count steps. `after_s` is for work that does not report progress: it prints a line for each task that has
    run for that many seconds.
    """
    verbosity = get_verbosity()
    if verbosity is not Verbosity.NORMAL:
        with events.add_listener(VerboseLines()) if verbosity is Verbosity.VERBOSE else nullcontext():
            yield
        return
    if after_s is not None and not as_json and not sys.stderr.isatty():
        with events.add_listener(LongTaskLines(after_s)):
            yield
        return
    if as_json or not sys.stderr.isatty():
        with events.add_listener(ProgressLines(steps=steps) if (lines or steps) and not as_json else print_notice):
            yield
        return
    display = ProgressDisplay()
    try:
        with events.add_listener(display):
            yield
    finally:
        display.close()


def print_notice(event: events.Event) -> None:
    """Print notices; ignore other events."""
    if isinstance(event, events.Notice):
        click.echo(f"{click.style('note:', fg='yellow')} {event.message}", err=True)
