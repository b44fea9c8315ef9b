"""Files that are there whole or not at all, written beside their place and moved there; and why one cannot be."""

from __future__ import annotations

import errno
import os
import secrets
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


def hidden_beside(path: Path) -> Path:
    """A name that no other thread, process or machine uses: numbers of processes repeat on a shared disk."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}")


def advice_for(error: OSError) -> str:
    """What a user can do about a failure to write, without the full stop."""
    if error.errno in _FULL:
        return "Make room, or name a place with more"
    if error.errno in _PLACE:
        return "Name a place in a folder that exists and is writable"
    if error.errno == errno.EISDIR:
        return "Name a file, not a folder"
    return "Look at the disk, or name another place"


def cannot_write(path: Path | str, error: OSError, after: str = "") -> str:
    """The message for a place that cannot be written: the user's path, how far it came, the system's reason, advice."""
    # Libraries put names of files into the reason, which are those of drafts.
    reason = str(error) if error.errno is None else os.strerror(error.errno)
    return f"{path} cannot be written{after and ' '}{after}: {reason}. {advice_for(error)}"


def remove_draft(beside: Path) -> None:
    """Take away a file beside its place, if it is there. Where that cannot be done the reason is told already."""
    with suppress(OSError):
        beside.unlink(missing_ok=True)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A file beside `path` to write to; at the end of the `with` block it takes the place of `path`.

    Raises `OutputError` with the path that was asked for when it cannot be written. Nothing is then left behind.
    """
    beside = hidden_beside(path)
    try:
        yield beside
        beside.replace(path)
    except OSError as error:
        raise OutputError(cannot_write(path, error)) from error
    finally:
        remove_draft(beside)
