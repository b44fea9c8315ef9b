"""Bounded requests to one host: no redirects, no other hosts, limits on bytes and time, a few retries.

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
from dataclasses import dataclass, field

from tilewright.base.errors import RemoteError, StoreError
from tilewright.base.knobs import REMOTE

HTTP, HTTPS = "http", "https"
# A connection over the internet takes some tenths of a second; a socket that is silent for longer is given up.
_SOCKET_TIMEOUT_S = 5.0
# Attempts for one file, and the pause before the second; it doubles, and is random by half in both directions, so that
# clients that failed together do not come back together.
_ATTEMPTS, _FIRST_PAUSE_S = 3, 0.1
_PIECE = 2**16
_RETRIED = frozenset({429, 500, 502, 503, 504})
_OK, _NOT_MODIFIED, _NOT_FOUND = 200, 304, 404
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


@dataclass(frozen=True)
class Answer:
    """The body of a file, None if it has not changed, and its ETag."""

    body: bytes | None
    etag: str = ""


class AbsentError(RemoteError):
    """The host does not have the file."""


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
class Fetcher:
    """Requests files below an address, over one connection that is kept. Threads take turns."""

    address: Address
    attempts: int = _ATTEMPTS
    requests: int = 0
    received: int = 0
    _connection: http.client.HTTPConnection | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def get(self, name: str, most: int, *, exact: bool = False, etag: str = "", limit_s: float = 30.0) -> Answer:
        """Get a file of at most `most` bytes, or exactly as many, within a time limit. Raises `RemoteError`.

        With `etag`, the body is None if the file has not changed.
        """
        deadline = time.monotonic() + limit_s
        with self._lock:
            for attempt in range(self.attempts):
                try:
                    return self._try_get(name, most, exact, etag, deadline)
                except (OSError, http.client.HTTPException, _BusyError) as error:
                    self.close()
                    pause = _FIRST_PAUSE_S * 2**attempt * random.uniform(0.5, 1.5)
                    if attempt + 1 == self.attempts or time.monotonic() + pause >= deadline:
                        raise RemoteError(f"{name}: {_describe_failure(error)}") from error
                    time.sleep(pause)
                except RemoteError:
                    self.close()  # the rest of a refused answer is not read
                    raise
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Close the connection. May be called from any thread, and ends a request that runs."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _try_get(self, name: str, most: int, exact: bool, etag: str, deadline: float) -> Answer:
        left = deadline - time.monotonic()
        if left <= 0:
            raise RemoteError(f"{name}: no answer within the time limit")
        if self._connection is None:
            self._connection = self._connect()
        connection = self._connection
        connection.timeout = min(_SOCKET_TIMEOUT_S, left)
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        # Bodies are read as they are: a compressed one could expand to any size.
        headers = {"Accept-Encoding": "identity", "User-Agent": _get_user_agent()}
        if etag:
            headers["If-None-Match"] = etag
        self.requests += 1
        connection.request("GET", f"{self.address.path}{name}", headers=headers)
        response = connection.getresponse()
        self._check_status(response, name)
        if response.status == _NOT_MODIFIED:
            response.close()
            if not etag:
                raise RemoteError(f"{name}: the host answers 304 to a request without a condition")
            return Answer(None, etag)
        body = self._read_body(response, name, most, exact, deadline)
        response.close()  # the connection stays open for the next request
        found = response.getheader("ETag") or ""
        return Answer(body, found if found.isascii() and found.isprintable() and len(found) < _LONGEST_TEXT else "")

    def _check_status(self, response: http.client.HTTPResponse, name: str) -> None:
        status = response.status
        if status in _RETRIED:
            raise _BusyError(f"the host answers {status}")
        if status == _NOT_FOUND:
            raise AbsentError(f"{name}: the host does not have it (404)")
        if 300 <= status < 400 and status != _NOT_MODIFIED:
            target = (response.getheader("Location") or "")[:_LONGEST_TEXT]
            raise RemoteError(f"{name}: the host redirects to {target!r}, and redirects are not followed")
        if status not in (_OK, _NOT_MODIFIED):
            raise RemoteError(f"{name}: the host answers {status}")
        coding = (response.getheader("Content-Encoding") or "identity")[:_LONGEST_TEXT]
        if coding != "identity":
            raise RemoteError(f"{name}: the host answers in the encoding {coding!r}, which was not asked for")

    def _read_body(
        self, response: http.client.HTTPResponse, name: str, most: int, exact: bool, deadline: float
    ) -> bytes:
        announced = response.length
        if announced is not None and (announced > most or (exact and announced != most)):
            raise RemoteError(f"{name}: the host announces {announced:,} bytes, and {_describe_size(most, exact)}")
        pieces, size = [], 0
        while piece := response.read1(min(_PIECE, most + 1 - size)):
            pieces.append(piece)
            size += len(piece)
            self.received += len(piece)
            if size > most:
                raise RemoteError(f"{name}: the host sends more bytes than {most:,}, and {_describe_size(most, exact)}")
            if time.monotonic() > deadline:
                raise RemoteError(f"{name}: {size:,} bytes arrived within the time limit, and there are more")
        if announced is not None and size != announced:
            raise http.client.IncompleteRead(b"", announced - size)
        if exact and size != most:
            raise RemoteError(f"{name}: the host sends {size:,} bytes, and {_describe_size(most, exact)}")
        return b"".join(pieces)

    def _connect(self) -> http.client.HTTPConnection:
        if self.address.scheme == HTTP:
            return http.client.HTTPConnection(self.address.host, self.address.port, timeout=_SOCKET_TIMEOUT_S)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(
            self.address.host, self.address.port, timeout=_SOCKET_TIMEOUT_S, context=context
        )


class _BusyError(Exception):
    """The host could not answer now. Never leaves this module."""


def _describe_failure(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return f"{text[:_LONGEST_TEXT]} ({type(error).__name__})" if not isinstance(error, _BusyError) else text


def _describe_size(most: int, exact: bool) -> str:
    return f"the signed index lists {most:,}" if exact else f"{most:,} is the limit"


def _get_user_agent() -> str:
    from tilewright import __version__  # noqa: PLC0415  (the package imports its parts, not the other way round)

    return f"tilewright/{__version__}"
