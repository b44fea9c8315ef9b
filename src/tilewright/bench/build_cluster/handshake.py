"""The questions that a node of a build cluster answers before it gets work, and the differences that exclude it."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from tilewright.building.toolchain import Toolchain


@dataclass(frozen=True)
class Question:
    """The questions that a node must answer like the coordinator before it gets work.

    `kernel` is a kernel to compute the key of. `probe` is a key that the coordinator has claimed on the shared store.
    `challenge` is a random text to sign with the secret of the shared store.
    """

    kernel: str
    probe: str
    challenge: str


@dataclass(frozen=True)
class BuilderInfo:
    """The answers of a builder process. `holder` is the name that its claims have on the shared store."""

    host: str
    holder: str
    version: str
    toolchain: str
    ck_digest: str
    key: str
    sees_probe: bool
    signature: str


@dataclass(frozen=True)
class RightAnswers:
    """The coordinator's own answers."""

    version: str
    toolchain: Toolchain
    key: str
    signature: str

    def describe_difference(self, info: BuilderInfo) -> str:
        """The first difference of a node from the coordinator, as the end of a sentence. Empty if there is none."""
        identity = self.toolchain.identity()
        checks = (
            (info.sees_probe, "the shared store's address leads to another folder or server there"),
            (info.signature == self.signature, "it has another secret (TILEWRIGHT_REMOTE_SECRET_FILE)"),
            (info.version == self.version, f"it has Tilewright {info.version} instead of {self.version}"),
            (info.toolchain == identity, f"it has another compiler or other headers: {info.toolchain}, not {identity}"),
            (
                info.ck_digest == self.toolchain.ck_digest,
                f"it has other CK headers, with the digest {info.ck_digest} instead of {self.toolchain.ck_digest}",
            ),
            (info.key == self.key, f"it computes the key {info.key} instead of {self.key}: Tilewright's files differ"),
        )  # fmt: skip
        return next((text for fits, text in checks if not fits), "")


def sign_challenge(secret: bytes | None, challenge: str) -> str:
    """The signature of a text with the secret of the shared store: equal secrets, equal signatures."""
    if secret is None:
        return ""
    return hmac.new(secret, f"tilewright build cluster {challenge}".encode(), hashlib.sha256).hexdigest()
