"""The manifest of an entry: its kind, its files with sizes and digests, and facts about it.

Parsed with hand-written checks: ten thousand manifests are listed in a second. Nothing in a manifest is executed, and
no name in it is joined to a path before it was checked to be a plain file name. Everything that the store reads goes
through `parse_untrusted`, so unexpected bytes count as damage and never raise another kind of exception.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

from tilewright.base.digest import to_canonical_json
from tilewright.base.errors import InvalidValueError, TilewrightError
from tilewright.building.store.artifact import FileDigest
from tilewright.building.store.layout import MANIFEST, SCHEMA, is_file_name

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
