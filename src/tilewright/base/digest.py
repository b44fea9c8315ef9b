"""Canonical JSON and digests: equal values give the same bytes on every machine.

Digests of files that seldom change are cached. A digest covers only names and contents; it is cached with the size,
times and inode of every file, and computed again as soon as one of them differs. Times only decide whether files are
read again; they are not part of the digest.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tilewright.base import knobs
from tilewright.base.documents import read_json
from tilewright.base.errors import FileFormatError
from tilewright.base.shared_files import require_own

# A file that was changed within this time may change again without a new time stamp (as Git's "racy" entries; file
# systems have time stamps with a resolution of up to 2 s, as FAT).
RACY_S = 2.0
Stamp = tuple[str, int, int, int, int]


def to_canonical_json(value: Any) -> str:
    """JSON with sorted keys, without whitespace and NaN. Equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_text(text: str) -> str:
    """128-bit blake2b of a text, as 32 hex digits."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def digest_value(value: Any) -> str:
    """Digest of any value that JSON can represent."""
    return digest_text(to_canonical_json(value))


def digest_file(path: Path) -> str:
    """Digest of a file's bytes, read in chunks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def digest_tree(root: Path) -> str:
    """Digest of a folder: names and contents of all files below it, but not their times or the folder's own path."""
    hasher = hashlib.blake2b(digest_size=16)
    for name, entry in sorted(walk_tree(root), key=lambda found: found[0].split("/")):
        content = "" if entry.is_dir() else hashlib.blake2b(Path(entry.path).read_bytes(), digest_size=16).hexdigest()
        hasher.update(f"{name}\0{content}\n".encode())
    return hasher.hexdigest()


def walk_tree(root: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """All files below `root`, by name relative to it. Links are followed, as a compiler follows them.

    A link to one of its parent folders is listed as a folder and not followed: the walk would not end, and all files
    behind it are listed under a shorter name. Broken links are skipped: nothing can open them.
    """
    pending: list[tuple[str, str, tuple[tuple[int, int], ...]]] = [("", str(root), (_identity(root.stat()),))]
    while pending:
        prefix, folder, above = pending.pop()
        with os.scandir(folder) as scan:
            listed = list(scan)
        for entry in sorted(listed, key=lambda entry: entry.name):
            if entry.is_dir():
                identity = _identity(entry.stat())
                if identity in above:
                    yield f"{prefix}{entry.name}", entry
                else:
                    pending.append((f"{prefix}{entry.name}/", entry.path, (*above, identity)))
            elif entry.is_file():
                yield f"{prefix}{entry.name}", entry


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def compute_tree_digest(root: Path) -> str:
    """Compute the digest of a folder like `digest_tree`, with a cache."""
    stamps = tuple(_make_stamp(entry.path, entry.stat()) for _, entry in walk_tree(root))
    return _read_or_compute(f"tree {root.absolute()}", stamps, lambda: digest_tree(root))


def compute_files_digest(paths: Sequence[Path]) -> str:
    """Compute the digest of the contents of some files in the given order, with a cache."""
    stamps = tuple(_make_stamp(str(path), path.stat()) for path in paths)
    named = " ".join(str(path.absolute()) for path in paths)
    return _read_or_compute(f"files {named}", stamps, lambda: digest_value([digest_file(path) for path in paths]))


def read_cached_text(what: str, paths: Sequence[Path], calculate: Callable[[], str]) -> str:
    """Cache the result of `calculate`, such as a program's version output, until one of the files changes."""
    return _read_or_compute(what, tuple(_make_stamp(str(path), path.stat()) for path in paths), calculate)


def _make_stamp(path: str, status: os.stat_result) -> Stamp:
    return (path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def _read_or_compute(what: str, stamps: tuple[Stamp, ...], calculate: Callable[[], str]) -> str:
    signature = hashlib.blake2b(repr(stamps).encode(), digest_size=16).hexdigest()
    folder = knobs.cache_dir() / "digests"
    # Anybody who can write there could make us use kernels that were compiled with other headers.
    require_own(folder, knobs.CACHE_DIR.name)
    memory = folder / f"{digest_value(what)}.json"
    known = _read_cache(memory)
    if known.get("signature") == signature and isinstance(known.get("digest"), str):
        return str(known["digest"])
    started = time.time()
    digest = calculate()
    newest = max((max(stamp[2], stamp[3]) for stamp in stamps), default=0)
    if newest < (started - RACY_S) * 1e9:
        _write_cache(memory, {"what": what, "signature": signature, "digest": digest})
    return digest


def _read_cache(memory: Path) -> dict[str, object]:
    """Read a cache file. One that cannot be read or parsed counts as empty."""
    try:
        known = read_json(memory)
    except FileFormatError:
        return {}
    return known if isinstance(known, dict) else {}


def _write_cache(memory: Path, known: dict[str, str]) -> None:
    """Write a cache file. If the folder cannot be written, the digest is computed again next time."""
    private = memory.with_name(f".{memory.name}.{os.urandom(4).hex()}")  # unique, since several threads may write
    try:
        memory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        private.write_text(json.dumps(known), encoding="utf-8")
        private.replace(memory)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT):
            raise
