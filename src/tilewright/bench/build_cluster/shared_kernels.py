"""The kernels of a build in the stores: found, fetched, uploaded, and the claims of lost machines released."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tilewright.base.errors import ClusterError, RemoteError, StoreError
from tilewright.bench.cluster.actor import wait_until_open
from tilewright.building.compile_job import CompileJob
from tilewright.building.outcome import find_misfit
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.store.remote import CLAIM_TTL_S, Remote
from tilewright.building.store.tiers import Tiers

T = TypeVar("T")
# The store's own time limit for an operation plus some margin, as nodes that build are busy.
ASK_REMOTE_S = 10.0
# Keys in one request for sizes.
_SIZES_AT_ONCE = 1000


def require_shared_store(tiers: Tiers) -> Remote:
    """The shared store. Raises `ClusterError` if there is none that machines can write to."""
    if tiers.remote is None:
        raise ClusterError(
            "the nodes of a cluster exchange kernels through a shared store, and none is set. Set TILEWRIGHT_REMOTE to "
            "a folder that all machines mount (folder:/path) or to a Redis server (redis://HOST:6379): see "
            "docs/store.md"
        )
    if not tiers.writes:
        raise ClusterError(
            f"the nodes of a cluster upload kernels to the shared store, and {tiers.remote.describe()} is only read "
            "here. Set TILEWRIGHT_REMOTE to a folder or a Redis server that is written, too, and do not set "
            "TILEWRIGHT_REMOTE_MODE=read"
        )
    return tiers.remote


def call_remote(tiers: Tiers, work: Callable[[], T]) -> T:
    """Call the shared store. Raises `RemoteError` if it fails or does not answer in time."""
    remote = require_shared_store(tiers)
    return tiers.link.call(remote.describe(), work, ASK_REMOTE_S, remote.abandon)


@dataclass(frozen=True)
class SharedKernels:
    """The kernels of a build, by key, in this machine's store and in the shared one.

    With `retry`, failures in the stores count as absent.
    """

    units: Mapping[str, CompileJob]
    tiers: Tiers
    remote: Remote
    retry: bool

    def find(self, keys: Sequence[str]) -> dict[str, Artifact | Failure]:
        """Find usable entries; those of the shared store are copied to this machine. Entries of other kernels are
        removed here, and count as absent."""
        try:
            known = self.tiers.find_entries(keys)
        except StoreError as error:
            raise ClusterError(f"kernels cannot be stored on this machine: {error}") from error
        usable = {}
        for key, entry in known.items():
            if find_misfit(self.units[key], entry):
                self.tiers.local.remove(key)
            elif isinstance(entry, Artifact) or not self.retry:
                usable[key] = entry
        return usable

    def fetch(self, keys: Sequence[str]) -> dict[str, Artifact | Failure]:
        """Fetch kernels that nodes have uploaded; after a failure of the shared store, when its pause is over."""
        found = self.find(keys)
        missing = [key for key in keys if key not in found]
        if missing and not self.tiers.link.allows_calls:
            wait_until_open(self.tiers)
            found |= self.find(missing)
        return found

    def upload_missing(self, entries: Iterable[Artifact | Failure]) -> None:
        """Upload entries that only this machine has. Raises `ClusterError` if the shared store does not work."""
        left = iter(entries)
        while batch := list(itertools.islice(left, _SIZES_AT_ONCE)):
            keys = [entry.key for entry in batch]
            try:
                shared = call_remote(self.tiers, partial(self.remote.get_sizes, keys))
            except RemoteError as error:
                raise _make_store_error(error) from error
            for entry in batch:
                if entry.key not in shared:
                    self.tiers.publish(entry)

    def claim_probe(self, key: str) -> None:
        """Claim a key that shows nodes whether they have the same shared store, or renew the claim."""
        try:
            call_remote(self.tiers, partial(self.remote.claim, key, self.tiers.holder, CLAIM_TTL_S))
        except RemoteError as error:
            raise _make_store_error(error) from error

    def release_claims(self, keys: Iterable[str], holder: str) -> None:
        """Release the claims of a builder that was lost or stopped, so that no machine waits until they expire."""
        for key in keys:
            try:
                call_remote(self.tiers, partial(self.remote.release, key, holder))
            except RemoteError:
                return  # reported by the circuit breaker; the claims expire by themselves


def _make_store_error(error: RemoteError) -> ClusterError:
    return ClusterError(f"the shared store does not work on this machine: {error}")
