"""Create private folders on the store's file system, and remove those of dead processes.

A folder is in use while the lock file next to it is held. The lock file is created before the folder and removed after
it: a folder without one, or with one that can be locked, is a leftover.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tilewright.base.errors import InvalidValueError
from tilewright.base.events import Notice, emit
from tilewright.base.shared_files import is_same_file, lock_unused, wait_for_lock
from tilewright.building.store.build_lock import make_private_folder
from tilewright.building.store.damaged import remove_tree
from tilewright.building.store.files import PRIVATE_FILE, PRIVATE_FOLDER, Layout, is_file_name, translate_os_errors

_LOCK = ".lock"


@contextmanager
def create_work_folder(layout: Layout, prefix: str) -> Iterator[Path]:
    """Create a folder for this user only, removed at the end. Leftovers of dead processes are removed first."""
    if not is_file_name(prefix):
        raise InvalidValueError(f"{prefix!r} cannot start a folder name: use only letters, digits, '.', '_' and '-'.")
    with translate_os_errors("write", layout.work):
        make_private_folder(layout.work)
        _try_remove_dead(layout)
        folder, lock, fd = _create_locked_folder(layout, prefix)
    owner = os.getpid()
    try:
        yield folder
    finally:
        try:
            if os.getpid() == owner:  # a forked copy must not remove its parent's folder
                with translate_os_errors("remove", folder):
                    remove_tree(folder)
                    lock.unlink()
        finally:
            os.close(fd)


def remove_dead_folders(layout: Layout, *, really: bool = True) -> list[Path]:
    """Remove the folders of dead processes and return them; with `really` False only return them."""
    stale: list[Path] = []
    try:
        listed = sorted(layout.work.iterdir())
    except FileNotFoundError:
        return stale
    for path in listed:
        if path.name.endswith(_LOCK):
            stale += _remove_if_dead(path, really)
        elif not path.with_name(path.name + _LOCK).exists():
            stale.append(path)
            if really:
                remove_tree(path)
    return stale


def _try_remove_dead(layout: Layout) -> None:
    """Remove leftovers; one that cannot be removed is only reported."""
    try:
        remove_dead_folders(layout)
    except OSError as error:
        emit(Notice(f"a leftover in {layout.work} cannot be removed: {error}"))


def _remove_if_dead(lock: Path, really: bool) -> list[Path]:
    folder = lock.with_name(lock.name.removesuffix(_LOCK))
    with lock_unused(lock) as dead:
        if dead and really:
            remove_tree(folder)
            lock.unlink()
        return [folder] if dead else []


def _create_locked_folder(layout: Layout, prefix: str) -> tuple[Path, Path, int]:
    while True:
        folder = layout.work / f"{prefix}-{secrets.token_hex(8)}"
        lock = folder.with_name(folder.name + _LOCK)
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        try:
            # Waits only for a process that found the file before we locked it, and then removes it.
            wait_for_lock(fd)
            if is_same_file(lock, fd):
                folder.mkdir(mode=PRIVATE_FOLDER)
                return folder, lock, fd
        except BaseException:
            lock.unlink(missing_ok=True)
            os.close(fd)
            raise
        os.close(fd)
