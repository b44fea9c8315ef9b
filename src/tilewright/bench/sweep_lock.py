"""Locks of a sweep's folder: only one process works on a task, however the sweep is divided into shards.

Each shard has its own lock. Shards of one count have no tasks in common; shards of different counts do, so all that
run in a folder at the same time must have the same count. The locks end with the process.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tilewright.base.atomic_write import describe_write_error
from tilewright.base.errors import JournalError
from tilewright.bench.plan import Shard

# Holds the shard count. Each sweeping process holds a shared lock on it; only a process that is alone may change it.
COUNT = "shards.lock"


@contextmanager
def lock_shard(folder: Path, shard: Shard) -> Iterator[None]:
    """Ensure that no other process measures this shard inside the `with` block. Raises `JournalError` if one does."""
    with (
        _open_lock_file(folder / COUNT) as count,
        _open_lock_file(folder / f"shard-{shard.number}-of-{shard.count}.lock") as own,
    ):
        _check_shard_count(folder, count, shard)
        if not _try_lock(own, folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
            raise JournalError(
                f"another process is sweeping shard {shard} into {folder}: wait for it, or use another shard"
            )
        yield


def _check_shard_count(folder: Path, descriptor: int, shard: Shard) -> None:
    """Check that all other processes have the same shard count, and keep it so."""
    if _try_lock(descriptor, folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{shard.count}\n".encode(), 0)
    # Others hold the exclusive lock only for a moment. It is released before the shared one is taken: in between,
    # another process may have written its own count, so the current content decides.
    _try_lock(descriptor, folder, fcntl.LOCK_SH)
    found = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    if found != str(shard.count):
        raise JournalError(
            f"another process is sweeping shards I/{found} into {folder}, which have tasks in common with "
            f"shard {shard}. Both would measure these: use a shard I/{found}, or wait for it"
        )


@contextmanager
def _open_lock_file(path: Path) -> Iterator[int]:
    """An open file to lock. Closing it releases the lock."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise JournalError(describe_write_error(path, error)) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, folder: Path, how: int) -> bool:
    """Whether the lock was free. Raises an error if the disk does not support locks."""
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        return False
    except OSError as error:
        raise JournalError(f"{folder} cannot be locked: {error.strerror}. Use a disk that supports locks") from error
    return True
