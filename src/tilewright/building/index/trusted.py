"""Which files of a host may be used: The Update Framework decides, by python-tuf, behind our limits on bytes and time.

The trusted metadata is kept in a folder of this machine. Every answer of a host is verified from there on, so a host,
or a thief of keys that were replaced, cannot lead back to an earlier state.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from tuf.api.exceptions import (
    DownloadError,
    DownloadHTTPError,
    ExpiredMetadataError,
    LengthOrHashMismatchError,
    RepositoryError,
)
from tuf.api.metadata import Metadata, Root, TargetFile
from tuf.ngclient import FetcherInterface, Updater, UpdaterConfig

from tilewright.base import knobs
from tilewright.base.errors import InvalidBlobError, InvalidValueError, RemoteError
from tilewright.base.shared_files import hold_lock, require_own
from tilewright.building.index.transport import AbsentError
from tilewright.building.store.files import check_key

METADATA, BLOBS = "metadata", "blobs"
TIMESTAMP_FILE = "timestamp.json"
# The largest snapshot lists 16,384 bins in 2.2 MB, and the largest bin that `publish` makes has a tenth of that.
MAX_METADATA_BYTES = 4 * 2**20
# Each bin that was looked at stays in memory: 250 KiB for one of a million keys. After so many look-ups they are read
# from the copy again.
_MAX_LOOKUPS = 256
_LONGEST_TEXT = 200
# Its time of modification is that of the last answer of the host.
_CHECKED = "checked"
_CONFIG = UpdaterConfig(snapshot_max_length=MAX_METADATA_BYTES, targets_max_length=MAX_METADATA_BYTES)
# Another process that asks the host may take as long as a slow host makes it.
_LOCK_S = 20.0


class Transport(Protocol):
    """Gets files of a host, within limits."""

    def get(self, name: str, most: int, *, exact: bool = False) -> bytes:
        """Get a file of at most `most` bytes, or exactly as many. Raises `RemoteError`, also if it is absent."""
        ...


def get_blob_path(key: str) -> str:
    """The target path of a key, which its folder keeps small."""
    return f"{check_key(key)[:2]}/{key}"


def check_root(raw: bytes) -> None:
    """Raise `InvalidValueError` unless bytes are root metadata that its own keys signed."""
    try:
        root = Metadata[Root].from_bytes(raw)
        root.signed.verify_delegate(Root.type, root.signed_bytes, root.signatures)
    except RepositoryError as error:
        raise InvalidValueError(f"it is not root metadata of The Update Framework: {error}") from error


class _Fetcher(FetcherInterface):
    """Our transport for `Updater`. While `recent`, the copy stands for the newest files of the host."""

    def __init__(self, transport: Transport, copy: Path) -> None:
        self.transport = transport
        self.copy = copy
        self.recent = False
        self.name = METADATA  # the last file, for messages

    def _fetch(self, url: str) -> Iterator[bytes]:
        yield self.download_bytes(url, MAX_METADATA_BYTES)

    def download_bytes(self, url: str, max_length: int) -> bytes:
        self.name = url
        if self.recent and url == f"{METADATA}/{TIMESTAMP_FILE}":
            return (self.copy / TIMESTAMP_FILE).read_bytes()
        if self.recent and url.endswith(f".{Root.type}.json"):
            raise DownloadHTTPError(f"{url}: the copy does not have it", 404)
        try:
            return self.transport.get(url, min(max_length, MAX_METADATA_BYTES))
        except AbsentError as error:
            raise DownloadHTTPError(str(error), 404) from error


class TrustedIndex:
    """The index of a host, from a pinned root on. `copy` is the folder of its trusted metadata on this machine."""

    def __init__(self, root: bytes, copy: Path, transport: Transport, recheck_s: float) -> None:
        self.root = root
        self.copy = copy
        self.transport = transport
        self.recheck_s = recheck_s
        self._fetcher = _Fetcher(transport, copy)
        self._updater: Updater | None = None
        self._checked = float("-inf")
        self._lookups = 0
        self._lock = threading.Lock()

    def find(self, keys: Sequence[str]) -> dict[str, TargetFile]:
        """Find keys; those that the host does not list are left out. Raises `RemoteError` if it cannot be trusted."""
        with self._lock, self._convert_refusals():
            if self._updater is None or not self._is_recent(self._checked):
                self._updater, self._lookups = self._open(), 0
            targets = {key: self._look_up(key) for key in keys}
        return {key: target for key, target in targets.items() if target is not None}

    def fetch(self, key: str) -> bytes:
        """Fetch the blob of a key that `find` has found. Raises `InvalidBlobError` if it is not the listed one."""
        with self._lock, self._convert_refusals():
            target = self._look_up(key)
        if target is None:
            raise InvalidBlobError("the index does not list it any more")
        blob = self.transport.get(f"{BLOBS}/{target.get_prefixed_paths()[0]}", target.length, exact=True)
        try:
            target.verify_length_and_hashes(blob)
        except LengthOrHashMismatchError as error:
            raise InvalidBlobError("it does not have the digest that the signed index lists") from error
        return blob

    def _look_up(self, key: str) -> TargetFile | None:
        if self._updater is None or self._lookups >= _MAX_LOOKUPS:
            self._updater, self._lookups = self._open(), 0
        self._lookups += 1
        return self._updater.get_targetinfo(get_blob_path(key))

    def _open(self) -> Updater:
        """Load the newest trusted metadata. The host is asked if the last answer is old."""
        require_own(self.copy, knobs.CACHE_DIR.name)
        self.copy.mkdir(mode=0o700, parents=True, exist_ok=True)
        with hold_lock(self.copy / ".lock", _LOCK_S) as held:
            if not held:
                raise RemoteError(f"another process has asked the host for more than {_LOCK_S:g} s")
            self._checked = self._read_checked()
            if self._is_recent(self._checked):
                with suppress(RepositoryError, OSError):  # the copy is damaged or has expired: the host is asked
                    return self._refresh(recent=True)
            updater = self._refresh(recent=False)
            (self.copy / _CHECKED).touch()
            self._checked = self._read_checked()
            return updater

    def _refresh(self, *, recent: bool) -> Updater:
        self._fetcher.recent = recent
        updater = Updater(str(self.copy), METADATA, fetcher=self._fetcher, config=_CONFIG, bootstrap=self.root)
        updater.refresh()
        return updater

    def _read_checked(self) -> float:
        """When the host answered last, in seconds since 1970."""
        try:
            return (self.copy / _CHECKED).stat().st_mtime
        except FileNotFoundError:
            return float("-inf")

    def _is_recent(self, checked: float) -> bool:
        return 0 <= time.time() - checked < self.recheck_s

    @contextmanager
    def _convert_refusals(self) -> Iterator[None]:
        """Convert errors of python-tuf and of the copy to `RemoteError`."""
        try:
            yield
        except OSError as error:
            raise RemoteError(
                f"the copy of the index in {self.copy} cannot be used: {error.strerror or error}"
            ) from error
        except DownloadError as error:  # a file that is absent
            raise RemoteError(f"{error}. Its owner must publish it again, with `tilewright index publish`") from error
        except RepositoryError as error:
            cause = str(error)[:_LONGEST_TEXT] or type(error).__name__
            if isinstance(error, ExpiredMetadataError):
                cause += ": its owner must sign it anew, or this machine's clock is wrong"
            raise RemoteError(f"{self._fetcher.name} is refused: {cause}") from error
