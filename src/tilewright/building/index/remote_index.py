"""The read-only remote tier behind `https://` and `s3://`: a signed index on a static host or in a bucket."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.base import knobs
from tilewright.base.digest import digest_text
from tilewright.base.documents import read_bytes
from tilewright.base.errors import (
    FileFormatError,
    InvalidBlobError,
    InvalidValueError,
    KnobError,
    RemoteError,
    StoreError,
)
from tilewright.base.events import Notice, emit
from tilewright.base.knobs import REMOTE, REMOTE_ROOT, REMOTE_SECRET_FILE
from tilewright.building.index.s3_transport import S3, S3Address, S3Fetcher, parse_s3_address
from tilewright.building.index.transport import AbsentError, Address, Fetcher, RetryingFetcher, parse_address
from tilewright.building.index.trusted import MAX_METADATA_BYTES, TrustedIndex, check_root
from tilewright.building.store.remote import MAX_BLOB_BYTES

_READ_ONLY = "an index is only read"
# How long a verified index is used before the host is asked again: a new kernel is found an hour later at most.
RECHECK_S = 3600.0


@dataclass
class IndexRemote:
    """A signed index on a host. Nothing is used that the pinned root does not vouch for. Read-only."""

    url: str
    index: TrustedIndex
    fetcher: RetryingFetcher
    _refused: set[str] = field(default_factory=set)

    def describe(self) -> str:
        return self.url

    def get_sizes(self, keys: Sequence[str]) -> Mapping[str, int]:
        targets = self.index.find(keys)
        return {key: target.length for key, target in targets.items() if 0 < target.length <= MAX_BLOB_BYTES}

    def fetch(self, sizes: Mapping[str, int]) -> Mapping[str, bytes]:
        found, refused = {}, {}
        for key in sizes:
            try:
                found[key] = self.index.fetch(key)
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


def open_index(url: str) -> IndexRemote:
    """Open the index at an address, with the pinned root of the environment. Nothing is requested yet."""
    address: Address | S3Address = parse_s3_address(url) if url.startswith(f"{S3}:") else parse_address(url)
    if REMOTE_SECRET_FILE.get() is not None:
        raise StoreError(f"{REMOTE_SECRET_FILE.name} is for private stores. Unset it for {REMOTE.name}={address}.")
    path = REMOTE_ROOT.get()
    if path is None:
        raise StoreError(
            f"{REMOTE.name}={address} is used only with a pinned root: set {REMOTE_ROOT.name} to the file that the "
            "index's owner gave you, such as 1.root.json"
        )
    try:
        root = read_bytes(path, MAX_METADATA_BYTES)
        check_root(root)
    except (FileFormatError, InvalidValueError) as error:
        raise KnobError(f"{REMOTE_ROOT.name}={path} cannot be used: {error}") from error
    return _open_cached(address, root, os.getpid())


@functools.lru_cache(maxsize=8)
def _open_cached(address: Address | S3Address, root: bytes, _process: int) -> IndexRemote:
    """One per address in this process, so that its connection and metadata are kept. A fork must not share them."""
    fetcher = S3Fetcher(address) if isinstance(address, S3Address) else Fetcher(address)
    copy = knobs.cache_dir() / "index" / digest_text(str(address))
    return IndexRemote(str(address), TrustedIndex(root, copy, fetcher, RECHECK_S), fetcher)
