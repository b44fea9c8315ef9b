"""Entries of the store as values: a built kernel or a failed build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base.errors import CorruptError, choose
from tilewright.base.short_text import cut, format_count
from tilewright.building.code_object import KernelResources, select_op_kernels
from tilewright.building.store.damaged import DamagedEntry, move_damaged
from tilewright.building.store.files import DAMAGED, get_entry_layout, get_inode, hash_regular, make_store_error


@dataclass(frozen=True, slots=True)
class FileDigest:
    """Size and digest of a file: 128-bit blake2b as 32 hex digits, as in `base.digest`."""

    size: int
    blake2b: str


@dataclass(frozen=True, repr=False)
class Artifact:
    """A built kernel in a local store."""

    key: str
    folder: Path
    files: Mapping[str, FileDigest]
    facts: Mapping[str, Any]

    @property
    def resources(self) -> tuple[KernelResources, ...]:
        """Registers and memory of the device kernels that compute the op: variants of its loop and tail.

        Empty if the manifest does not have them. `facts["resources"]` also contains the kernels of CK Tile's headers.
        """
        try:
            return select_op_kernels([KernelResources(**row) for row in self.facts.get("resources", ())])
        except TypeError as error:
            raise CorruptError(f"the manifest of {self.key} has resources that cannot be read: {error}") from error

    def __repr__(self) -> str:
        size = sum(file.size for file in self.files.values())
        files = f"{format_count(len(self.files), 'file')} with {size:,} bytes"
        return f"Artifact({self.key!r}: {self.facts.get('slug', 'no name')}, {files})"

    def verify_file(self, name: str) -> Path:
        """Compare a file with the manifest and return its path.

        Raises `CorruptError` if it differs or is missing; the entry is then moved out of the store, to be built again.
        """
        expected = self.files[choose(f"file of {self.key}", name, self.files)]
        path = self.folder / name
        judged = get_inode(self.folder)
        try:
            found = FileDigest(*hash_regular(path))
        except (FileNotFoundError, NotADirectoryError) as error:
            self._move_damaged(DamagedEntry(self.key, self.folder, "missing file", f"{name} is missing", judged))
            raise CorruptError(f"{path} no longer exists: it was removed or lost. Build it again.") from error
        except OSError as error:
            if error.errno in DAMAGED:
                what = f"{name} cannot be read: {error.strerror}"
                self._move_damaged(DamagedEntry(self.key, self.folder, "missing file", what, judged))
                raise CorruptError(f"{path} cannot be read: {error.strerror}. Build it again.") from error
            raise make_store_error("read", path, error) from error
        if found != expected:
            what = f"{name} has {found.size:,} bytes with blake2b {found.blake2b}"
            self._move_damaged(DamagedEntry(self.key, self.folder, "wrong digest", what, judged))
            raise CorruptError(
                f"{self.folder}: {what}, but its manifest has {expected.size:,} bytes with {expected.blake2b}. "
                "It is not used; build it again."
            )
        return path

    def _move_damaged(self, damage: DamagedEntry) -> None:
        if damage.inode is not None:
            move_damaged(get_entry_layout(self.folder), damage)


@dataclass(frozen=True, repr=False)
class Failure:
    """A failed build that would fail again with the same inputs."""

    key: str
    log: str
    facts: Mapping[str, Any]

    def __repr__(self) -> str:
        errors = self.facts.get("errors") or ["no error was named"]
        return cut(f"Failure({self.key!r}: {self.facts.get('slug', 'no name')}, {errors[0]})")


@dataclass(frozen=True)
class Entry:
    """An artifact or failure with the store's metadata; times are seconds since 1970."""

    content: Artifact | Failure
    folder: Path
    size: int
    created: float
    last_use: float  # with a resolution of an hour

    @property
    def key(self) -> str:
        return self.content.key

    @property
    def failed(self) -> bool:
        return isinstance(self.content, Failure)

    @property
    def name(self) -> str:
        """The kernel's name if the facts have one, else empty."""
        slug = self.content.facts.get("slug", "")
        return slug if isinstance(slug, str) else ""
