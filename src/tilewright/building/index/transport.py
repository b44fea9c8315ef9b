"""Bounded requests to one host: no redirects, no other hosts, limits on bytes and time, retries, ranges.

Only http.client is used: it follows nothing, reads no environment, and opens no other schemes.
"""

from __future__ import annotations

import http.client
import ipaddress
import random
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from tilewright.base.errors import RemoteError, StoreError
from tilewright.base.knobs import REMOTE

HTTP, HTTPS = "http", "https"
# A connection over the internet takes some tenths of a second; a socket that is silent for longer is given up.
SOCKET_TIMEOUT_S = 5.0
# Attempts for one file, and the pause before the second; it doubles, and is random by half in both directions, so that
# clients that failed together do not come back together.
_ATTEMPTS, _FIRST_PAUSE_S = 3, 0.1
_PIECE = 2**16
RETRIED = frozenset({429, 500, 502, 503, 504})
_OK, _PARTIAL = 200, 206
# Buckets answer 403 for a file that they do not have if the caller may not list them.
ABSENT = frozenset({403, 404})
_LONGEST_TEXT = 120


@dataclass(frozen=True)
class Address:
    """The folder of an index on a host."""

    scheme: str
    host: str
    port: int | None
    path: str  # ends with a slash

    def __str__(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{name}{'' if self.port is None else f':{self.port}'}{self.path}"


class AbsentError(RemoteError):
    """The host does not have the file."""


class BusyError(Exception):
    """The host could not answer now: the request is made again."""


@dataclass
class PartialFile:
    """A file that is being fetched, with its size limit. Its bytes are kept when a connection breaks.

    With `exact` the size is known from the signed index. Such a file never changes, so the rest of it can be requested;
    the caller compares its digest.
    """

    name: str
    most: int
    exact: bool
    content: bytearray = field(default_factory=bytearray)

    @property
    def start(self) -> int:
        """The first byte to request."""
        return len(self.content) if self.exact else 0

    def begin(self, start: int, announced: int | None) -> None:
        """Begin to read bytes from `start` on, of which the host announces a number. Raises `RemoteError`."""
        del self.content[start:]
        total = None if announced is None else start + announced
        if total is not None and (total > self.most or (self.exact and total != self.most)):
            raise RemoteError(f"{self.name}: the host announces {total:,} bytes, and {self._describe_size()}")

    def add(self, piece: bytes, deadline: float) -> None:
        """Add bytes. Raises `RemoteError` if there are too many, or if they arrive too late."""
        self.content += piece
        size = len(self.content)
        if size > self.most:
            raise RemoteError(f"{self.name}: the host sends more bytes than {self.most:,}, and {self._describe_size()}")
        if time.monotonic() > deadline:
            raise RemoteError(f"{self.name}: {size:,} bytes arrived within the time limit, and there are more")

    def finish(self) -> bytes:
        """The whole file. Raises `RemoteError` if it is too short."""
        if self.exact and len(self.content) != self.most:
            raise RemoteError(f"{self.name}: the host sends {len(self.content):,} bytes, and {self._describe_size()}")
        return bytes(self.content)

    def _describe_size(self) -> str:
        return f"the signed index lists {self.most:,}" if self.exact else f"{self.most:,} is the limit"


@dataclass(kw_only=True)
class RetryingFetcher:
    """Requests files over one connection that is kept, again if it breaks. Threads take turns."""

    attempts: int = _ATTEMPTS
    requests: int = 0
    received: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    # The errors after which a request is made again.
    retried: ClassVar[tuple[type[Exception], ...]] = (OSError, BusyError)

    def get(self, name: str, most: int, *, exact: bool = False, limit_s: float = 30.0) -> bytes:
        """Get a file of at most `most` bytes, or exactly as many, within a time limit. Raises `RemoteError`.

        If the connection breaks, only the rest of a file of known size is requested; attempts that received much do
        not count.
        """
        deadline = time.monotonic() + limit_s
        file, attempt = PartialFile(name, most, exact), 0
        with self._lock:
            while True:
                before = file.start
                try:
                    return self._try_get(file, deadline)
                except self.retried as error:
                    self.close()
                    attempt = 0 if file.start - before >= _PIECE else attempt + 1
                    pause = _FIRST_PAUSE_S * 2**attempt * random.uniform(0.25, 0.75)
                    if attempt >= self.attempts or time.monotonic() + pause >= deadline:
                        raise RemoteError(f"{name}: {describe_failure(error)}") from error
                    time.sleep(pause)
                except RemoteError:
                    self.close()  # the rest of a refused answer is not read
                    raise

    def close(self) -> None:
        """Close the connection. May be called from any thread, and ends a request that runs."""
        raise NotImplementedError

    def _try_get(self, file: PartialFile, deadline: float) -> bytes:
        """Make one request."""
        raise NotImplementedError

    def _add_pieces(self, file: PartialFile, read: Callable[[int], bytes], deadline: float) -> None:
        """Read the body in pieces, at most one byte more than allowed."""
        while piece := read(min(_PIECE, file.most + 1 - len(file.content))):
            self.received += len(piece)
            file.add(piece, deadline)


def parse_address(url: str) -> Address:
    """Parse the address of an index. Raises `StoreError` for one that is not used."""
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise StoreError(f"{REMOTE.name} is not an address: {error}. Write https://host/path.") from error
    if not host or parts.query or parts.fragment or parts.username is not None or parts.password is not None:
        raise StoreError(f"{REMOTE.name} must be https://host/path, without a user, a query or a fragment.")
    if parts.scheme == HTTP and not _is_loopback(host):
        raise StoreError(f"{REMOTE.name}: http:// is for tests on this machine (127.0.0.1). Write https://{host}.")
    return Address(parts.scheme, host, port, f"{parts.path.rstrip('/')}/")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass
class Fetcher(RetryingFetcher):
    """Requests files below the address of an HTTP server."""

    address: Address
    _connection: http.client.HTTPConnection | None = field(default=None, repr=False)

    retried: ClassVar[tuple[type[Exception], ...]] = (OSError, http.client.HTTPException, BusyError)

    def close(self) -> None:
        """Close the connection. May be called from any thread, and ends a request that runs."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _try_get(self, file: PartialFile, deadline: float) -> bytes:
        name, start = file.name, file.start
        left = deadline - time.monotonic()
        if left <= 0:
            raise RemoteError(f"{name}: no answer within the time limit")
        if self._connection is None:
            self._connection = self._connect()
        connection = self._connection
        connection.timeout = min(SOCKET_TIMEOUT_S, left)
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        # Bodies are read as they are: a compressed one could expand to any size.
        headers = {"Accept-Encoding": "identity", "User-Agent": _get_user_agent()}
        if start:
            headers["Range"] = f"bytes={start}-"
        self.requests += 1
        connection.request("GET", f"{self.address.path}{name}", headers=headers)
        response = connection.getresponse()
        self._check_status(response, file)
        announced = response.length
        file.begin(start if response.status == _PARTIAL else 0, announced)
        before = len(file.content)
        self._add_pieces(file, response.read1, deadline)
        received = len(file.content) - before
        if announced is not None and received != announced:
            raise http.client.IncompleteRead(b"", announced - received)
        body = file.finish()
        response.close()  # the connection stays open for the next request
        return body

    def _check_status(self, response: http.client.HTTPResponse, file: PartialFile) -> None:
        status, name = response.status, file.name
        if status in RETRIED:
            raise BusyError(f"the host answers {status}")
        if status in ABSENT:
            raise AbsentError(f"{name}: the host does not have it ({status})")
        if 300 <= status < 400:
            target = (response.getheader("Location") or "")[:_LONGEST_TEXT]
            raise RemoteError(f"{name}: the host redirects to {target!r}, and redirects are not followed")
        if status == _PARTIAL and file.start:
            told = (response.getheader("Content-Range") or "")[:_LONGEST_TEXT]
            if told != f"bytes {file.start}-{file.most - 1}/{file.most}":
                raise RemoteError(f"{name}: the host sends the range {told!r}, which was not asked for")
        elif status != _OK:
            raise RemoteError(f"{name}: the host answers {status}")
        coding = (response.getheader("Content-Encoding") or "identity")[:_LONGEST_TEXT]
        if coding != "identity":
            raise RemoteError(f"{name}: the host answers in the encoding {coding!r}, which was not asked for")

    def _connect(self) -> http.client.HTTPConnection:
        if self.address.scheme == HTTP:
            return http.client.HTTPConnection(self.address.host, self.address.port, timeout=SOCKET_TIMEOUT_S)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(
            self.address.host, self.address.port, timeout=SOCKET_TIMEOUT_S, context=context
        )


def describe_failure(error: Exception) -> str:
    """A failure in a few words."""
    text = str(error) or type(error).__name__
    return f"{text[:_LONGEST_TEXT]} ({type(error).__name__})" if not isinstance(error, BusyError) else text


def _get_user_agent() -> str:
    from tilewright import __version__  # noqa: PLC0415  (the package imports its parts, not the other way round)

    return f"tilewright/{__version__}"
