"""Translate an `OSError` of the store's file system into a `StoreError` with path, cause and advice."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tilewright.base.errors import StoreError
from tilewright.base.knobs import STORE

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
