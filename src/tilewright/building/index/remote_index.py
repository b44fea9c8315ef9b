"""The read-only remote tier behind `https://` and `s3://`: a signed index on a static host or in a bucket."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.base.errors import InvalidBlobError, InvalidValueError, KnobError, RemoteError, StoreError
from tilewright.base.events import Notice, emit
from tilewright.base.knobs import REMOTE, REMOTE_KEYS, REMOTE_SECRET_FILE
from tilewright.building.index.local_copy import LocalCopy
from tilewright.building.index.s3_transport import S3, S3Address, S3Fetcher, parse_s3_address
from tilewright.building.index.shards import BlobRecord, ShardRow, check_shard, find_record, hash_bytes
from tilewright.building.index.signing import parse_pins
from tilewright.building.index.transport import AbsentError, Address, Answer, Fetcher, RetryingFetcher, parse_address
from tilewright.building.index.trust import (
    INDEX_FILE,
    KEYS_FILE,
    MOST_INDEX_BYTES,
    MOST_KEYS_BYTES,
    Known,
    TrustedIndex,
    TrustedKeys,
    verify_index,
    verify_keys,
)

_READ_ONLY = "an index is only read"
BLOBS, SHARDS = "blobs", "shards"
# How long a verified index is used before the host is asked again: a new kernel is found an hour later at most.
RECHECK_S = 3600.0
# Shards that are kept in memory: 10 KB each, 16 MB for those of the largest size, 64 KB.
_MOST_SHARDS = 256
# Records that are kept between the two calls of a look-up: 20 MB.
_MOST_RECORDS = 100_000


@dataclass
class IndexRemote:
    """A signed index on a host. Nothing is used that a pinned key does not vouch for. Read-only."""

    url: str
    pins: tuple[str, ...]
    fetcher: RetryingFetcher
    copy: LocalCopy
    recheck_s: float = RECHECK_S
    _index: TrustedIndex | None = None
    _checked: float = 0.0
    _shards: dict[str, bytes] = field(default_factory=dict)
    _records: dict[str, BlobRecord] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def describe(self) -> str:
        return self.url

    def get_sizes(self, keys: Sequence[str]) -> Mapping[str, int]:
        with self._lock:  # one thread asks the host for a new version
            index = self._refresh()
        records = [record for key in keys if (record := self._find_record(index, key)) is not None]
        if len(self._records) > _MOST_RECORDS:
            self._records.clear()
        self._records |= {record.key: record for record in records}
        return {record.key: record.size for record in records}

    def fetch(self, sizes: Mapping[str, int]) -> Mapping[str, bytes]:
        found, refused = {}, {}
        for key in sizes:
            record = self._records.get(key)
            if record is None:
                continue
            try:
                blob = self.fetcher.get(f"{BLOBS}/{key[:2]}/{key}", record.size, exact=True).body or b""
                if hash_bytes(blob) != record.digest:
                    raise InvalidBlobError("it does not have the digest that the signed index lists")
                found[key] = blob
            except (AbsentError, InvalidBlobError) as error:
                refused[key] = str(error)
        new = {key: why for key, why in refused.items() if key not in self._refused}
        if new:  # a build looks a key up more than once
            self._refused.update(new)
            key, why = next(iter(new.items()))
            rest = f", and {len(new) - 1:,} more" if len(new) > 1 else ""
            emit(Notice(f"{self.url} does not serve the blob {key} ({why}){rest}; it is not used"))
        return found

    def push(self, key: str, blob: bytes) -> None:  # noqa: ARG002  (of the protocol)
        raise RemoteError(_READ_ONLY)

    def claim(self, key: str, holder: str, ttl_s: float) -> bool:  # noqa: ARG002  (of the protocol)
        raise RemoteError(_READ_ONLY)

    def is_claimed(self, key: str) -> bool:  # noqa: ARG002  (of the protocol)
        raise RemoteError(_READ_ONLY)

    def release(self, key: str, holder: str) -> None:  # noqa: ARG002  (of the protocol)
        raise RemoteError(_READ_ONLY)

    def abandon(self) -> None:
        self.fetcher.close()

    def _refresh(self) -> TrustedIndex:
        """Return the newest index. The host is asked if the last answer is old."""
        now = time.time()
        if self._index is not None and 0 <= now - self._checked < self.recheck_s and self._index.expires > now:
            return self._index
        state = self.copy.read_state()
        if 0 <= now - state.checked < self.recheck_s:
            try:
                self._index, self._checked = self._read_copy(state.known), state.checked
                return self._index
            except RemoteError:
                pass  # the copy is damaged or has expired: the host is asked
        self._index, self._checked = self._ask_host(now), now
        return self._index

    def _read_copy(self, known: Known) -> TrustedIndex:
        raw = [self.copy.read_file(name) for name in (KEYS_FILE, INDEX_FILE)]
        if raw[0] is None or raw[1] is None:
            raise RemoteError("the copy of the index is not complete")
        keys = verify_keys(raw[0], self.pins, known)
        return verify_index(raw[1], keys, known.add_keys(keys))

    def _ask_host(self, now: float) -> TrustedIndex:
        state = self.copy.read_state()
        raw_keys, keys_answer = self._get_document(KEYS_FILE, MOST_KEYS_BYTES, state.keys_etag)
        raw_index, index_answer = self._get_document(INDEX_FILE, MOST_INDEX_BYTES, state.index_etag)
        keys: TrustedKeys = verify_keys(raw_keys, self.pins, state.known)
        known = state.known.add_keys(keys)
        index = verify_index(raw_index, keys, known)
        new = replace(
            state,
            known=known.add_index(index),
            checked=now,
            keys_etag=keys_answer.etag,
            index_etag=index_answer.etag,
        )
        if not self.copy.write(new, {KEYS_FILE: raw_keys, INDEX_FILE: raw_index}):
            return self._read_copy(self.copy.read_state().known)  # another process has just verified a newer one
        if index.digest != state.known.index_digest:
            self._shards.clear()
            self.copy.remove_other_shards({row.digest for row in index.table})
        return index

    def _get_document(self, name: str, most: int, etag: str) -> tuple[bytes, Answer]:
        """Get a document, with a condition if there is a copy."""
        kept = self.copy.read_file(name, most) if etag else None
        answer = self.fetcher.get(name, most, etag=etag if kept is not None else "")
        body = kept if answer.body is None else answer.body
        assert body is not None
        return body, answer

    def _find_record(self, index: TrustedIndex, key: str) -> BlobRecord | None:
        row = index.table.find_row(key)
        return None if row.count == 0 else find_record(self._get_shard(row), key)

    def _get_shard(self, row: ShardRow) -> bytes:
        found = self._shards.get(row.digest)
        if found is None:
            found = self._read_shard(row) or self._fetch_shard(row)
            if len(self._shards) >= _MOST_SHARDS:
                self._shards.clear()
            self._shards[row.digest] = found
        return found

    def _read_shard(self, row: ShardRow) -> bytes | None:
        body = self.copy.read_file(f"{SHARDS}/{row.digest}", row.size)
        try:
            return None if body is None else check_shard(body, row)
        except InvalidBlobError:
            return None  # damaged here: it is fetched again

    def _fetch_shard(self, row: ShardRow) -> bytes:
        body = self.fetcher.get(f"{SHARDS}/{row.digest[:2]}/{row.digest}", row.size, exact=True).body or b""
        try:
            check_shard(body, row)
        except InvalidBlobError as error:
            raise RemoteError(str(error)) from error
        self.copy.write_shard(row.digest, body)
        return body


def open_index(url: str) -> IndexRemote:
    """Open the index at an address, with the pinned keys of the environment. Nothing is requested yet."""
    address: Address | S3Address = parse_s3_address(url) if url.startswith(f"{S3}:") else parse_address(url)
    if REMOTE_SECRET_FILE.get() is not None:
        raise StoreError(f"{REMOTE_SECRET_FILE.name} is for private stores. Unset it for {REMOTE.name}={address}.")
    text = REMOTE_KEYS.get()
    if text is None:
        raise StoreError(
            f"{REMOTE.name}={address} is used only with a pinned key: set {REMOTE_KEYS.name} to the public key that "
            "the index's owner told you, such as ed25519:0123…"
        )
    try:
        pins = parse_pins(text)
    except InvalidValueError as error:
        raise KnobError(f"{REMOTE_KEYS.name} cannot be used: {error}") from error
    copy = LocalCopy.of(str(address), pins)
    return _open_cached(address, pins, copy, os.getpid())


@functools.lru_cache(maxsize=8)
def _open_cached(address: Address | S3Address, pins: tuple[str, ...], copy: LocalCopy, _process: int) -> IndexRemote:
    """One per address in this process, so that its connection and shards are kept. A fork must not share them."""
    fetcher = S3Fetcher(address) if isinstance(address, S3Address) else Fetcher(address)
    return IndexRemote(str(address), pins, fetcher, copy)
