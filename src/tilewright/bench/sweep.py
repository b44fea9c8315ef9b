"""A sweep: measure all tasks of a plan that have no result yet, and journal each result immediately."""

from __future__ import annotations

import contextvars
import os
import re
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tilewright.base import events
from tilewright.base.errors import JournalError
from tilewright.base.events import Notice, emit
from tilewright.bench.executor import Executor, WorkItem
from tilewright.bench.journal import Journal, scan_lines
from tilewright.bench.journal_lines import DamagedLine, parse_record, parse_summary
from tilewright.bench.plan import Shard, SweepPlan
from tilewright.bench.quarantine import FAILURES, Quarantine
from tilewright.bench.record import OK, Record
from tilewright.bench.sweep_file import check_folder, claim_folder, lock_shard

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signals(executor: Executor) -> Iterator[threading.Event]:
    """Inside the `with` block the first signal stops the executor; a second one interrupts at once.

    The first signal sets the event. Only for the main thread of a program, as Python delivers signals to no other.
    """
    stopping = threading.Event()

    def stop(number: int, _: FrameType | None) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()
        # In a thread: the interrupted code may hold a lock that stopping needs, or be writing to the stream that the
        # notice goes to. Listeners belong to a context, which the thread copies.
        context = contextvars.copy_context()
        threading.Thread(
            target=context.run, args=(_stop, executor, number), name="tilewright stops", daemon=True
        ).start()

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(executor: Executor, number: int) -> None:
    name = signal.Signals(number).name
    try:
        emit(Notice(f"{name}: running tasks are finished and kept, then the sweep ends. Repeat to end it at once."))
    finally:
        executor.stop()


TASK = "sweep"
# The rate is measured over this many seconds, as kernels differ, and so do the remaining tasks.
RATE_WINDOW_S = 60.0
# Seconds between two progress reports: more frequent ones would cost more than measuring small kernels.
TELL_S = 0.2
# How long to wait for room on a full disk, and how often to try again.
DISK_PATIENCE_S, DISK_PAUSE_S = 3600.0, 2.0


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Options of a sweep that do not change what is measured."""

    shard: Shard = Shard()
    retry_failed: bool = False  # measure failed tasks again
    quarantine: int = FAILURES  # failures after which a kernel is quarantined; 0: never
    fsync: str = "record"
    disk_patience_s: float = DISK_PATIENCE_S


USUAL = SweepOptions()


@dataclass(frozen=True)
class SweepSummary:
    """The result of a sweep: the numbers of results by status, of earlier results, and of remaining tasks."""

    statuses: Counter[str]
    known: int
    damaged: int
    left: int
    quarantined: tuple[str, ...]  # kernels
    seconds: float
    stopped: bool

    @property
    def done(self) -> int:
        return sum(self.statuses.values())

    @property
    def failed(self) -> int:
        return self.done - self.statuses[OK]


@dataclass
class _SweepState:
    """The state of a running sweep."""

    plan: SweepPlan
    how: SweepOptions
    known: set[str]
    damaged: int
    quarantine: Quarantine
    statuses: Counter[str] = field(default_factory=Counter)
    # Tasks whose results are expected. A cluster may send a result twice; only one counts.
    awaited: set[str] = field(default_factory=set)
    refused: deque[Record] = field(default_factory=deque)
    skipped: int = 0
    asked_all: bool = False

    @property
    def total(self) -> int:
        """The tasks of this sweep, or of its shard, including those with results."""
        return len(self.how.shard.index_range(self.plan.count))

    @property
    def left(self) -> int:
        if self.asked_all:
            return len(self.awaited)
        return max(self.total - self.skipped - sum(self.statuses.values()), len(self.awaited), 1)

    def iterate_work(self) -> Iterator[WorkItem]:
        """The tasks to measure. The executor may iterate over them in its own thread."""
        for task in self.plan.iterate_tasks(self.how.shard):
            if task.key in self.known:
                self.skipped += 1
                continue
            self.awaited.add(task.key)
            refused = self.quarantine.reject_task(task)
            if refused is None:
                yield WorkItem(task)
            else:
                self.refused.append(refused)
        self.asked_all = True

    def iterate_kernels(self) -> Iterator[str]:
        """The names of the kernels with remaining tasks, in the order of the work."""
        for block, which in self.plan.split_grids(self.how.shard):
            names: dict[str, None] = {}
            for task in block.iterate_tasks(which):
                if task.kernel not in names and task.key not in self.known and self.quarantine.get_reason(task) is None:
                    names[task.kernel] = None
                    if len(names) == len(block.kernels):
                        break
            yield from names


def run_plan(
    plan: SweepPlan,
    folder: Path | str,
    executor: Executor,
    how: SweepOptions = USUAL,
    *,
    quarantine: Quarantine | None = None,
    stopping: threading.Event | None = None,
) -> SweepSummary:
    """Measure all tasks of a plan that the folder's journal does not have yet. Always ends, whatever kernels do.

    A folder of the same plan is resumed; a folder of another plan is rejected. If the executor checks a `quarantine`
    before each task, pass the same one here. `stopping` is set by the code that stops the executor. Raises
    `JournalError` if results cannot be kept, and errors that stop the executor; all journalled results are kept, and
    the same call resumes the sweep. The executor is closed at the end in any case.
    """
    folder = Path(folder)
    began = time.monotonic()
    with closing(executor):
        claim_folder(folder, plan.describe_request())
        with lock_shard(folder, how.shard):
            state = _resume_state(plan, folder, how, quarantine or Quarantine(how.quarantine))
            with Journal(folder, _make_writer_name(how.shard), fsync=how.fsync) as journal:
                _execute_sweep(state, executor, lambda record: _append_record(journal, record, how, stopping))
    return SweepSummary(
        statuses=state.statuses,
        known=state.skipped,
        damaged=state.damaged,
        left=state.left,
        quarantined=state.quarantine.kernels,
        seconds=time.monotonic() - began,
        stopped=stopping is not None and stopping.is_set() and state.left > 0,
    )


@dataclass(frozen=True)
class DryRun:
    """A sweep's remaining work: the numbers of tasks, of existing results, and of kernels still needed."""

    tasks: int
    known: int
    kernels: int

    @property
    def left(self) -> int:
        return self.tasks - self.known


