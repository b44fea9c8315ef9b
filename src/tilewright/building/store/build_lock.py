"""Build locks: one process builds a key while others wait. They save work; correctness does not depend on them.

So a store whose file system has no locks is used without them.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tilewright.base.errors import StoreError
from tilewright.base.events import Notice, emit
from tilewright.base.shared_files import is_same_file, lock_unused, try_lock, unlock
from tilewright.building.store.files import PRIVATE_FILE, PRIVATE_FOLDER, UNWRITABLE, make_store_error

# Errors of file systems without flock: some network and FUSE ones.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})
_SHORTEST_NAP_S, _LONGEST_NAP_S = 0.002, 0.05

_unlockable: set[Path] = set()


class BuildLock:
    """The lock to build a key. If `held` is False, it is not locked, and the caller continues without it."""

    def __init__(self, fd: int, *, held: bool) -> None:
        self._fd = fd
        self._owner = os.getpid()
        self.held = held

    def fileno(self) -> int:
        """A descriptor to pass to child processes (`pass_fds`): they keep the lock if this process dies."""
        return self._fd

    def release(self) -> None:
        """Release the lock, even if a child still has the descriptor. May be called twice."""
        if self._fd < 0:
            return
        # A forked copy of this object must not release its parent's lock.
        if self.held and os.getpid() == self._owner:
            unlock(self._fd)
        os.close(self._fd)
        self._fd = -1
        self.held = False

    def __enter__(self) -> BuildLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def try_build_lock(path: Path) -> BuildLock | None:
    """Lock `path`; None if another process has the lock. If locking is impossible, emit a notice and return an
    unheld lock."""
    while True:
        try:
            fd = _open_lock_file(path)
        except OSError as error:
            if error.errno in UNWRITABLE:
                return _make_unlocked(path, error)
            raise make_store_error("lock", path, error) from error
        try:
            free = try_lock(fd)
        except OSError as error:
            os.close(fd)
            if error.errno in _NO_LOCKS:
                return _make_unlocked(path, error)
            raise make_store_error("lock", path, error) from error
        if free and is_same_file(path, fd):
            return BuildLock(fd, held=True)
        os.close(fd)
        if not free:
            return None
        # Otherwise gc removed the file before we locked it: others will lock a new one.


def wait_for_build_lock(path: Path, timeout_s: float | None, already_built: Callable[[], bool] | None) -> BuildLock:
    """Wait for the lock on `path`. Returns early, with an unheld lock, when `already_built` returns True."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    nap = _SHORTEST_NAP_S
    while (lock := try_build_lock(path)) is None:
        if already_built is not None and already_built():
            return BuildLock(_open_placeholder(), held=False)
        if deadline is not None and time.monotonic() >= deadline:
            raise StoreError(
                f"{path} is still held after {timeout_s:g} s: another process builds this key. "
                "`fuser` on that file names it; wait longer, or end it."
            )
        time.sleep(nap)
        nap = min(nap * 2, _LONGEST_NAP_S)
    return lock


def remove_unused_lock(path: Path, *, really: bool = True) -> bool:
    """Remove a lock file that nobody holds; return whether it was removed. It is locked during the removal."""
    with lock_unused(path) as unused:
        if unused and really:
            path.unlink()
        return unused


def _open_lock_file(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    try:
        return os.open(path, flags, PRIVATE_FILE)
    except FileNotFoundError:
        make_private_folder(path.parent)
        return os.open(path, flags, PRIVATE_FILE)


def make_private_folder(folder: Path) -> None:
    """Create a folder of the store and its parents, accessible only to this user."""
    if not folder.is_dir():
        make_private_folder(folder.parent)
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def _make_unlocked(path: Path, error: OSError) -> BuildLock:
    folder = path.parent.parent
    if folder not in _unlockable:  # report once: a build takes thousands of locks
        _unlockable.add(folder)
        meanwhile = "other processes may build the same kernels at the same time"
        emit(Notice(f"{folder} cannot be locked ({error.strerror}): {meanwhile}"))
    return BuildLock(_open_placeholder(), held=False)


def _open_placeholder() -> int:
    """Open a descriptor without a lock, so that `fileno` can always be passed on."""
    return os.open(os.devnull, os.O_RDONLY)
