"""Kernels that failed too often to be tried again: each try may cost a time limit, or a GPU that has to recover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tilewright.base.errors import InvalidValueError
from tilewright.bench.record import Record, Task, place_of

# Failures that speak against the kernel. The others are of a problem that it does not compute, or is too large for the
# device, or of the compiler.
COUNTED = ("wrong", "fault", "timeout", "crashed")
FAILURES = 3


class Quarantine:
    """Counts the failures of each kernel on each kind of device; after `limit` of them it is not tried any more.

    A limit of 0 keeps no kernel away.
    """

    def __init__(self, limit: int = FAILURES) -> None:
        if limit < 0:
            raise InvalidValueError(f"a kernel cannot be kept away after {limit} failures: give 0 for never, or more")
        self.limit = limit
        self._failures: Counter[tuple[str, str]] = Counter()
        self._last: dict[tuple[str, str], str] = {}

    def note(self, record: Record) -> None:
        """Count a record, if it is a failure that speaks against its kernel."""
        if record.status in COUNTED:
            subject = _subject(record.task)
            self._failures[subject] += 1
            self._last[subject] = record.status

    def note_all(self, records: Iterable[Record]) -> None:
        for record in records:
            self.note(record)

    def why(self, task: Task) -> str | None:
        """Why a task is not tried, or None when it is."""
        subject = _subject(task)
        failures = self._failures.get(subject, 0)
        if not self.limit or failures < self.limit:
            return None
        return (
            f"the kernel failed {failures} times on {subject[1]} ({self._last[subject]} last); {self.limit} are allowed"
        )

    def refused(self, task: Task) -> Record | None:
        """The record of a task that is not tried; None when it may be."""
        why = self.why(task)
        return None if why is None else Record(task=task, status="quarantined", message=why)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels that are kept away, by name."""
        return tuple(sorted({kernel for (kernel, _), n in self._failures.items() if self.limit and n >= self.limit}))


def _subject(task: Task) -> tuple[str, str]:
    return task.kernel, place_of(task.device)
