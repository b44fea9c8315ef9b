"""Decide whether the documents of a host may be used: signatures from the pinned key on, expiry, and no way back.

Two roles sign. Root keys, which stay offline, sign the list of keys; index keys sign the index, which lists the digest
of every shard and so of every blob. `keys.json` has all versions of the list of keys: each is signed by the root keys
of the version before it and by its own, so a client that pinned any of the root keys can follow every later rotation.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.base.digest import digest_value
from tilewright.base.documents import convert_read_errors, parse_json
from tilewright.base.errors import FileFormatError, InvalidValueError, RemoteError
from tilewright.building.index.shards import ShardTable, read_table
from tilewright.building.index.signing import SignedDocument, check_public_key, parse_signed, read_signed

FORMAT = 1
KEYS, INDEX = "keys", "index"
KEYS_FILE, INDEX_FILE = "keys.json", "index.json"
MOST_KEYS_BYTES, MOST_INDEX_BYTES = 256 * 2**10, 2**20
_MOST_ROTATIONS = 200


@dataclass(frozen=True)
class TrustedKeys:
    """A verified version of the list of keys."""

    name: str
    version: int
    expires: float
    roots: tuple[str, ...]
    threshold: int
    index: tuple[str, ...]
    digest: str

    @property
    def index_digest(self) -> str:
        """The digest of the index keys: with new ones, versions of the index are counted anew."""
        return digest_value(sorted(self.index))


@dataclass(frozen=True)
class TrustedIndex:
    """A verified index."""

    name: str
    version: int
    expires: float
    table: ShardTable
    digest: str


@dataclass(frozen=True)
class Known:
    """The newest versions that this machine has verified: nothing older is accepted."""

    keys_version: int = 0
    keys_digest: str = ""
    index_keys: str = ""  # `TrustedKeys.index_digest`, for which the next two are valid
    index_version: int = 0
    index_digest: str = ""

    def add_keys(self, keys: TrustedKeys) -> Known:
        """The state after keys were verified. Other index keys void the version of the index."""
        kept = self if self.index_keys == keys.index_digest else replace(self, index_version=0, index_digest="")
        return replace(kept, keys_version=keys.version, keys_digest=keys.digest, index_keys=keys.index_digest)

    def add_index(self, index: TrustedIndex) -> Known:
        """The state after an index was verified."""
        return replace(self, index_version=index.version, index_digest=index.digest)


def verify_keys(raw: bytes, pins: Sequence[str], known: Known, now: float | None = None) -> TrustedKeys:
    """Verify the list of keys, from a pinned key on. Raises `RemoteError`."""
    with _RefuseBadForm(KEYS_FILE):
        documents = [read_signed(each) for each in _read_list(parse_json(raw))]
        versions = [_read_keys(document) for document in documents]
    roots, threshold = tuple(pins), 1
    trusted: TrustedKeys | None = None
    for document, keys in zip(documents, versions, strict=True):
        signed = document.count_valid(KEYS, roots) >= threshold
        if not signed and trusted is None:
            continue  # of before the pinned key
        own = document.count_valid(KEYS, keys.roots) >= keys.threshold
        follows = trusted is None or (keys.version == trusted.version + 1 and keys.name == trusted.name)
        if not (signed and own and follows):
            raise RemoteError(f"version {keys.version} of {KEYS_FILE} is not signed by the root keys before it")
        if keys.version == known.keys_version and keys.digest != known.keys_digest:
            raise RemoteError(f"version {keys.version} of {KEYS_FILE} differs from the one that was verified before")
        trusted, roots, threshold = keys, keys.roots, keys.threshold
    if trusted is None:
        raise RemoteError(f"{KEYS_FILE} is not signed by a pinned key")
    if trusted.version < known.keys_version:
        raise RemoteError(
            f"{KEYS_FILE} ends with version {trusted.version}, and version {known.keys_version} was verified before"
        )
    _check_expiry(KEYS_FILE, trusted.expires, now)
    return trusted


def verify_index(raw: bytes, keys: TrustedKeys, known: Known, now: float | None = None) -> TrustedIndex:
    """Verify an index by its keys. Raises `RemoteError`. `known` must have been updated with `keys`."""
    with _RefuseBadForm(INDEX_FILE):
        document = parse_signed(raw)
    if not document.count_valid(INDEX, keys.index):
        raise RemoteError(f"{INDEX_FILE} is not signed by a key of {KEYS_FILE}")
    with _RefuseBadForm(INDEX_FILE):
        facts = _parse_payload(document, INDEX)
        index = TrustedIndex(
            name=_require(facts, "name", str),
            version=_require(facts, "version", int),
            expires=_require(facts, "expires", int),
            table=read_table(facts["bits"], facts["shards"]),
            digest=document.digest,
        )
    if index.name != keys.name:
        raise RemoteError(f"{INDEX_FILE} belongs to {index.name[:80]!r}, and the pinned keys to {keys.name[:80]!r}")
    if index.version < known.index_version:
        raise RemoteError(
            f"{INDEX_FILE} has version {index.version}, and version {known.index_version} was verified before: it is "
            "an old one"
        )
    if index.version == known.index_version and index.digest != known.index_digest:
        raise RemoteError(f"version {index.version} of {INDEX_FILE} differs from the one that was verified before")
    _check_expiry(INDEX_FILE, index.expires, now)
    return index


def _read_list(document: Any) -> list[Any]:
    listed = document["documents"]
    if not isinstance(listed, list) or not 0 < len(listed) <= _MOST_ROTATIONS:
        raise InvalidValueError(f"must have a list of 1 to {_MOST_ROTATIONS} documents")
    return listed


def _read_keys(document: SignedDocument) -> TrustedKeys:
    """Read a version of the list of keys; nothing is verified."""
    facts = _parse_payload(document, KEYS)
    roots = tuple(sorted({check_public_key(key) for key in facts["roots"]}))
    threshold = _require(facts, "threshold", int)
    if not 1 <= threshold <= len(roots):
        raise InvalidValueError(f"has the threshold {threshold} for {len(roots)} root keys")
    return TrustedKeys(
        name=_require(facts, "name", str),
        version=_require(facts, "version", int),
        expires=_require(facts, "expires", int),
        roots=roots,
        threshold=threshold,
        index=tuple(sorted({check_public_key(key) for key in facts["index"]})),
        digest=document.digest,
    )


def _parse_payload(document: SignedDocument, role: str) -> dict[str, Any]:
    facts = parse_json(document.payload)
    if not isinstance(facts, dict) or facts.get("format") != FORMAT or facts.get("role") != role:
        raise InvalidValueError(f"is not a document of the role {role!r} in format {FORMAT}")
    return facts


def _require(facts: dict[str, Any], name: str, kind: type) -> Any:
    value: Any = facts[name]
    if not isinstance(value, kind) or isinstance(value, bool) or (isinstance(value, int) and value < 0):
        raise InvalidValueError(f"{name} must be of type {kind.__name__}")
    return value


def _check_expiry(file: str, expires: float, now: float | None) -> None:
    current = time.time() if now is None else now
    if expires <= current:
        raise RemoteError(
            f"{file} expired {(current - expires) / 86400:.1f} days ago, or this machine's clock is wrong"
        )


class _RefuseBadForm:
    """Turns errors that a document's content causes into one `RemoteError`."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._inner = convert_read_errors(file)

    def __enter__(self) -> None:
        self._inner.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self._inner.__exit__(kind, error, trace)
        except FileFormatError as told:
            raise RemoteError(f"{self._file} {'; '.join(str(problem) for problem in told.problems)}"[:300]) from error
