"""The local store with an optional remote tier: read-through, write-back, and one build for many machines.

A remote that is slow, unreachable or serves invalid blobs costs a bounded delay, never a wrong kernel. If the local
store cannot be written, a build uses a temporary store of its process.
"""

from __future__ import annotations

import atexit
import functools
import os
import random
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from tilewright.base import knobs
from tilewright.base.errors import InvalidBlobError, RemoteError, StoreError
from tilewright.base.events import Event, Notice, add_listener, emit
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.store.local import Store
from tilewright.building.store.remote import (
    CLAIM_TTL_S,
    INTERNET,
    MAX_BLOB_BYTES,
    OPERATION_TIMEOUT_S,
    READ_ONLY,
    Remote,
    RemoteLimits,
    open_remote,
    pack_entry,
    read_secret,
    unpack_entry,
)

T = TypeVar("T")
# Pause after a failure of the remote: long enough that a dead one hardly delays a build of some minutes, and short
# enough to recover.
PAUSE_S = 30.0
# The slowest remote worth using: 200 KB take 0.05 s at this rate, compiling them takes 15 s and more.
SLOWEST_BYTES_PER_S = 4e6
# Time limit of a look-up: a base, and more for each key.
LOOKUP_BASE_S, LOOKUP_PER_KEY_S = 5.0, 0.02
# Keys per request for sizes, and bytes and keys per batch of blobs, which limits memory.
_SIZES_AT_ONCE = 1000
_BATCH_BYTES, _BATCH_KEYS = 16 * 2**20, 64
_SHORTEST_NAP_S, _LONGEST_NAP_S = 0.1, 2.0
_owners: set[int] = set()  # processes with a store of their own: this one, and those that it was forked from


@dataclass
class CircuitBreaker:
    """Decides whether a remote may be called now. One per remote and process; threads may share it."""

    pause_s: float = PAUSE_S
    _quiet_until: float = float("-inf")
    _hanging: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def allows_calls(self) -> bool:
        """False during a pause, or while an earlier call still hangs."""
        with self._lock:
            self._hanging = [thread for thread in self._hanging if thread.is_alive()]
            return not self._hanging and time.monotonic() >= self._quiet_until

    def call(self, address: str, work: Callable[[], T], limit_s: float, abandon: Callable[[], None]) -> T:
        """Call `work` and return its result. Raises `RemoteError` if it fails or takes longer than `limit_s`.

        All exceptions count as failures: `work` parses untrusted data, which must not stop a build. After the time
        limit `abandon` is called, which stops `work` if that is possible.
        """
        if not self.allows_calls:
            raise RemoteError(f"{address} is not used for a while after a failure")
        attempt: _Attempt[T] = _Attempt(work)
        try:
            return attempt.wait_for_result(limit_s)
        except _OutOfTime:
            cause = f"no answer within {limit_s:.3g} s"
            self._pause(address, cause, attempt.thread)
            abandon()
            raise RemoteError(f"{address}: {cause}") from None
        except Exception as error:
            cause = str(error) if isinstance(error, (RemoteError, OSError)) else f"{type(error).__name__}: {error}"
            self._pause(address, cause, None)
            raise RemoteError(f"{address}: {cause}") from error

    def _pause(self, address: str, cause: str, hanging: threading.Thread | None) -> None:
        now = time.monotonic()
        with self._lock:
            first = now >= self._quiet_until  # several threads may fail at once; only the first reports it
            self._quiet_until = now + self.pause_s
            if hanging is not None:
                self._hanging.append(hanging)
        if first:
            emit(
                Notice(
                    f"the shared store {address} does not work ({cause}); it is not used for {self.pause_s:g} s, "
                    "and kernels are built here"
                )
            )


class _OutOfTime(Exception):  # noqa: N818  (never leaves this module)
    pass


