"""Canonical JSON and digests: equal values give the same bytes on every machine."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


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
