"""Atomic file writes: a temporary file in the same folder replaces the target. Also messages for write failures."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tilewright.base.errors import OutputError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PLACE = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ELOOP,
    errno.ENAMETOOLONG,
)


def make_temporary_path(path: Path) -> Path:
    """A name in the same folder that no other thread, process or machine uses. Process ids are not unique on a shared
    disk."""
    return path.with_name(f".{path.name}.{os.urandom(8).hex()}")


def suggest_write_fix(error: OSError) -> str:
    """Advice for a write failure, without the full stop."""
    if error.errno in _FULL:
        return "Free disk space, or use a disk with more of it"
    if error.errno in _PLACE:
        return "Use a path in a folder that exists and is writable"
    if error.errno == errno.EISDIR:
        return "Use the path of a file, not of a folder"
    return "Check the disk, or use another path"


def describe_write_error(path: Path | str, error: OSError, after: str = "") -> str:
    """The message for a write failure: the user's path, the progress so far, the system's reason, and advice."""
    # Libraries add file names to the reason, and these are the names of temporary files.
    reason = str(error) if error.errno is None else os.strerror(error.errno)
    return f"{path} cannot be written{after and ' '}{after}: {reason}. {suggest_write_fix(error)}"


def remove_draft(draft: Path) -> None:
    """Remove a temporary file if it exists. A failure is ignored: its cause has been reported already."""
    with suppress(OSError):
        draft.unlink(missing_ok=True)


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary file to write to; it replaces `path` at the end of the `with` block.

    Raises `OutputError` with the requested path if it cannot be written. No temporary file is left behind.
    """
    draft = make_temporary_path(path)
    try:
        yield draft
        draft.replace(path)
    except OSError as error:
        raise OutputError(describe_write_error(path, error)) from error
    finally:
        remove_draft(draft)