class _Attempt(Generic[T]):
    """A call in its own thread: reading from a dead network share cannot be interrupted, only abandoned."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._answer: list[T] = []
        self._error: BaseException | None = None
        self._events: list[Event] = []  # of the work: its thread has no listeners, so the waiting thread emits them
        self.thread = threading.Thread(target=self._run, name="tilewright-remote", daemon=True)

    def wait_for_result(self, limit_s: float) -> T:
        self.thread.start()
        self.thread.join(limit_s)
        if self.thread.is_alive():
            raise _OutOfTime
        for event in self._events:
            emit(event)
        if self._error is not None:
            raise self._error
        return self._answer[0]

    def _run(self) -> None:
        try:
            with add_listener(self._events.append):
                self._answer.append(self._work())
        except BaseException as error:  # raised again in `wait_for_result`
            self._error = error


@dataclass
class InvalidBlobs:
    """Keys for which the remote served invalid blobs."""

    keys: set[str] = field(default_factory=set)


class Package(Protocol):
    """An installed package of entries: a wheel of kernels."""

    @property
    def entries(self) -> Mapping[str, object]:
        """The entries by key."""
        ...

    def describe(self) -> str:
        """Name and version for messages."""
        ...

    def read_blob(self, key: str) -> bytes:
        """Read the blob of an entry. Raises `InvalidBlobError` if it is damaged."""
        ...


@dataclass(frozen=True)
class Tiers:
    """A local store, installed packages of kernels, and an optional remote tier."""

    local: Store
    remote: Remote | None = None
    secret: bytes | None = field(default=None, repr=False)
    writes: bool = True
    link: CircuitBreaker = field(default_factory=CircuitBreaker, compare=False)
    rubbish: InvalidBlobs = field(default_factory=InvalidBlobs, compare=False)
    nonce: str = field(default_factory=lambda: secrets.token_hex(4), repr=False, compare=False)
    packages: tuple[Package, ...] = ()
    limits: RemoteLimits | None = None  # None: those of a local network

    @property
    def holder(self) -> str:
        """The holder of our claims: host, process and nonce. Not cached, since a fork is another process."""
        return f"{socket.gethostname()}:{os.getpid()}:{self.nonce}"

    def find_entries(self, keys: Sequence[str]) -> dict[str, Artifact | Failure]:
        """Find entries in the local store, then in installed packages, and the rest on the remote within a time limit.

        Entries from the remote are verified and stored locally before they are returned. Raises `StoreError` only for
        the local store.
        """
        found = {key: entry for key in keys if (entry := self.local.get(key)) is not None}
        missing = [key for key in dict.fromkeys(keys) if key not in found]
        if self.packages and missing:
            found |= self._take_packaged(missing)
            missing = [key for key in missing if key not in found]
        if self.remote is None or not missing:
            return found
        limits = self._get_limits()
        budget = limits.lookup_base_s + limits.lookup_per_key_s * len(missing)
        try:
            for blobs, seconds in self._fetch_blobs(self.remote, missing):
                found.update(self._keep_valid(blobs))
                budget -= seconds
                if budget < 0:
                    self._report_slowness(sum(key not in found for key in missing), len(missing))
                    break
        except RemoteError:
            return found  # reported by the circuit breaker
        return found

    def take_packaged(self, package: Package, key: str) -> Artifact | Failure | None:
        """Copy an entry of a package into the local store, after all checks. None if it is damaged, with a notice.

        If the local store cannot be written, the copy is kept for this process only.
        """
        try:
            content = unpack_entry(package.read_blob(key), key)
        except InvalidBlobError as error:
            emit(Notice(f"{package.describe()} has a damaged entry {key} ({error}); it counts as absent"))
            return None
        try:
            return self.local.put_content(key, content.kind, content.files, content.facts)
        except StoreError as error:
            emit(Notice(f"{error} The kernel is kept for this process only."))
            return get_process_store().put_content(key, content.kind, content.files, content.facts)

    def _take_packaged(self, keys: Sequence[str]) -> dict[str, Artifact | Failure]:
        owners = {key: package for package in reversed(self.packages) for key in keys if key in package.entries}
        taken = {key: self.take_packaged(package, key) for key, package in owners.items()}
        return {key: entry for key, entry in taken.items() if entry is not None}

    def publish(self, entry: Artifact | Failure) -> None:
        """Push an entry to the remote. Failures of the remote are reported, never raised."""
        remote = self.remote
        if remote is None or not self.writes or not self.link.allows_calls:
            return
        blob = pack_entry(entry, self.secret)
        if len(blob) > MAX_BLOB_BYTES:
            emit(Notice(f"{entry.key} has {len(blob):,} bytes, over {MAX_BLOB_BYTES:,}: it is not shared"))
            return
        try:
            self._call_remote(lambda: remote.push(entry.key, blob), len(blob))
        except RemoteError:
            return  # reported by the circuit breaker

    def claim(self, key: str) -> bool:
        """Claim `key`; return whether this process should build it. Always True without a working, writable remote."""
        remote = self.remote
        if remote is None or not self.writes:
            return True
        try:
            return self._call_remote(lambda: remote.claim(key, self.holder, CLAIM_TTL_S))
        except RemoteError:
            return True  # reported by the circuit breaker; without a remote, a kernel may be built twice

    def release(self, key: str) -> None:
        """Release a claim, after `publish` or after a failed build."""
        remote = self.remote
        if remote is None or not self.writes:
            return
        try:
            self._call_remote(lambda: remote.release(key, self.holder))
        except RemoteError:
            return  # reported by the circuit breaker; the claim expires by itself

    def wait_for(self, key: str, timeout_s: float) -> Artifact | Failure | None:
        """Wait for an entry that another machine builds. None if its claim ends without an entry, or on time-out."""
        remote = self.remote
        if remote is None or not self.writes:  # without claims there is nobody to wait for
            return self.find_entries([key]).get(key)
        deadline = time.monotonic() + timeout_s
        nap = _SHORTEST_NAP_S
        while True:
            try:
                # Checked before the look-up: a holder publishes first and then releases.
                claimed = self._call_remote(lambda: remote.is_claimed(key))
            except RemoteError:
                claimed = False  # reported by the circuit breaker
            entry = self.find_entries([key]).get(key)
            left = deadline - time.monotonic()
            if entry is not None or not claimed or left <= 0:
                return entry
            # Random, so that a thousand machines that wait for one key do not call at the same time.
            time.sleep(min(left, nap * random.uniform(0.5, 1.5)))
            nap = min(nap * 1.5, _LONGEST_NAP_S)

    def _fetch_blobs(self, remote: Remote, keys: Sequence[str]) -> Iterator[tuple[Mapping[str, bytes], float]]:
        """Yield the existing blobs of `keys` in batches, each with the seconds that the remote took."""
        step = self._get_limits().sizes_at_once
        for start in range(0, len(keys), step):
            asked = keys[start : start + step]
            sizes = self._call_remote(functools.partial(remote.get_sizes, asked))
            for batch in self._split_batches([key for key in asked if key in sizes], sizes):
                started = time.monotonic()
                blobs = self._call_remote(functools.partial(remote.fetch, batch), sum(batch.values()))
                yield blobs, time.monotonic() - started

    def _split_batches(self, keys: Sequence[str], sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
        batch: dict[str, int] = {}
        total = 0
        for key in keys:
            size = sizes[key]
            if size > MAX_BLOB_BYTES:
                self._report_invalid(key, f"it has {size:,} bytes, and {MAX_BLOB_BYTES:,} is the limit")
                continue
            if batch and (total + size > _BATCH_BYTES or len(batch) == _BATCH_KEYS):
                yield batch
                batch, total = {}, 0
            batch[key] = size
            total += size
        if batch:
            yield batch

    def _keep_valid(self, blobs: Mapping[str, bytes]) -> Mapping[str, Artifact | Failure]:
        """Store valid blobs in the local store."""
        kept: dict[str, Artifact | Failure] = {}
        for key, blob in blobs.items():
            try:
                content = unpack_entry(blob, key, self.secret)
            except InvalidBlobError as error:
                self._report_invalid(key, str(error))
                continue
            kept[key] = self.local.put_content(key, content.kind, content.files, content.facts)
        return kept

    def _call_remote(self, work: Callable[[], T], size: int = 0) -> T:
        assert self.remote is not None
        limits = self._get_limits()
        limit_s = limits.operation_s + size / limits.bytes_per_s
        return self.link.call(self.remote.describe(), work, limit_s, self.remote.abandon)

    def _get_limits(self) -> RemoteLimits:
        local = (OPERATION_TIMEOUT_S, SLOWEST_BYTES_PER_S, LOOKUP_BASE_S, LOOKUP_PER_KEY_S, _SIZES_AT_ONCE)
        return self.limits or RemoteLimits(*local)

    def _report_invalid(self, key: str, what: str) -> None:
        if key in self.rubbish.keys or self.remote is None:
            return
        self.rubbish.keys.add(key)
        emit(Notice(f"{self.remote.describe()} serves an invalid blob for {key} ({what}); it counts as absent"))

    def _report_slowness(self, rest: int, asked: int) -> None:
        if self.remote is not None and rest:
            emit(Notice(f"{self.remote.describe()} is slow: {rest:,} of {asked:,} keys were not looked up completely"))


def open_tiers() -> Tiers:
    """Open the tiers that the environment names. The remote is not contacted before it is needed."""
    from tilewright.building.prebuilt.installed import list_wheels  # noqa: PLC0415  (looks through all packages)

    url, secret_file = knobs.REMOTE.get(), knobs.REMOTE_SECRET_FILE.get()
    if url is None:
        return Tiers(Store(), packages=list_wheels())
    remote = open_remote(url)
    if url.partition(":")[0] in READ_ONLY:
        if knobs.REMOTE_MODE.get() == knobs.READ_WRITE:
            raise StoreError(f"{knobs.REMOTE.name}={remote.describe()} is an index, and an index is only read.")
        link = _get_breaker(url)
        return Tiers(Store(), remote, writes=False, link=link, packages=list_wheels(), limits=INTERNET)
    secret = None if secret_file is None else read_secret(secret_file)
    return Tiers(Store(), remote, secret, knobs.is_remote_writable(), _get_breaker(url), packages=list_wheels())


@functools.lru_cache(maxsize=8)
def _get_breaker(url: str) -> CircuitBreaker:  # noqa: ARG001  (cached by this argument)
    """One circuit breaker per URL in this process: if a remote failed in one build, the next one pauses too."""
    return CircuitBreaker()


def get_process_store() -> Store:
    """Return a temporary store of this process, for when the user's store cannot be written."""
    return _create_process_store(os.getpid())


def has_process_store() -> bool:
    """Return whether this process has created a temporary store."""
    return os.getpid() in _owners


@functools.cache
def _create_process_store(owner: int) -> Store:
    root = Path(tempfile.mkdtemp(prefix="tilewright-"))
    atexit.register(_remove_process_store, root, owner)
    _owners.add(owner)
    return Store(root)


def _remove_process_store(root: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked copy of this process must not remove its parent's store
        shutil.rmtree(root, ignore_errors=True)
