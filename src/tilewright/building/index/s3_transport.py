"""Bounded requests to a bucket of S3 or of a compatible server, with boto3.

Credentials, region and endpoint are those of boto3: environment variables, files in ~/.aws, or the machine's role.
"""

from __future__ import annotations

import re
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from tilewright.base.errors import RemoteError, StoreError
from tilewright.base.extras import require_packages
from tilewright.base.knobs import REMOTE
from tilewright.building.index.transport import (
    ABSENT,
    RETRIED,
    SOCKET_TIMEOUT_S,
    AbsentError,
    BusyError,
    PartialFile,
    RetryingFetcher,
    describe_failure,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

S3 = "s3"
# The rules of AWS for general purpose buckets: 3 to 63 lower-case letters, digits, dots and hyphens.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
# Characters of keys that need no escaping, according to AWS, without those that are rarely meant.
_PREFIX = re.compile(r"(?:[A-Za-z0-9!_.*'()-]+/)*")


@dataclass(frozen=True)
class S3Address:
    """The place of an index in a bucket."""

    bucket: str
    prefix: str  # empty, or ends with a slash

    def __str__(self) -> str:
        return f"{S3}://{self.bucket}/{self.prefix}"


def parse_s3_address(url: str) -> S3Address:
    """Parse `s3://bucket/prefix`. Raises `StoreError` for one that is not used, or if boto3 is missing."""
    bucket, _, path = url.removeprefix(f"{S3}://").partition("/")
    prefix = f"{path.strip('/')}/" if path.strip("/") else ""
    if not url.startswith(f"{S3}://") or not _BUCKET.fullmatch(bucket) or not _PREFIX.fullmatch(prefix):
        raise StoreError(f"{REMOTE.name} must be {S3}://bucket/prefix, without a user, a query or a fragment.")
    require_packages(f"{S3}://{bucket}", ("boto3",), "s3")
    return S3Address(bucket, prefix)


@dataclass
class S3Fetcher(RetryingFetcher):
    """Requests objects of a bucket. Retries are made here, so that they have the limits of any index."""

    address: S3Address
    _client: Any = field(default=None, repr=False)

    retried: ClassVar[tuple[type[Exception], ...]] = (OSError, BusyError)

    def close(self) -> None:
        if self._client is not None:  # it is kept, as a new one takes half a second; it connects again when it is used
            self._client.close()

    def _try_get(self, file: PartialFile, deadline: float) -> bytes:
        from botocore.exceptions import (  # noqa: PLC0415  (part of an extra)
            BotoCoreError,
            ClientError,
            CredentialRetrievalError,
            NoCredentialsError,
            NoRegionError,
        )

        if time.monotonic() >= deadline:
            raise RemoteError(f"{file.name}: no answer within the time limit")
        start = file.start
        asked: dict[str, str] = {"Bucket": self.address.bucket, "Key": f"{self.address.prefix}{file.name}"}
        if start:
            asked["Range"] = f"bytes={start}-"
        self.requests += 1
        try:
            if self._client is None:
                self._client = _make_client()
            answer = self._client.get_object(**asked)
            with closing(answer["Body"]) as body:
                self._read_object(file, answer, body, start, deadline)
        except ClientError as error:
            raise self._explain_refusal(file, error.response) from error
        except (NoCredentialsError, CredentialRetrievalError, NoRegionError) as error:
            advice = "set them up as for the AWS CLI, or use the https:// address of a public bucket"
            raise RemoteError(f"{file.name}: {error}; {advice}") from error
        except BotoCoreError as error:  # the network, or a body that is cut off
            raise BusyError(describe_failure(error)) from error
        return file.finish()

    def _read_object(
        self, file: PartialFile, answer: Mapping[str, Any], body: Any, start: int, deadline: float
    ) -> None:
        coding = answer.get("ContentEncoding") or "identity"
        if coding not in ("identity", "aws-chunked"):
            raise RemoteError(f"{file.name}: the object has the encoding {coding!r}: upload it without one")
        told = answer.get("ContentRange", "")
        partial = bool(start and told)
        if partial and told != f"bytes {start}-{file.most - 1}/{file.most}":
            raise RemoteError(f"{file.name}: the server sends the range {told!r}, which was not asked for")
        file.begin(start if partial else 0, answer.get("ContentLength"))
        self._add_pieces(file, body.read, deadline)

    def _explain_refusal(self, file: PartialFile, response: Mapping[str, Any]) -> Exception:
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code = str(response.get("Error", {}).get("Code", ""))[:80]
        if status in RETRIED:
            return BusyError(f"the server answers {status} ({code})")
        if status in ABSENT:
            return AbsentError(f"{file.name}: the bucket does not have it, or the credentials may not read it ({code})")
        return RemoteError(f"{file.name}: the server answers {status} ({code})")


def _make_client() -> Any:
    """A client with one connection, without boto3's own retries."""
    import boto3  # noqa: PLC0415  (an extra)
    from botocore.config import Config  # noqa: PLC0415  (see above)

    limits = Config(
        connect_timeout=SOCKET_TIMEOUT_S,
        read_timeout=SOCKET_TIMEOUT_S,
        max_pool_connections=1,
        retries={"total_max_attempts": 1, "mode": "standard"},
    )
    # Its own session: boto3's default one is not safe to use in several threads.
    return boto3.session.Session().client("s3", config=limits)
