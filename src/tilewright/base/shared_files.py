"""Files and folders that processes of one machine share: locks on them, and their owner.

A lock is `flock` on an open file: the system releases it with the last process that has the descriptor, however that
process ends. Journals, shards of a sweep, builds and work folders of the store, and the download of CK's headers are
locked in this way. Each caller decides how to handle a lock that another process holds.

Claims are different on purpose. A shared store (`building.store.remote_folder`, `building.store.remote_redis`) has
users on many machines, and whether flock works between them depends on the file system. A claim is created exclusively,
names its holder and expires, so that the death of a machine ends it, too.

Code is loaded from Tilewright's folders, so other users must not be able to write there (ssh has the same rule).
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tilewright.base.errors import StoreError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_RETRY_S = 0.05


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file, and return whether that was possible at once. Closing the file releases the lock.

    Raises `OSError` if the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(descriptor: int, *, shared: bool = False) -> None:
    """Lock an open file, and wait as long as another process prevents it. Raises `OSError` as `try_lock` does."""
    fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def unlock(descriptor: int) -> None:
    """Release the lock on an open file, also if a child process has inherited the descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def describe_lock_error(path: Path, error: OSError) -> str:
    """The message if a file system has no locks."""
    return f"{path} cannot be locked: {error.strerror}. Use a disk that supports locks"


@contextmanager
def hold_lock(path: Path, timeout_s: float) -> Iterator[bool]:
    """Hold the lock on a file inside the `with` block; False if other processes still have it after `timeout_s`.

    The file is created, and stays. Raises `OSError` if that is not possible, or if the file system has no locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    deadline = time.monotonic() + timeout_s
    try:
        while not (held := try_lock(descriptor)) and time.monotonic() < deadline:
            time.sleep(_RETRY_S)
        yield held
    finally:
        os.close(descriptor)


@contextmanager
def lock_unused(path: Path) -> Iterator[bool]:
    """Lock a lock file inside the `with` block, to remove it. False if it is in use, or does not exist."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield False
        return
    try:
        yield try_lock(descriptor) and is_same_file(path, descriptor)
    finally:
        os.close(descriptor)


def is_same_file(path: Path, descriptor: int) -> bool:
    """Whether `path` is still the open file. If not, others lock another file there."""
    opened = os.fstat(descriptor)
    if opened.st_nlink == 0:
        return False
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)


def is_own(status: os.stat_result) -> bool:
    """Whether only this user or root owns a file or folder and may write to it."""
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & _OTHERS_WRITE


def describe_owner(status: os.stat_result) -> str:
    """`belongs to nobody (uid 65534) and has mode 0777`."""
    return f"belongs to {_describe_user(status.st_uid)} and has mode {stat.S_IMODE(status.st_mode):04o}"


def require_own(folder: Path, knob: str) -> None:
    """Raise `StoreError` if a folder exists and another user than this one (or root) owns it or may write to it."""
    try:
        status = folder.stat()
    except OSError:
        return  # missing or unreadable: the caller reports that when it uses the folder
    if is_own(status):
        return
    fact = f"{folder} {describe_owner(status)}: users other than {_describe_user(os.geteuid())} could place code there"
    if status.st_uid in (os.geteuid(), 0):
        advice = f"If you trust its contents, run: chmod go-w {folder}"
    else:
        advice = f"Set {knob} to a folder of your own, or run as the user that owns it."
    raise StoreError(f"{fact}, so it is not used. {advice}")


def _describe_user(uid: int) -> str:
    import pwd  # noqa: PLC0415  (seldom needed)

    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
