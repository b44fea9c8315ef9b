"""Ed25519 keys that sign an index: private ones in PEM files of their own, public ones as `ed25519:HEX`."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from securesystemslib.signer import CryptoSigner, Key, SSlibKey

from tilewright.base.errors import InvalidValueError, StoreError

_PUBLIC = re.compile(r"ed25519:([0-9a-f]{64})")
_MAX_KEY_BYTES = 10_000


def format_public_key(key: Key) -> str:
    """The text of a public key: `ed25519:HEX`."""
    return f"ed25519:{key.keyval['public']}"


def parse_public_key(text: str) -> Key:
    """Parse `ed25519:HEX`. Raises `InvalidValueError`."""
    match = _PUBLIC.fullmatch(text)
    if match is None:
        raise InvalidValueError(f"{text[:80]!r} is not a public key: it must be ed25519: and 64 hex digits")
    return SSlibKey.from_crypto(Ed25519PublicKey.from_public_bytes(bytes.fromhex(match[1])))


def create_private_key(path: Path) -> CryptoSigner:
    """Create a new key in a new file that only this user can read."""
    signer = CryptoSigner.generate_ed25519()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError as error:
        raise StoreError(f"{path} exists. A key is never overwritten: name another file.") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}.") from error
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(signer.private_bytes)
    return signer


def read_private_key(path: Path) -> CryptoSigner:
    """Read a private key. A file that other users may read is rejected."""
    try:
        with path.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            text = stream.read(_MAX_KEY_BYTES)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be read: {error.strerror}. Make a key with: tilewright index new-key"
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise StoreError(f"{path} has mode {stat.S_IMODE(mode):04o}: other users may access it. Run: chmod 600 {path}")
    try:
        key = load_pem_private_key(text, None)
    except (ValueError, TypeError) as error:
        raise StoreError(f"{path} is not a private key in PEM. Make one with: tilewright index new-key") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise StoreError(f"{path} has a key of the type {type(key).__name__}, and an index is signed with Ed25519.")
    return CryptoSigner(key)
