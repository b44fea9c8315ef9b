"""A wheel of kernels as a value: its manifest, and its entries as blobs of the store's format.

The package has one file `kernels.json` (the manifest) and one file per entry in `blobs/`, named by key. Nothing in it
is imported or executed to find a kernel. An entry has two digests of its inputs: the build key, which covers everything
that determines the code, and the source key, which covers only Tilewright's own inputs (source, headers, GPU) and so
is the same for every compiler.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tilewright.arch.ck_api import CkApi
from tilewright.base.digest import to_canonical_json
from tilewright.base.documents import convert_read_errors, parse_json, read_bytes
from tilewright.base.errors import InvalidBlobError, InvalidValueError
from tilewright.building.store.files import check_key, open_regular
from tilewright.building.store.remote import MAX_BLOB_BYTES

# Increased when the manifest or the blobs change in a way that earlier versions cannot read.
FORMAT = 1
# The group of entry points that names the packages. Their values are import names; they are not imported.
GROUP = "tilewright.kernels"
MANIFEST = "kernels.json"
BLOBS = "blobs"
# 10,000 kernels have 3 MB of manifest.
MOST_MANIFEST_BYTES = 64 * 2**20
_PACKAGE = re.compile(r"[a-z][a-z0-9_]{0,199}")


@dataclass(frozen=True, slots=True)
class BuildFacts:
    """The compiler, HIP and CK tree that all entries of a wheel were built with."""

    toolchain: str  # its kind
    compiler: str
    hip: str
    identity: str  # the digest of `Toolchain.identity()`
    ck: str  # the digest of CK Tile's headers; empty for libraries that do not include them
    generation: str
    changes: tuple[tuple[str, str], ...]

    @property
    def api(self) -> CkApi:
        """The API of the CK tree, for rendering the sources that the kernels were built from."""
        return CkApi(self.generation, frozenset(self.changes))

    def describe(self) -> str:
        """Compiler, HIP and CK tree for messages."""
        return f"{self.compiler}, HIP {self.hip}, CK Tile {self.generation} ({self.ck[:12]})"

    def to_json(self) -> dict[str, Any]:
        return {
            "toolchain": self.toolchain,
            "compiler": self.compiler,
            "hip": self.hip,
            "identity": self.identity,
            "ck": self.ck,
            "generation": self.generation,
            "changes": [list(change) for change in self.changes],
        }


@dataclass(frozen=True, slots=True)
class WheelEntry:
    """One built kernel or library in a wheel."""

    key: str
    source: str
    name: str
    size: int  # of the blob

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, "source": self.source, "name": self.name, "size": self.size}


@dataclass(frozen=True)
class KernelWheel:
    """An installed wheel of kernels for one GPU."""

    name: str
    version: str
    folder: Path
    gpu: str
    built: BuildFacts
    entries: Mapping[str, WheelEntry]  # by key

    @cached_property
    def by_source(self) -> Mapping[str, WheelEntry]:
        """The entries by source key."""
        return {entry.source: entry for entry in self.entries.values()}

    def describe(self) -> str:
        """Name and version for messages."""
        return f"{self.name} {self.version}"

    def read_blob(self, key: str) -> bytes:
        """Read the blob of an entry. Raises `InvalidBlobError` if it does not have the size of the manifest."""
        path, size = self.folder / BLOBS / check_key(key), self.entries[key].size
        try:
            with open(open_regular(path), "rb") as stream:  # noqa: PTH123  (a descriptor)
                blob = stream.read(size + 1)
        except OSError as error:
            raise InvalidBlobError(f"{path} cannot be read: {error.strerror}") from error
        if len(blob) != size:
            raise InvalidBlobError(f"{path} does not have the {size:,} bytes that the manifest lists")
        return blob


def check_package_name(name: str) -> str:
    """Return the import name of a package if it is valid: it becomes a part of a path."""
    if _PACKAGE.fullmatch(name) is None:
        raise InvalidValueError(f"{name!r} cannot name a package of kernels: use a-z, 0-9 and _")
    return name


def format_manifest(gpu: str, built: BuildFacts, entries: Mapping[str, WheelEntry]) -> str:
    """Format the manifest of a wheel."""
    listed = [entries[key].to_json() for key in sorted(entries)]
    return to_canonical_json({"format": FORMAT, "gpu": gpu, "built": built.to_json(), "entries": listed}) + "\n"


def read_wheel(name: str, version: str, folder: Path) -> KernelWheel:
    """Read the manifest in a package's folder. Raises `FileFormatError` if it cannot be used."""
    path = folder / MANIFEST
    raw = read_bytes(path, MOST_MANIFEST_BYTES)
    with convert_read_errors(path):
        document = parse_json(raw)
        if document["format"] != FORMAT:
            raise InvalidValueError(f"has the format {document['format']!r}, and this version reads {FORMAT}")
        entries = [_read_entry(row) for row in document["entries"]]
        built = _read_built(document["built"])
        gpu = _require_text(document, "gpu")
    return KernelWheel(name, version, folder, gpu, built, {entry.key: entry for entry in entries})


def _read_entry(row: Mapping[str, Any]) -> WheelEntry:
    size = row["size"]
    if type(size) is not int or not 0 < size <= MAX_BLOB_BYTES:
        raise InvalidValueError(f"an entry has the size {size!r}: it must be 1 to {MAX_BLOB_BYTES:,}")
    return WheelEntry(
        check_key(_require_text(row, "key")),
        check_key(_require_text(row, "source")),
        _require_text(row, "name"),
        size,
    )


def _read_built(facts: Mapping[str, Any]) -> BuildFacts:
    changes = tuple((str(probe), str(form)) for probe, form in facts["changes"])
    return BuildFacts(
        toolchain=_require_text(facts, "toolchain"),
        compiler=_require_text(facts, "compiler"),
        hip=_require_text(facts, "hip"),
        identity=_require_text(facts, "identity"),
        ck=_require_text(facts, "ck"),
        generation=_require_text(facts, "generation"),
        changes=changes,
    )


def _require_text(row: Mapping[str, Any], name: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise InvalidValueError(f"{name} must be a text, got {value!r}")
    return value
