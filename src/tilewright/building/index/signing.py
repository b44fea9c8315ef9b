"""Ed25519 keys and signed documents.

A signed document is JSON with the payload as a text and signatures over exactly that text, so nothing depends on how
JSON is formatted. What is signed begins with the document's role: a signature for one role is worthless for another.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.digest import digest_text, to_canonical_json
from tilewright.base.documents import parse_json
from tilewright.base.errors import InvalidValueError, StoreError
from tilewright.base.extras import require_packages

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PREFIX = "ed25519:"
_CONTEXT = "tilewright-index-1"
_PUBLIC = re.compile(r"[0-9a-f]{64}")
_SIGNATURE = re.compile(r"[0-9a-f]{128}")
_SECRET_BYTES = 32
# The most signatures that are looked at, so that a document cannot cost more than a few milliseconds.
_MOST_SIGNATURES = 16


@dataclass(frozen=True)
class SignedDocument:
    """A payload and its signatures, by public key as hex digits. Nothing is verified yet."""

    payload: str
    signatures: Mapping[str, str]

    @property
    def digest(self) -> str:
        """The digest of the payload."""
        return digest_text(self.payload)

    def to_json(self) -> dict[str, Any]:
        return {"payload": self.payload, "signatures": dict(self.signatures)}

    def count_valid(self, role: str, keys: Collection[str]) -> int:
        """The number of `keys` that have signed the payload in this role."""
        return sum(
            verify_signature(key, self.signatures[key], role, self.payload) for key in set(keys) & set(self.signatures)
        )


def read_signed(document: Any) -> SignedDocument:
    """Read a signed document from parsed JSON. Raises `InvalidValueError`."""
    if not isinstance(document, dict) or set(document) != {"payload", "signatures"}:
        raise InvalidValueError("is not a signed document: it must have payload and signatures")
    payload, signatures = document["payload"], document["signatures"]
    if not isinstance(payload, str) or not isinstance(signatures, dict):
        raise InvalidValueError("is not a signed document: payload must be a text, signatures a table")
    if len(signatures) > _MOST_SIGNATURES:
        raise InvalidValueError(f"has {len(signatures):,} signatures, and {_MOST_SIGNATURES} is the limit")
    for key, signature in signatures.items():
        check_public_key(key)
        if not isinstance(signature, str) or _SIGNATURE.fullmatch(signature) is None:
            raise InvalidValueError("has a signature that is not 128 hex digits")
    return SignedDocument(payload, signatures)


def parse_signed(raw: bytes) -> SignedDocument:
    """Parse a signed document from bytes. Raises `InvalidValueError`."""
    return read_signed(parse_json(raw))


def sign_payload(role: str, facts: Mapping[str, Any], keys: Sequence[PrivateKey]) -> SignedDocument:
    """Sign facts in a role with one or more keys."""
    payload = to_canonical_json(facts)
    return SignedDocument(payload, {key.public: key.sign(_join_context(role, payload)) for key in keys})


def verify_signature(public: str, signature: str, role: str, payload: str) -> bool:
    """Whether a key has signed a payload in a role."""
    require_packages("an index of kernels", ("cryptography",), "index")
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415  (only machines with an index need it)
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(
            bytes.fromhex(signature), _join_context(role, payload)
        )
    except (InvalidSignature, ValueError):
        return False
    return True


def check_public_key(text: object) -> str:
    """Return a public key of 64 hex digits if it is valid."""
    if not isinstance(text, str) or _PUBLIC.fullmatch(text) is None:
        raise InvalidValueError(f"{str(text)[:80]!r} is not an Ed25519 public key: it must be 64 hex digits")
    return text


def parse_pins(text: str) -> tuple[str, ...]:
    """Parse pinned public keys: `ed25519:HEX`, several separated by commas."""
    pins = [part.strip() for part in text.split(",") if part.strip()]
    if not pins or not all(pin.startswith(PREFIX) for pin in pins):
        raise InvalidValueError(f"{text[:80]!r} is not a pinned key: write {PREFIX} and 64 hex digits")
    return tuple(sorted({check_public_key(pin.removeprefix(PREFIX)) for pin in pins}))


@dataclass(frozen=True)
class PrivateKey:
    """A private key. `public` is its public key as hex digits."""

    public: str
    key: Ed25519PrivateKey

    def __repr__(self) -> str:
        return f"PrivateKey({PREFIX}{self.public})"

    def sign(self, message: bytes) -> str:
        return self.key.sign(message).hex()


def create_private_key(path: Path) -> PrivateKey:
    """Create a new key in a new file that only this user can read."""
    secret = os.urandom(_SECRET_BYTES)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError as error:
        raise StoreError(f"{path} exists. A key is never overwritten: name another file.") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}.") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(f"{secret.hex()}\n")
    return _load_private_key(secret)


def read_private_key(path: Path) -> PrivateKey:
    """Read a private key. A file that other users may read is rejected."""
    try:
        with path.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            text = stream.read(1000).decode("ascii", errors="replace").strip()
    except OSError as error:
        raise StoreError(
            f"{path} cannot be read: {error.strerror}. Make a key with: tilewright index new-key"
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise StoreError(f"{path} has mode {stat.S_IMODE(mode):04o}: other users may access it. Run: chmod 600 {path}")
    if _PUBLIC.fullmatch(text) is None:  # a private key has as many digits as a public one
        raise StoreError(f"{path} is not a private key: it must have 64 hex digits")
    return _load_private_key(bytes.fromhex(text))


def _load_private_key(secret: bytes) -> PrivateKey:
    require_packages("signing an index", ("cryptography",), "index")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    key = Ed25519PrivateKey.from_private_bytes(secret)
    return PrivateKey(key.public_key().public_bytes_raw().hex(), key)


def _join_context(role: str, payload: str) -> bytes:
    return f"{_CONTEXT}\0{role}\0{payload}".encode()
