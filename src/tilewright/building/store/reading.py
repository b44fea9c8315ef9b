"""Read one entry: its manifest, and that its files exist with the right sizes. Contents are not hashed here."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path

from tilewright.base.errors import InvalidValueError
from tilewright.base.ownership import describe_owner, is_own
from tilewright.building.store.artifact import Artifact, Entry, Failure
from tilewright.building.store.damaged import DamagedEntry, DamageKind, get_inode
from tilewright.building.store.layout import MANIFEST
from tilewright.building.store.manifest import (
    FAILURE,
    LOG,
    MAX_MANIFEST_BYTES,
    Manifest,
    decode_log,
    parse_manifest,
    parse_untrusted,
)
from tilewright.building.store.os_errors import DAMAGED, make_store_error
from tilewright.building.store.regular import read_regular


class _Damaged(InvalidValueError):  # noqa: N818  (never leaves this module)
    def __init__(self, kind: DamageKind, what: str) -> None:
        super().__init__(what)
        self.kind: DamageKind = kind
        self.what = what


def read_entry(folder: Path, key: str) -> Entry | DamagedEntry | None:
    """Read the entry in `folder`; None if there is none. Changes nothing.

    All files are read through one descriptor of the folder, so that they belong together even if the entry is replaced.
    """
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in DAMAGED:
            return DamagedEntry(key, folder, "bad manifest", f"it is not a folder: {error.strerror}", get_inode(folder))
        raise make_store_error("read", folder, error) from error
    try:
        opened = os.fstat(fd)
        if not is_own(opened):
            what = f"it {describe_owner(opened)}"
            return DamagedEntry(key, folder, "foreign file", what, (opened.st_dev, opened.st_ino))
        return parse_untrusted("the entry", lambda: _read_opened(fd, folder, key, opened.st_mtime))
    except _Damaged as damaged:
        return DamagedEntry(key, folder, damaged.kind, damaged.what, (opened.st_dev, opened.st_ino))
    except InvalidValueError as error:
        return DamagedEntry(key, folder, "bad manifest", str(error), (opened.st_dev, opened.st_ino))
    except OSError as error:
        raise make_store_error("read", folder, error) from error
    finally:
        os.close(fd)


def _read_opened(fd: int, folder: Path, key: str, last_use: float) -> Entry:
    raw = _read_content(fd, MANIFEST, MAX_MANIFEST_BYTES + 1, "bad manifest")
    manifest = parse_manifest(raw, key)
    files, facts = manifest.core.files, manifest.core.facts
    for name, file in files.items():
        size = _read_size(fd, name)
        if size != file.size:
            raise _Damaged("wrong size", f"{name} has {size:,} bytes instead of {file.size:,}")
    content: Artifact | Failure = Artifact(key, folder, files, facts)
    if manifest.core.kind == FAILURE:
        content = Failure(key, _read_log(fd, manifest), facts)
    total = len(raw) + sum(file.size for file in files.values())
    return Entry(content, folder, total, manifest.created, last_use)


def _read_log(fd: int, manifest: Manifest) -> str:
    """Read and verify the log of a failure."""
    expected = manifest.core.files[LOG]
    raw = _read_content(fd, LOG, expected.size + 1, "missing file")
    if hashlib.blake2b(raw, digest_size=16).hexdigest() != expected.blake2b:
        raise _Damaged("wrong digest", f"{LOG} does not have the digest in the manifest")
    return decode_log(raw)


def _read_content(folder: int, name: str, most: int, kind: DamageKind) -> bytes:
    try:
        return read_regular(name, most, dir_fd=folder)
    except OSError as error:
        raise _make_damage(error, name, kind) from error


def _read_size(folder: int, name: str) -> int:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        raise _make_damage(error, name, "missing file") from error
    if not stat.S_ISREG(found.st_mode):
        raise _Damaged("missing file", f"{name} is not a regular file")
    if not is_own(found):
        raise _Damaged("foreign file", f"{name} {describe_owner(found)}")
    return found.st_size


def _make_damage(error: OSError, name: str, kind: DamageKind) -> Exception:
    if error.errno == errno.ENOENT:
        return _Damaged(kind, f"{name} is missing")
    if error.errno in DAMAGED:
        return _Damaged(kind, f"{name} cannot be read: {error.strerror}")
    return error
