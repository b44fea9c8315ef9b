"""Kernels that failed too often to be tried again: each attempt may cost a time limit, or a GPU recovery."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tilewright.base.errors import InvalidValueError
from tilewright.bench.record import Record, Task, get_device_group

# Failures that count against the kernel. Other failures are due to a problem that it does not support or that is too
# large for the device, or to the compiler.
COUNTED = ("wrong", "fault", "timeout", "crashed")
FAILURES = 3


class Quarantine:
    """Counts the failures of each kernel on each kind of device; after `limit` failures it is not tried any more.

    A limit of 0 disables the quarantine.
    """

    def __init__(self, limit: int = FAILURES) -> None:
        if limit < 0:
            raise InvalidValueError(f"the failure limit is {limit}: give 0 for no quarantine, or more")
        self.limit = limit
        self._failures: Counter[tuple[str, str]] = Counter()
        self._last: dict[tuple[str, str], str] = {}

    def count_record(self, record: Record) -> None:
        """Count a record, if it is a failure that counts against its kernel."""
        if record.status in COUNTED:
            subject = _make_key(record.task)
            self._failures[subject] += 1
            self._last[subject] = record.status

    def count_records(self, records: Iterable[Record]) -> None:
        for record in records:
            self.count_record(record)

    def get_reason(self, task: Task) -> str | None:
        """Why a task is not tried, or None if it is."""
        subject = _make_key(task)
        failures = self._failures.get(subject, 0)
        if not self.limit or failures < self.limit:
            return None
        return f"the kernel failed {failures} times on {subject[1]} (last: {self._last[subject]}), limit {self.limit}"

    def reject_task(self, task: Task) -> Record | None:
        """The record of a task that is not tried; None if it may be tried."""
        why = self.get_reason(task)
        return None if why is None else Record(task=task, status="quarantined", message=why)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The quarantined kernels, by name."""
        return tuple(sorted({kernel for (kernel, _), n in self._failures.items() if self.limit and n >= self.limit}))


def _make_key(task: Task) -> tuple[str, str]:
    return task.kernel, get_device_group(task.device)
