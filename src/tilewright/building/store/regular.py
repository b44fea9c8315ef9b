"""Read files that may have been replaced by a link, a FIFO or a device. These are never followed or waited for."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path


def open_regular(path: Path | str, *, dir_fd: int | None = None) -> int:
    """Open a regular file. Anything else raises `OSError` with an errno of `DAMAGED`."""
    # O_NONBLOCK: opening a FIFO without a writer would wait for ever. It has no effect on regular files.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EISDIR, "it is not a regular file", str(path))
    return fd


def hash_regular(path: Path) -> tuple[int, str]:
    """Return size and digest of a regular file, with the digest of `base.digest`."""
    with os.fdopen(open_regular(path), "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        return size, hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def read_regular(path: Path | str, most: int, *, dir_fd: int | None = None) -> bytes:
    """Read at most `most` bytes of a regular file."""
    with os.fdopen(open_regular(path, dir_fd=dir_fd), "rb") as stream:
        # A read of `most` bytes would allocate that much, whatever the size of the file.
        return stream.read(min(most, os.fstat(stream.fileno()).st_size))
