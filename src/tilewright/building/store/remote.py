"""Remote tiers: the protocol of stores that machines share, and opening one by its URL."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tilewright.base.errors import InvalidValueError, StoreError, choose
from tilewright.base.knobs import REMOTE, REMOTE_SECRET_FILE

# On a local network a connection takes a millisecond. A longer delay would annoy users who wait for a kernel.
CONNECT_TIMEOUT_S = 0.5
# Compiling the kernel instead takes 15 s or more; a remote slower than this saves little.
OPERATION_TIMEOUT_S = 2.0
# A compile takes 15 to 40 s of CPU on a machine that may be busy. A claim that expires early only costs a second build.
# Longer claims are cut to this: a machine that still builds renews its claim.
CLAIM_TTL_S = 120.0

FOLDER = "folder"
SCHEMES = (FOLDER, "redis", "rediss")

# RFC 2104 recommends keys as long as the hash; half of SHA-256's length still cannot be guessed.
_SHORTEST_SECRET = 16


class Remote(Protocol):
    """A store that machines share. Every call may raise `RemoteError` or `OSError`; its data is never trusted."""

    def describe(self) -> str:
        """The URL without a password, for messages."""
        ...

    def get_sizes(self, keys: Sequence[str]) -> Mapping[str, int]:
        """Return the blob sizes of keys; absent keys are left out."""
        ...

    def fetch(self, sizes: Mapping[str, int]) -> Mapping[str, bytes]:
        """Fetch the blobs of keys with these sizes. Blobs that are gone or have grown are left out."""
        ...

    def push(self, key: str, blob: bytes) -> None:
        """Store a blob atomically, replacing an earlier one."""
        ...

    def claim(self, key: str, holder: str, ttl_s: float) -> bool:
        """Claim `key` for `holder`; False if another holder has it. The same holder renews its claim.

        `ttl_s` is above 0 and at most `CLAIM_TTL_S`.
        """
        ...

    def is_claimed(self, key: str) -> bool:
        """Return whether any holder has a valid claim on `key`."""
        ...

    def release(self, key: str, holder: str) -> None:
        """Release a claim of `holder`; claims of others stay."""
        ...

    def abandon(self) -> None:
        """Stop the calls of other threads if that is possible: nobody waits for them any more."""
        ...


def check_ttl(ttl_s: float) -> float:
    """Return `ttl_s` if it is valid."""
    if not 0 < ttl_s <= CLAIM_TTL_S:
        raise InvalidValueError(f"a claim cannot last {ttl_s:g} s: it must be above 0 and at most {CLAIM_TTL_S:g} s.")
    return ttl_s


def open_remote(url: str) -> Remote:
    """Open the remote at `folder:/path`, an absolute path, or `redis://host:port/db`."""
    if url.startswith("/"):
        url = f"{FOLDER}:{url}"
    scheme = choose("scheme of a remote store", url.partition(":")[0], SCHEMES)
    if scheme == FOLDER:
        from tilewright.building.store.remote_folder import FolderRemote  # noqa: PLC0415  (only the one in use)

        path = Path(url.partition(":")[2])
        if not path.is_absolute():
            raise StoreError(f"{REMOTE.name}: {url!r} has no absolute path. Write {FOLDER}:/path.")
        return FolderRemote(path)
    from tilewright.building.store.remote_redis import open_redis  # noqa: PLC0415  (only the one in use)

    return open_redis(url)


def read_secret(path: Path) -> bytes:
    """Read the secret that signs blobs. A file that other users may read is rejected."""
    advice = f"Create it with: head -c 32 /dev/urandom > {path} && chmod 600 {path}"
    try:
        with path.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            secret = stream.read()
    except OSError as error:
        raise StoreError(f"{REMOTE_SECRET_FILE.name}={path} cannot be read: {error.strerror}. {advice}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise StoreError(
            f"{REMOTE_SECRET_FILE.name}={path} has mode {stat.S_IMODE(mode):04o}: other users may access it. "
            f"Run: chmod 600 {path}"
        )
    if len(secret) < _SHORTEST_SECRET:
        raise StoreError(
            f"{REMOTE_SECRET_FILE.name}={path} has {len(secret)} bytes, and at least {_SHORTEST_SECRET} are needed. "
            f"{advice}"
        )
    return secret
