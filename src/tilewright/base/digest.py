"""Canonical JSON and digests: the same facts give the same bytes on every machine."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any


def canonical_json(value: Any) -> str:
    """JSON with sorted keys, no blanks and no NaN: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_text(text: str) -> str:
    """128-bit blake2b of a text, as 32 hex digits."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def digest_value(value: Any) -> str:
    """Digest of any JSON-able value."""
    return digest_text(canonical_json(value))


def digest_file(path: Path) -> str:
    """Digest of a file's bytes, read piece by piece."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def digest_tree(root: Path) -> str:
    """Digest of a folder: names and contents of all files below it, never their times or the folder's own place."""
    hasher = hashlib.blake2b(digest_size=16)
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        content = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
        hasher.update(f"{path.relative_to(root).as_posix()}\0{content}\n".encode())
    return hasher.hexdigest()
