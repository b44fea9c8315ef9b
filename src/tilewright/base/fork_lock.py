"""Locks that a fork waits for, so that a child process never gets a value that another thread is changing.

Python reads the list of `os.register_at_fork` when a fork begins. A lock that another thread makes while the fork waits
for a first lock would be missed in this list, so one function acquires all locks, the new ones included.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType


class ForkLock:
    """A re-entrant lock that a thread acquires before it forks, and releases afterwards in both processes.

    A fork acquires the locks in the order in which they were made. A thread that holds one of them may acquire later
    ones only.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.append(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()


_locks: list[ForkLock] = []
_acquired: list[ForkLock] = []  # by the thread that forks


def _acquire_all() -> None:
    for lock in _locks:  # a list may grow while it is read: locks that are made meanwhile are acquired, too
        lock.__enter__()
        _acquired.append(lock)


def _release_all() -> None:
    while _acquired:
        _acquired.pop().__exit__(None, None, None)


os.register_at_fork(before=_acquire_all, after_in_parent=_release_all, after_in_child=_release_all)
