"""Atomic file writes: a temporary file in the same folder replaces the target. Also messages for write failures."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator, Mapping
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

    A pipe or a device is written to directly: nothing may replace it. Raises `OutputError` with the requested path if
    it cannot be written. No temporary file is left behind.
    """
    draft = make_temporary_path(path)
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            yield path
            return
        yield draft
        draft.replace(path)
    except OSError as error:
        raise OutputError(describe_write_error(path, error)) from error
    finally:
        remove_draft(draft)


def write_text(path: Path, text: str) -> None:
    """Write a text file as `write_atomically` does."""
    with write_atomically(path) as draft:
        draft.write_text(text, encoding="utf-8")


def create_folder(path: Path) -> None:
    """Create a folder and those above it, unless they exist. Raises `OutputError` if that is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(describe_write_error(path, error)) from error


def write_folder(folder: Path, texts: Mapping[str, str]) -> None:
    """Write a folder of text files by path, or replace it, atomically. Raises `OutputError` if that is not possible."""
    create_folder(folder.parent)
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as private:
            draft = Path(private) / "new"
            for path, text in texts.items():
                (draft / path).parent.mkdir(parents=True, exist_ok=True)
                (draft / path).write_text(text, encoding="utf-8")
            if folder.exists():
                folder.rename(Path(private) / "replaced")
            draft.rename(folder)
    except OSError as error:
        raise OutputError(describe_write_error(folder, error)) from error
