"""Locks that a fork waits for, so that a child process never gets a value that another thread is changing.

Python reads the list of `os.register_at_fork` when a fork begins. A lock that another thread makes while the fork waits
for a first lock would be missed in this list, so one function acquires all locks, the new ones included.
"""

from __future__ import annotations

import os
import threading

_locks: list[threading.RLock] = []
_acquired: list[threading.RLock] = []  # by the thread that forks


def make_fork_lock() -> threading.RLock:
    """Make a re-entrant lock that a thread acquires before it forks, and releases afterwards in both processes.

    A fork acquires the locks in the order in which they were made. A thread that holds one of them may acquire later
    ones only.
    """
    lock = threading.RLock()
    _locks.append(lock)
    return lock


def _acquire_all() -> None:
    for lock in _locks:  # a list may grow while it is read: locks that are made meanwhile are acquired, too
        lock.acquire()
        _acquired.append(lock)


def _release_all() -> None:
    while _acquired:
        _acquired.pop().release()


os.register_at_fork(before=_acquire_all, after_in_parent=_release_all, after_in_child=_release_all)
