"""Folder ownership. Code is loaded from Tilewright's folders, so other users must not be able to write there (ssh has
the same rule)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tilewright.base.errors import StoreError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


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
