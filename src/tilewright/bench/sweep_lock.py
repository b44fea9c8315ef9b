"""Locks of a sweep's folder: of each task one process is at work, however a sweep is divided into shards.

A shard has a lock of its own. Shards of one count have no task in common; shards of two counts do, so all that are at
work in a folder at once must be of one count. The locks go with the process.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tilewright.base.errors import JournalError
from tilewright.base.whole_file import cannot_write
from tilewright.bench.plan import Shard

# Holds the count of shards. Each process that sweeps has a shared lock of it; only one that is alone may change it.
COUNT = "shards.lock"


@contextmanager
def alone(folder: Path, shard: Shard) -> Iterator[None]:
    """Nobody else measures tasks of this shard inside of the `with` block. `JournalError` if somebody does now."""
    with _locked(folder / COUNT) as count, _locked(folder / f"shard-{shard.number}-of-{shard.count}.lock") as own:
        _agree(folder, count, shard)
        if not _lock(own, folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
            raise JournalError(
                f"another process sweeps shard {shard} into {folder} now: wait for it, or take another shard"
            )
        yield


def _agree(folder: Path, descriptor: int, shard: Shard) -> None:
    """See that all others have as many shards, and keep it so."""
    if _lock(descriptor, folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{shard.count}\n".encode(), 0)
    # Others hold the exclusive lock for a moment only. It is given up before the shared one is there: meanwhile
    # another process may have written its own count, so what counts is what is there now.
    _lock(descriptor, folder, fcntl.LOCK_SH)
    found = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    if found != str(shard.count):
        raise JournalError(
            f"another process sweeps shards I/{found} into {folder} now, which have tasks in common with "
            f"shard {shard}. Both would measure these: take a shard I/{found}, or wait for it"
        )


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """A file to lock, open. Closing it gives the lock up."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise JournalError(cannot_write(path, error)) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path, how: int) -> bool:
    """Whether the lock was free; an error where the disk has no locks."""
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        return False
    except OSError as error:
        raise JournalError(f"{folder} cannot be locked: {error.strerror}. Use a disk that has locks") from error
    return True
