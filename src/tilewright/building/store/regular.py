"""Reading a file that may be anything by now: a link, a FIFO, a device. None of them is followed or waited for."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path


def open_regular(path: Path | str, *, dir_fd: int | None = None) -> int:
    """A descriptor of a regular file. Anything else that lies there is an `OSError` with an errno of `DAMAGED`."""
    # O_NONBLOCK: opening a FIFO that nobody writes to would wait for ever. It changes nothing for a regular file.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EISDIR, "it is no regular file", str(path))
    return fd


def digest_regular(path: Path) -> tuple[int, str]:
    """Size and digest of a regular file, the digest as `base.digest` makes it."""
    with os.fdopen(open_regular(path), "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        return size, hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def read_regular(path: Path | str, most: int, *, dir_fd: int | None = None) -> bytes:
    """The content of a regular file, cut after `most` bytes."""
    with os.fdopen(open_regular(path, dir_fd=dir_fd), "rb") as stream:
        # A read of `most` bytes would make room for so many, whatever the file has.
        return stream.read(min(most, os.fstat(stream.fileno()).st_size))
