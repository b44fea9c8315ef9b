"""Remote tiers: the protocol of stores that machines share, opening one by its URL, and entries as bytes for them.

Remotes are not trusted: everything in a blob is checked before anything is used. A blob consists of

magic                 8 bytes, with the format's version
flags                 1 byte: 1 when a signature follows
length of the core    4 bytes, little-endian
core                  canonical JSON: schema, key, kind, files with size and blake2b, facts
contents              the files, in order of their names
digest                32 bytes: blake2b over key and everything above
signature             32 bytes, if flagged: HMAC-SHA256 over key and everything above
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tilewright.base.errors import CorruptError, InvalidBlobError, InvalidValueError, StoreError, choose
from tilewright.base.knobs import REMOTE, REMOTE_SECRET_FILE
from tilewright.building.store.artifact import Artifact, Failure, FileDigest
from tilewright.building.store.files import check_key
from tilewright.building.store.manifest import (
    ARTIFACT,
    FAILURE,
    LOG,
    MAX_MANIFEST_BYTES,
    Core,
    Kind,
    decode_log,
    encode_log,
    format_core,
    parse_core,
    parse_untrusted,
)

# On a local network a connection takes a millisecond. A longer delay would annoy users who wait for a kernel.
CONNECT_TIMEOUT_S = 0.5
# Compiling the kernel instead takes 15 s or more; a remote slower than this saves little.
OPERATION_TIMEOUT_S = 2.0
# A compile takes 15 to 40 s of CPU on a machine that may be busy. A claim that expires early only costs a second build.
# Longer claims are cut to this: a machine that still builds renews its claim.
CLAIM_TTL_S = 120.0
FOLDER = "folder"
READ_ONLY = ("https", "http", "s3")  # a signed index
SCHEMES = (FOLDER, "redis", "rediss", *READ_ONLY)
# RFC 2104 recommends keys as long as the hash; half of SHA-256's length still cannot be guessed.
_SHORTEST_SECRET = 16

MAGIC = b"TWENTRY1"
# A kernel's shared object has 0.1 to 10 MB. Larger entries are not shared.
MAX_BLOB_BYTES = 64 * 2**20
_HEAD = struct.Struct("<8sBI")
_SIGNED = 1
_DIGEST_BYTES = 32
_SIGNATURE_BYTES = 32


@dataclass(frozen=True)
class RemoteLimits:
    """Time limits of a remote, and the number of keys in one request for sizes.

    An operation may take `operation_s`, and longer for its bytes. The look-up of some keys may take `lookup_base_s`,
    and longer for each key.
    """

    operation_s: float
    bytes_per_s: float
    lookup_base_s: float
    lookup_per_key_s: float
    sizes_at_once: int


# An index is far away, and each shard of it is a request: 64 take 6 s at 100 ms each. 200 KB at this rate take 0.8 s.
INTERNET = RemoteLimits(10.0, 250e3, 30.0, 1.0, 64)


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
    """Open the remote at `folder:/path`, an absolute path, `redis://host:port/db`, or the index at `https://host` or
    `s3://bucket`."""
    if url.startswith("/"):
        url = f"{FOLDER}:{url}"
    scheme = choose("scheme of a remote store", url.partition(":")[0], SCHEMES)
    if scheme == FOLDER:
        from tilewright.building.store.remote_folder import FolderRemote  # noqa: PLC0415  (only the one in use)

        path = Path(url.partition(":")[2])
        if not path.is_absolute():
            raise StoreError(f"{REMOTE.name}: {url!r} has no absolute path. Write {FOLDER}:/path.")
        return FolderRemote(path)
    if scheme in READ_ONLY:
        from tilewright.building.index.remote_index import open_index  # noqa: PLC0415  (only the one in use)

        return open_index(url)
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


@dataclass(frozen=True)
class BlobContent:
    """An entry from a blob: verified, not yet in a local store."""

    key: str
    kind: Kind
    files: Mapping[str, bytes]
    facts: Mapping[str, Any]


def pack_entry(entry: Artifact | Failure, secret: bytes | None = None) -> bytes:
    """Pack an entry into a blob, signed if there is a secret. Raises `CorruptError` if the local files are damaged."""
    files = _read_files(entry)
    digests = {name: FileDigest(len(content), _compute_digest(content)) for name, content in files.items()}
    kind = ARTIFACT if isinstance(entry, Artifact) else FAILURE
    core = format_core(Core(entry.key, kind, digests, entry.facts)).encode()
    head = _HEAD.pack(MAGIC, 0 if secret is None else _SIGNED, len(core))
    body = b"".join((head, core, *(files[name] for name in sorted(files))))
    sealed = body + _compute_seal(entry.key, body)
    return sealed if secret is None else sealed + _compute_signature(entry.key, sealed, secret)


def unpack_entry(blob: bytes, key: str, secret: bytes | None = None) -> BlobContent:
    """Unpack the entry `key` from a blob. Raises `InvalidBlobError` if the blob is invalid in any way.

    With a secret, blobs that are unsigned or signed with another secret are rejected.
    """
    check_key(key)
    try:
        return parse_untrusted("the blob", lambda: _parse_blob(blob, key, secret))
    except InvalidValueError as error:
        raise InvalidBlobError(str(error)) from error


def _parse_blob(blob: bytes, key: str, secret: bytes | None) -> BlobContent:
    if len(blob) > MAX_BLOB_BYTES:
        raise InvalidBlobError(f"the blob has {len(blob):,} bytes, and {MAX_BLOB_BYTES:,} is the limit")
    if len(blob) < _HEAD.size + _DIGEST_BYTES:
        raise InvalidBlobError(f"the blob has {len(blob):,} bytes, which is too short")
    magic, flags, core_size = _HEAD.unpack_from(blob)
    if magic != MAGIC or flags not in (0, _SIGNED):
        raise InvalidBlobError("the blob does not start with the header of this version")
    sealed = _check_signature(blob, key, signed=flags == _SIGNED, secret=secret)
    body, seal = sealed[:-_DIGEST_BYTES], sealed[-_DIGEST_BYTES:]
    if not hmac.compare_digest(_compute_seal(key, body), bytes(seal)):
        raise InvalidBlobError("the blob's digest is not that of its bytes and key")
    return _parse_body(body, key, core_size)


def _check_signature(blob: bytes, key: str, *, signed: bool, secret: bytes | None) -> memoryview:
    """Return the blob without its signature, which is checked if there is a secret."""
    view = memoryview(blob)
    if not signed:
        if secret is not None:
            raise InvalidBlobError("the blob is not signed, and a secret is set")
        return view
    if len(blob) < _HEAD.size + _DIGEST_BYTES + _SIGNATURE_BYTES:
        raise InvalidBlobError("the blob is cut off in its signature")
    sealed, signature = view[:-_SIGNATURE_BYTES], view[-_SIGNATURE_BYTES:]
    if secret is not None and not hmac.compare_digest(_compute_signature(key, sealed, secret), bytes(signature)):
        raise InvalidBlobError("the blob is signed with another secret, or was changed")
    return sealed


def _parse_body(body: memoryview, key: str, core_size: int) -> BlobContent:
    # Sizes are compared with the received bytes, so a wrong header cannot cause large allocations.
    start = _HEAD.size + core_size
    if core_size > MAX_MANIFEST_BYTES or start > len(body):
        raise InvalidBlobError(f"the blob's header announces a core of {core_size:,} bytes, which is too long")
    core = parse_core(bytes(body[_HEAD.size : start]), key)
    total = sum(file.size for file in core.files.values())
    if total != len(body) - start:
        raise InvalidBlobError(f"the blob has {len(body) - start:,} bytes of files, but its core lists {total:,}")
    files: dict[str, bytes] = {}
    for name, file in core.files.items():  # sorted by name: see parse_core
        files[name] = bytes(body[start : start + file.size])
        if _compute_digest(files[name]) != file.blake2b:
            raise InvalidBlobError(f"{name} in the blob does not have the digest that its core lists")
        start += file.size
    if core.kind == FAILURE:
        decode_log(files[LOG])  # a log that cannot be decoded must not get into a store
    return BlobContent(key, core.kind, files, core.facts)


def _read_files(entry: Artifact | Failure) -> dict[str, bytes]:
    if isinstance(entry, Failure):
        return {LOG: encode_log(entry.log)}
    files: dict[str, bytes] = {}
    for name, expected in entry.files.items():
        files[name] = entry.verify_file(name).read_bytes()
        if _compute_digest(files[name]) != expected.blake2b:
            raise CorruptError(f"{entry.folder / name} changed while it was read. Build it again.")
    return files


def _compute_digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _compute_seal(key: str, body: bytes | memoryview) -> bytes:
    hasher = hashlib.blake2b(key.encode(), digest_size=_DIGEST_BYTES, person=b"tilewright-blob")
    hasher.update(body)
    return hasher.digest()


def _compute_signature(key: str, sealed: bytes | memoryview, secret: bytes) -> bytes:
    signer = hmac.new(secret, key.encode(), "sha256")
    signer.update(sealed)
    return signer.digest()