def make_dry_run(plan: SweepPlan, folder: Path | str, how: SweepOptions = USUAL) -> DryRun:
    """The work that `run_plan` would do with the same arguments. Nothing is measured or written."""
    known: set[str] = set()
    if check_folder(folder, plan.describe_request()):
        known = _resume_state(plan, Path(folder), how, Quarantine(how.quarantine)).known
    total = len(how.shard.index_range(plan.count))
    done, kernels = 0, set()
    with events.report_task("tasks", total) as advance:
        for task in plan.iterate_tasks(how.shard):
            if known and task.key in known:
                done += 1
            else:
                kernels.add(task.kernel)
            advance()
    return DryRun(total, done, len(kernels))


def _resume_state(plan: SweepPlan, folder: Path, how: SweepOptions, quarantine: Quarantine) -> _SweepState:
    """The state from the journal: which tasks are done, and which kernels failed too often."""
    good: set[str] = set()
    failed: dict[str, Record] = {}
    damages: list[DamagedLine] = []
    for line in scan_lines(folder):
        summary = line if isinstance(line, DamagedLine) else parse_summary(line)
        # Only failures are parsed completely, for the quarantine: they should be few among millions of results.
        found = (
            line
            if isinstance(line, DamagedLine) or isinstance(summary, DamagedLine) or summary.ok
            else parse_record(line)
        )
        if isinstance(summary, DamagedLine):
            damages.append(summary)
        elif isinstance(found, DamagedLine):
            damages.append(found)
        elif isinstance(found, Record):
            failed[found.key] = found
        else:
            good.add(summary.key)
    known = good if how.retry_failed else good | failed.keys()
    if not how.retry_failed:
        quarantine.count_records(record for key, record in failed.items() if key not in good)
    if damages:
        first = damages[0]
        events.emit(
            events.Notice(
                f"{len(damages)} damaged lines in {folder} (the first: {first.file}, line {first.line}: {first.why}). "
                "Their results are measured again."
            )
        )
    return _SweepState(plan, how, known, len(damages), quarantine)


def _execute_sweep(state: _SweepState, executor: Executor, append: Callable[[Record], None]) -> None:
    pace = _ProgressMeter(state)
    with events.report_task(TASK, state.total) as advance:

        def keep(record: Record) -> None:
            if record.key not in state.awaited:
                events.emit(events.Notice(f"a duplicate result of {record.task.kernel} was ignored"))
                return
            append(record)
            state.awaited.discard(record.key)
            state.statuses[record.status] += 1
            state.quarantine.count_record(record)
            advance(record.task.kernel)
            pace.report()

        for record in executor.run(state.iterate_work(), state.iterate_kernels()):
            keep(record)
            while state.refused:
                keep(state.refused.popleft())
        while state.refused:
            keep(state.refused.popleft())


def _append_record(journal: Journal, record: Record, how: SweepOptions, stopping: threading.Event | None) -> None:
    """Append, and wait for room on a full disk: devices wait meanwhile, as their results are not taken."""
    deadline = time.monotonic() + how.disk_patience_s
    told = False
    while True:
        try:
            journal.append(record)
            return
        except JournalError as error:
            stopped = stopping is not None and stopping.is_set()
            if stopped or time.monotonic() >= deadline:
                raise
            if not told:
                waits = f"Waiting up to {how.disk_patience_s:g} s for room; all results so far are kept."
                events.emit(events.Notice(f"{error}. {waits}"))
                told = True
        time.sleep(DISK_PAUSE_S)


class _ProgressMeter:
    """The rate of a sweep, and its remaining time."""

    def __init__(self, state: _SweepState) -> None:
        self._state = state
        self._recent: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        self._told = 0.0

    def report(self) -> None:
        now = time.monotonic()
        if now - self._told < TELL_S:
            return
        self._told = now
        counts = self._state.statuses
        done = sum(counts.values())
        self._recent.append((now, done))
        while len(self._recent) > 2 and now - self._recent[1][0] > RATE_WINDOW_S:
            self._recent.popleft()
        since, before = self._recent[0]
        rate = (done - before) / max(now - since, 1e-9)
        failed = done - counts[OK] - counts["quarantined"]
        texts = [f"{n:,} {what}" for n, what in ((failed, "failed"), (counts["quarantined"], "quarantined")) if n]
        said = " · ".join([*texts, f"{rate:,.1f}/s"])
        left = self._state.total - self._state.skipped - done
        events.emit(events.Working(TASK, (said,), max(left, 0) / rate if rate else None))


def _make_writer_name(shard: Shard) -> str:
    """The name of this process's journal file."""
    host = re.sub(r"[^A-Za-z0-9_.-]", "_", os.uname().nodename)
    return f"w-{host}-{shard.number}-of-{shard.count}-{os.getpid()}"
