"""The files of a store: their paths, reading only regular ones, and errors with path, cause and advice.

<root>/v1/entries/<k[:2]>/<key>/   a complete entry: manifest.json and the files it lists
<root>/v1/locks/<k[:2]>/<key>.lock held while an entry is built
<root>/v1/work/<name>/             a private folder, in use while <name>.lock next to it is held
<root>/v1/corrupt/<key>-<n>/       damaged entries, kept until the next gc

A file may have been replaced by a link, a FIFO or a device. These are never followed or waited for.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.errors import InvalidValueError, StoreError
from tilewright.base.knobs import STORE

# Part of every path: versions of the package with another schema do not touch these entries.
SCHEMA = 1
MANIFEST = "manifest.json"
PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
FAN_OUT = re.compile(r"[0-9a-f]{2}")
_KEY = re.compile(r"[0-9a-f]{32}")
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")  # far below the 255 bytes a file system allows

_ADVICE = {
    errno.ENOSPC: "Free space with `tilewright cache gc --max-size 1G`, or set {knob} to a folder on another disk.",
    errno.EDQUOT: "The quota is used up. Free space with `tilewright cache gc`, or set {knob} to another folder.",
    errno.EFBIG: "The limit on file sizes (`ulimit -f`) is too low for this file. Raise it.",
    errno.EROFS: "The file system is read-only. Set {knob} to a folder that can be written.",
    errno.EACCES: "No permission. Correct the folder's permissions, or set {knob} to a folder of your own.",
    errno.EPERM: "No permission. Correct the folder's permissions, or set {knob} to a folder of your own.",
    errno.EMFILE: "Too many files are open. Raise the limit (`ulimit -n`).",
    errno.EIO: "The disk reports an error. Set {knob} to a folder on another disk.",
}
_OTHERWISE = "Set {knob} to a folder on a local disk that can be written."

# Errors when creating a file where reading still works.
UNWRITABLE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT})
# Errors for a path that exists but is not what it should be: a wrong file type, a link, a broken disk.
DAMAGED = frozenset({errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.ENXIO})

Inode = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths below one root folder."""

    root: Path

    @property
    def base(self) -> Path:
        return self.root / f"v{SCHEMA}"

    @property
    def entries(self) -> Path:
        return self.base / "entries"

    @property
    def locks(self) -> Path:
        return self.base / "locks"

    @property
    def work(self) -> Path:
        return self.base / "work"

    @property
    def corrupt(self) -> Path:
        return self.base / "corrupt"

    def entry_folder(self, key: str) -> Path:
        return self.entries / check_key(key)[:2] / key

    def lock_file(self, key: str) -> Path:
        return self.locks / check_key(key)[:2] / f"{key}.lock"


def get_entry_layout(folder: Path) -> Layout:
    """Return the layout that contains an entry's folder."""
    return Layout(folder.parents[3])


def is_key(text: str) -> bool:
    """Return whether a text can be the key of an entry."""
    return _KEY.fullmatch(text) is not None


def check_key(key: str) -> str:
    """Return `key` if it is valid. Nothing else is ever joined to a path."""
    if not is_key(key):
        raise InvalidValueError(f"{key!r} is not a key of the store: a key is 32 hex digits (128 bit, lower case).")
    return key


def is_file_name(text: str) -> bool:
    """Return whether a text is a plain file name: no folder, no leading dot, no special characters."""
    return _FILE_NAME.fullmatch(text) is not None


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


def get_inode(path: Path) -> Inode | None:
    """Return device and inode of a path; None if it does not exist."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def make_store_error(action: str, path: Path, error: OSError) -> StoreError:
    """Make the error to raise when `action` on `path` failed."""
    cause = error.strerror or str(error)
    advice = _ADVICE.get(error.errno or 0, _OTHERWISE).format(knob=STORE.name)
    return StoreError(f"cannot {action} {path}: {cause}. {advice}")


@contextmanager
def translate_os_errors(action: str, path: Path) -> Iterator[None]:
    """Translate an `OSError` of the `with` block into a `StoreError`."""
    try:
        yield
    except OSError as error:
        raise make_store_error(action, Path(str(error.filename)) if error.filename else path, error) from error
