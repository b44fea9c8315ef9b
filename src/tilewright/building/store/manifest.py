"""The manifest of an entry: its kind, its files with sizes and digests, and facts about it; and reading an entry by it.

Parsed with hand-written checks: ten thousand manifests are listed in a second. Nothing in a manifest is executed, and
no name in it is joined to a path before it was checked to be a plain file name. Everything that the store reads goes
through `parse_untrusted`, so unexpected bytes count as damage and never raise another kind of exception.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from tilewright.base.digest import to_canonical_json
from tilewright.base.errors import InvalidValueError, TilewrightError
from tilewright.base.shared_files import describe_owner, is_own
from tilewright.building.store.artifact import Artifact, Entry, Failure, FileDigest
from tilewright.building.store.damaged import DamagedEntry, DamageKind
from tilewright.building.store.files import (
    DAMAGED,
    MANIFEST,
    SCHEMA,
    get_inode,
    is_file_name,
    make_store_error,
    read_regular,
)

T = TypeVar("T")
Kind = Literal["artifact", "failure"]
ARTIFACT: Kind = "artifact"
FAILURE: Kind = "failure"
LOG = "build.log"  # the one file of a failure
# Facts are names and numbers of one kernel, some kilobytes. Anything larger is not a manifest.
MAX_MANIFEST_BYTES = 4 * 2**20
_DIGEST = re.compile(r"[0-9a-f]{32}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_CORE = {"schema", "key", "kind", "files", "facts"}
_LOCAL = {*_CORE, "version", "created"}


@dataclass(frozen=True, slots=True)
class Core:
    """The part of a manifest that is the same on all machines."""

    key: str
    kind: Kind
    files: Mapping[str, FileDigest]
    facts: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        files = {name: {"size": file.size, "blake2b": file.blake2b} for name, file in self.files.items()}
        return {"schema": SCHEMA, "key": self.key, "kind": self.kind, "files": files, "facts": dict(self.facts)}


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a local entry; `version` and `created` (seconds since 1970) are only informative."""

    core: Core
    version: str
    created: float

    def to_text(self) -> str:
        return _check_size(to_canonical_json({**self.core.to_json(), "version": self.version, "created": self.created}))


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


def format_core(core: Core) -> str:
    """Format the core as canonical JSON: the same entry gives the same text on every machine."""
    return _check_size(to_canonical_json(core.to_json()))


def check_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts as they will be read back. Values that JSON cannot represent are rejected."""
    try:
        read = json.loads(to_canonical_json(dict(facts)))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError(f"facts about an entry must be JSON: {error}") from error
    return cast(dict[str, Any], read)


def parse_untrusted(what: str, read: Callable[[], T]) -> T:
    """Call `read`, which parses bytes that a crash or somebody else may have written.

    All its exceptions become `InvalidValueError`, except our own errors and `OSError`, which is not about the bytes.
    """
    try:
        return read()
    except (TilewrightError, OSError):
        raise
    except Exception as error:
        raise InvalidValueError(f"{what} cannot be parsed: {type(error).__name__}: {error}") from error


def parse_manifest(raw: bytes, key: str) -> Manifest:
    """Parse the manifest of the entry `key`. Raises `InvalidValueError` with the first problem."""
    return parse_untrusted("the manifest", lambda: _parse_manifest_table(_parse_table(raw, _LOCAL), key))


def parse_core(raw: bytes, key: str) -> Core:
    """Parse the core of the entry `key` from a blob. Raises `InvalidValueError` like `parse_manifest`."""
    return parse_untrusted("the manifest", lambda: _parse_core_table(_parse_table(raw, _CORE), key))


def decode_log(raw: bytes) -> str:
    """Decode the log of a failure. Raises `InvalidValueError` if it is not UTF-8."""
    return parse_untrusted(LOG, lambda: raw.decode("utf-8"))


def encode_log(log: str) -> bytes:
    """Encode a log. Unpaired surrogates become question marks."""
    return log.encode("utf-8", "replace")


def _parse_manifest_table(table: dict[str, Any], key: str) -> Manifest:
    version, created = table["version"], table["created"]
    if type(version) is not str:
        raise InvalidValueError("'version' is not a string")
    if type(created) not in (int, float):
        raise InvalidValueError("'created' is not a number")
    return Manifest(_parse_core_table(table, key), version, float(created))


def _check_size(text: str) -> str:
    if len(text) > MAX_MANIFEST_BYTES:  # canonical JSON is ASCII
        raise InvalidValueError(
            f"the manifest would have {len(text):,} bytes, and {MAX_MANIFEST_BYTES:,} is the limit. Put large facts "
            "into a file of the entry."
        )
    return text


def _parse_table(raw: bytes, keys: set[str]) -> dict[str, Any]:
    if len(raw) > MAX_MANIFEST_BYTES:
        raise InvalidValueError(f"the manifest has over {MAX_MANIFEST_BYTES:,} bytes")
    try:
        table = json.loads(raw, parse_constant=_reject_constant, parse_float=_parse_finite)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"the manifest is not JSON: {error}") from error
    if type(table) is not dict:
        raise InvalidValueError("the manifest is not a table")
    if _SURROGATE.search(raw):
        json.dumps(table, ensure_ascii=False).encode()  # raises for unpaired surrogates, which cannot be printed
    if type(table.get("schema")) is not int or table["schema"] != SCHEMA:
        raise InvalidValueError(f"the manifest has schema {table.get('schema')!r}, but only {SCHEMA} is supported")
    if table.keys() != keys:
        raise InvalidValueError(f"the manifest has the keys {sorted(table)}, expected {sorted(keys)}")
    return table


def _parse_core_table(table: dict[str, Any], key: str) -> Core:
    if table["key"] != key:
        raise InvalidValueError(f"the manifest belongs to {table['key']!r}, not to {key}")
    kind, files, facts = table["kind"], table["files"], table["facts"]
    if kind not in (ARTIFACT, FAILURE):
        raise InvalidValueError(f"the manifest has the kind {kind!r}; known kinds are {ARTIFACT} and {FAILURE}")
    if type(files) is not dict or type(facts) is not dict:
        raise InvalidValueError("'files' and 'facts' of the manifest must be tables")
    if kind == FAILURE and list(files) != [LOG]:
        raise InvalidValueError(f"a failure has the files {sorted(files)} instead of {LOG} alone")
    return Core(key, kind, {name: _parse_file(name, files[name]) for name in sorted(files)}, facts)


def _parse_file(name: str, entry: Any) -> FileDigest:
    if not is_file_name(name) or name == MANIFEST:
        raise InvalidValueError(f"the manifest lists {name!r}, which is not a plain file name")
    if type(entry) is not dict or entry.keys() != {"size", "blake2b"}:
        raise InvalidValueError(f"the manifest must have size and blake2b of {name}")
    size, digest = entry["size"], entry["blake2b"]
    if type(size) is not int or size < 0 or type(digest) is not str or not _DIGEST.fullmatch(digest):
        raise InvalidValueError(f"the manifest's size or blake2b of {name} is invalid")
    return FileDigest(size, digest)


def _reject_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")


def _parse_finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is out of range")
    return value
