"""The folders of a store, and the names that may become part of a path.

<root>/v1/entries/<k[:2]>/<key>/   a complete entry: manifest.json and the files it lists
<root>/v1/locks/<k[:2]>/<key>.lock held while an entry is built
<root>/v1/work/<name>/             a private folder, in use while <name>.lock next to it is held
<root>/v1/corrupt/<key>-<n>/       damaged entries, kept until the next gc
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.errors import InvalidValueError

# Part of every path: versions of the package with another schema do not touch these entries.
SCHEMA = 1
MANIFEST = "manifest.json"

_KEY = re.compile(r"[0-9a-f]{32}")
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")  # far below the 255 bytes a file system allows
FAN_OUT = re.compile(r"[0-9a-f]{2}")

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600


def is_key(text: str) -> bool:
    """Return whether a text can be the key of an entry."""
    return _KEY.fullmatch(text) is not None


def is_file_name(text: str) -> bool:
    """Return whether a text is a plain file name: no folder, no leading dot, no special characters."""
    return _FILE_NAME.fullmatch(text) is not None


def check_key(key: str) -> str:
    """Return `key` if it is valid. Nothing else is ever joined to a path."""
    if not is_key(key):
        raise InvalidValueError(f"{key!r} is not a key of the store: a key is 32 hex digits (128 bit, lower case).")
    return key


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
