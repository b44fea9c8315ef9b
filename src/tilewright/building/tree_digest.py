"""Digests of files that seldom change, remembered by what the file system says of them.

A digest is of names and contents alone. It is kept with the size, the times and the inode of every file, and
calculated again as soon as one of them differs. Times decide only whether files are read again, never what the digest
is.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tilewright.base import knobs
from tilewright.base.digest import digest_file, digest_tree, digest_value, tree_files
from tilewright.base.documents import read_json
from tilewright.base.errors import FileFormatError
from tilewright.base.ownership import require_own

# A file that changed this short a time ago may change again without its times telling (as in Git's "racy" entries;
# file systems keep times in steps of up to 2 s, FAT's).
RACY_S = 2.0

Stamp = tuple[str, int, int, int, int]


def tree_digest(root: Path) -> str:
    """The digest of a folder, as `digest_tree` gives it."""
    stamps = tuple(_stamp(entry.path, entry.stat()) for _, entry in tree_files(root))
    return _remembered(f"tree {root.absolute()}", stamps, lambda: digest_tree(root))


def files_digest(paths: Sequence[Path]) -> str:
    """The digest of some files, by their contents in the given order."""
    stamps = tuple(_stamp(str(path), path.stat()) for path in paths)
    named = " ".join(str(path.absolute()) for path in paths)
    return _remembered(f"files {named}", stamps, lambda: digest_value([digest_file(path) for path in paths]))


def remembered_text(what: str, paths: Sequence[Path], calculate: Callable[[], str]) -> str:
    """What `calculate` says of some files, such as the version that a program prints; asked again when they change."""
    return _remembered(what, tuple(_stamp(str(path), path.stat()) for path in paths), calculate)


def _stamp(path: str, status: os.stat_result) -> Stamp:
    return (path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def _remembered(what: str, stamps: tuple[Stamp, ...], calculate: Callable[[], str]) -> str:
    signature = hashlib.blake2b(repr(stamps).encode(), digest_size=16).hexdigest()
    folder = knobs.cache_dir() / "digests"
    # Who writes there decides which kernels are taken for those of other headers.
    require_own(folder, knobs.CACHE_DIR.name)
    memory = folder / f"{digest_value(what)}.json"
    known = _read(memory)
    if known.get("signature") == signature and isinstance(known.get("digest"), str):
        return str(known["digest"])
    started = time.time()
    digest = calculate()
    newest = max((max(stamp[2], stamp[3]) for stamp in stamps), default=0)
    if newest < (started - RACY_S) * 1e9:
        _write(memory, {"what": what, "signature": signature, "digest": digest})
    return digest


def _read(memory: Path) -> dict[str, object]:
    """What is remembered. A file that cannot be read or understood remembers nothing: the files are read instead."""
    try:
        known = read_json(memory)
    except FileFormatError:
        return {}
    return known if isinstance(known, dict) else {}


def _write(memory: Path, known: dict[str, str]) -> None:
    """Remember. A cache folder that cannot be written costs the reading next time, nothing else."""
    private = memory.with_name(f".{memory.name}.{secrets.token_hex(4)}")  # threads write too
    try:
        memory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        private.write_text(json.dumps(known), encoding="utf-8")
        private.replace(memory)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT):
            raise
