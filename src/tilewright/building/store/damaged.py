"""Damaged entries: describe the damage, and move them out of the store without deleting them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tilewright.base.events import Notice, emit
from tilewright.building.store.files import PRIVATE_FOLDER, Inode, Layout, get_inode

DamageKind = Literal["missing file", "wrong size", "wrong digest", "bad manifest", "foreign file"]

# Maximum number of damaged copies per key; with more than this the disk is the problem.
MAX_COPIES = 20
_TAKEN = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR})


@dataclass(frozen=True, slots=True)
class DamagedEntry:
    """An entry that must not be used, and the reason. `inode` is that of the folder that was checked."""

    key: str
    path: Path
    kind: DamageKind
    what: str
    inode: Inode | None


def is_unchanged(damage: DamagedEntry) -> bool:
    """Return whether the path still holds the folder that was checked, and not a newer one."""
    return damage.inode is not None and get_inode(damage.path) == damage.inode


def move_damaged(layout: Layout, damage: DamagedEntry, sound: Callable[[Path], bool] | None = None) -> Path | None:
    """Move a damaged entry to `corrupt/` and report it; None if it could not be moved or is already gone.

    A file system may reuse the inode of a removed folder. `sound` checks the moved entry: if it is not damaged, a
    writer has put it there in the meantime, and it is moved back.
    """
    try:
        layout.corrupt.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        moved = _move_entry(layout, damage, sound)
    except OSError as error:
        emit(Notice(f"{damage.path} is damaged ({damage.what}) and cannot be moved: {error.strerror}"))
        return None
    if moved is not None:
        emit(Notice(f"{damage.path} was damaged ({damage.what}) and is not used; moved to {moved}"))
    return moved


def _move_entry(layout: Layout, damage: DamagedEntry, sound: Callable[[Path], bool] | None) -> Path | None:
    for number in range(MAX_COPIES):
        target = layout.corrupt / f"{damage.key}-{number}"
        if get_inode(target) is not None:
            continue
        try:
            damage.path.rename(target)
        except FileNotFoundError:
            return None  # another process was faster
        except OSError as error:
            if error.errno in _TAKEN:
                continue
            raise
        return target if _check_moved(target, damage, sound) else None
    oldest = layout.corrupt / f"{damage.key}-0"
    remove_tree(oldest)
    damage.path.rename(oldest)
    return oldest


def _check_moved(target: Path, damage: DamagedEntry, sound: Callable[[Path], bool] | None) -> bool:
    """Return whether the damaged entry was moved. If a writer has replaced it by a sound one, move that back."""
    same = damage.inode is None or get_inode(target) == damage.inode
    if same and not (sound is not None and sound(target)):
        return True
    try:
        target.rename(damage.path)
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
        # Another sound entry is there already: this one is not needed.
        remove_tree(target)
    return False


def remove_tree(path: Path) -> None:
    """Remove a file or a folder with its contents. Files that another process has removed are not an error."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        if get_inode(path) is not None:
            remove_tree(path)
    except PermissionError:
        # A folder may not be writable by its owner. If that was not the cause, this fails again.
        _make_folders_writable(path)
        shutil.rmtree(path)


def _make_folders_writable(top: Path) -> None:
    top.chmod(PRIVATE_FOLDER)
    for folder, inner, _ in os.walk(top):
        for name in inner:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(PRIVATE_FOLDER)
