"""Whose a folder is. Code is loaded from folders of ours, so nobody else may be able to put any there (as ssh does)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tilewright.base.errors import StoreError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def is_own(status: os.stat_result) -> bool:
    """Whether only this user, or root, could have written a file or folder, or can."""
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & _OTHERS_WRITE


def describe_owner(status: os.stat_result) -> str:
    """`belongs to nobody (uid 65534) and has mode 0777`."""
    return f"belongs to {_user(status.st_uid)} and has mode {stat.S_IMODE(status.st_mode):04o}"


def require_own(folder: Path, knob: str) -> None:
    """Raise `StoreError` if a folder is there and somebody else than this user (or root) owns it or may write to it."""
    try:
        status = folder.stat()
    except OSError:
        return  # nothing is there, or nothing that can be read: who uses it says why
    if is_own(status):
        return
    fact = f"{folder} {describe_owner(status)}: others than {_user(os.geteuid())} could put code there that is run here"
    if status.st_uid in (os.geteuid(), 0):
        advice = f"If you trust what is in it, run: chmod go-w {folder}"
    else:
        advice = f"Set {knob} to a folder of your own, or run as the user that owns it."
    raise StoreError(f"{fact}. It is not used. {advice}")


def _user(uid: int) -> str:
    import pwd  # noqa: PLC0415  (seldom needed)

    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
