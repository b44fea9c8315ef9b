"""Remote tiers: what a place that machines share must be able to do, and finding one by its address."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tilewright.base.errors import InvalidValueError, StoreError, choose
from tilewright.base.knobs import REMOTE, REMOTE_SECRET_FILE

# On a local network a connection takes a millisecond. Half a second more is noticed by who waits for a kernel.
CONNECT_TIMEOUT_S = 0.5
# Compiling the kernel instead takes 15 s or more; a remote slower than this saves little.
OPERATION_TIMEOUT_S = 2.0
# A compile takes 15 to 40 s of CPU on a machine that may be busy. A claim that expires early only costs a second build.
# No claim counts for longer, whatever it says of itself: who still builds claims again.
CLAIM_TTL_S = 120.0

FOLDER = "folder"
SCHEMES = (FOLDER, "redis", "rediss")

# RFC 2104 advises keys as long as the hash; half of SHA-256's length still cannot be guessed.
_SHORTEST_SECRET = 16


class Remote(Protocol):
    """A place that machines share. Every call may raise `RemoteError` or `OSError`; bytes are never trusted."""

    def describe(self) -> str:
        """The address, for messages, without a password."""
        ...

    def sizes(self, keys: Sequence[str]) -> Mapping[str, int]:
        """How many bytes each of the keys has there; absent ones are left out."""
        ...

    def fetch(self, sizes: Mapping[str, int]) -> Mapping[str, bytes]:
        """The blobs of keys whose sizes were told. One that is gone, or larger by now, is left out."""
        ...

    def push(self, key: str, blob: bytes) -> None:
        """Put a blob there, whole or not at all, in the place of an earlier one."""
        ...

    def claim(self, key: str, holder: str, ttl_s: float) -> bool:
        """Say that `holder` builds `key`; False when another does. The same holder prolongs its claim.

        `ttl_s` is above 0 and at most `CLAIM_TTL_S`.
        """
        ...

    def claimed(self, key: str) -> bool:
        """Whether anybody's claim on `key` is in force."""
        ...

    def release(self, key: str, holder: str) -> None:
        """Give up a claim of `holder`; those of others stay."""
        ...

    def abandon(self) -> None:
        """End the calls of other threads where that is possible: nobody waits for them any more."""
        ...


def checked_ttl(ttl_s: float) -> float:
    """`ttl_s` if a claim may have it."""
    if not 0 < ttl_s <= CLAIM_TTL_S:
        raise InvalidValueError(f"a claim cannot count for {ttl_s:g} s: above 0 and at most {CLAIM_TTL_S:g} s.")
    return ttl_s


def remote_of(url: str) -> Remote:
    """The remote at `folder:/path`, an absolute path, or `redis://host:port/db`."""
    if url.startswith("/"):
        url = f"{FOLDER}:{url}"
    scheme = choose("scheme of a remote store", url.partition(":")[0], SCHEMES)
    if scheme == FOLDER:
        from tilewright.building.store.remote_folder import FolderRemote  # noqa: PLC0415  (only the one in use)

        path = Path(url.partition(":")[2])
        if not path.is_absolute():
            raise StoreError(f"{REMOTE.name}: {url!r} has no absolute path. Write {FOLDER}:/path.")
        return FolderRemote(path)
    from tilewright.building.store.remote_redis import redis_remote  # noqa: PLC0415  (only the one in use)

    return redis_remote(url)


def read_secret(path: Path) -> bytes:
    """The bytes that sign blobs. A file that others may read is refused."""
    advice = f"Make it with: head -c 32 /dev/urandom > {path} && chmod 600 {path}"
    try:
        with path.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            secret = stream.read()
    except OSError as error:
        raise StoreError(f"{REMOTE_SECRET_FILE.name}={path} cannot be read: {error.strerror}. {advice}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise StoreError(
            f"{REMOTE_SECRET_FILE.name}={path} has mode {stat.S_IMODE(mode):04o}: others than its owner may use it. "
            f"Run: chmod 600 {path}"
        )
    if len(secret) < _SHORTEST_SECRET:
        raise StoreError(
            f"{REMOTE_SECRET_FILE.name}={path} has {len(secret)} bytes, and at least {_SHORTEST_SECRET} are needed. "
            f"{advice}"
        )
    return secret
