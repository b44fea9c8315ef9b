"""A remote tier in a Redis (or Valkey) server: strings for blobs, strings with an expiry for claims.

The server is not trusted. A reply must have one of four plain types of its protocol (RESP2) and a size that the caller
allows; otherwise the connection is closed. General clients accept any length that a server announces and any depth of
nesting, so they limit neither memory nor stack. https://redis.io/docs/latest/develop/reference/protocol-spec/
"""

from __future__ import annotations

import os
import re
import select
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tilewright.base.errors import RemoteError, StoreError, choose
from tilewright.base.knobs import REMOTE
from tilewright.building.store.files import SCHEMA, check_key
from tilewright.building.store.remote import CLAIM_TTL_S, CONNECT_TIMEOUT_S, OPERATION_TIMEOUT_S, check_ttl

Reply = int | bytes | None
Word = str | bytes | int
_LONGEST_LINE = 4096  # for status, numbers, lengths and errors; Redis sends at most some hundred bytes
_SHOWN_ERROR = 200
_NUMBER = re.compile(rb"-?[0-9]{1,19}")  # Redis' integers have 64 bits
_PIECE = 2**20  # each piece has its own time limit
_PORT = 6379  # Redis' default
_OPTIONS = ("ttl_s",)
_WHOLE = re.compile(r"[0-9]{1,9}")  # seconds or a database number
_MOST_CLAIM_MS = round(CLAIM_TTL_S * 1000)
# Compare and set atomically on the server: a claim may expire and pass to another holder between two commands. Claims
# with a longer expiry than ours, or none (-1), are ignored: we never create them, and they might never end.
_CLAIM = (
    "local held = redis.call('get', KEYS[1]) local left = redis.call('pttl', KEYS[1]) "
    "if held and held ~= ARGV[1] and left >= 0 and left <= tonumber(ARGV[3]) then return 0 end "
    "redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1"
)
_RELEASE = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0"


@dataclass(frozen=True)
class RedisRemote:
    """Blobs and claims in a server. `ttl_s` is the time to keep a blob after it was written; 0 means for ever."""

    address: str
    connections: Connections = field(compare=False, repr=False)
    ttl_s: int = 0

    def describe(self) -> str:
        return self.address

    def get_sizes(self, keys: Sequence[str]) -> Mapping[str, int]:
        replies = self.connections.send_commands([RedisCommand(("STRLEN", _blob_key(key))) for key in keys])
        found = {key: _require_number(reply) for key, reply in zip(keys, replies, strict=True)}
        return {key: size for key, size in found.items() if size > 0}

    def fetch(self, sizes: Mapping[str, int]) -> Mapping[str, bytes]:
        # A range instead of the whole value: it may have grown to Redis' limit of 512 MB since its size was read.
        commands = [RedisCommand(("GETRANGE", _blob_key(key), 0, size), size + 1) for key, size in sizes.items()]
        replies = self.connections.send_commands(commands)
        found = {key: _require_bytes(reply) for key, reply in zip(sizes, replies, strict=True)}
        return {key: blob for key, blob in found.items() if 0 < len(blob) <= sizes[key]}

    def push(self, key: str, blob: bytes) -> None:
        limit = ("PX", self.ttl_s * 1000) if self.ttl_s else ()
        self.connections.send_commands([RedisCommand(("SET", _blob_key(key), blob, *limit))])

    def claim(self, key: str, holder: str, ttl_s: float) -> bool:
        milliseconds = max(1, round(check_ttl(ttl_s) * 1000))
        return self._run_script(_CLAIM, key, holder, milliseconds, _MOST_CLAIM_MS) == 1

    def is_claimed(self, key: str) -> bool:
        (left,) = self.connections.send_commands([RedisCommand(("PTTL", _claim_key(key)))])
        return 0 <= _require_number(left) <= _MOST_CLAIM_MS  # -2: no claim; -1: no expiry

    def release(self, key: str, holder: str) -> None:
        self._run_script(_RELEASE, key, holder)

    def abandon(self) -> None:
        self.connections.shut()

    def _run_script(self, script: str, key: str, *arguments: str | int) -> int:
        (reply,) = self.connections.send_commands([RedisCommand(("EVAL", script, 1, _claim_key(key), *arguments))])
        return _require_number(reply)


def _require_number(reply: Reply) -> int:
    if type(reply) is not int:
        raise RemoteError(f"the server sent {str(reply)[:40]!r} where it should send a number")
    return reply


def _require_bytes(reply: Reply) -> bytes:
    if type(reply) is not bytes:
        raise RemoteError(f"the server sent {str(reply)[:40]!r} where it should send a value")
    return reply


def open_redis(url: str) -> RedisRemote:
    """Open the server at `redis://[user:password@]host[:port][/db][?ttl_s=SECONDS]`, or `rediss://` with TLS."""
    parts = urlsplit(url)
    port, database = _parse_port(parts), parts.path.strip("/") or "0"
    if not parts.hostname or _WHOLE.fullmatch(database) is None:
        raise _make_url_error("it must be redis://host:port/db, with a database number")
    server = RedisServer(
        host=parts.hostname,
        port=port,
        database=int(database),
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        tls=parts.scheme == "rediss",
        connect_s=CONNECT_TIMEOUT_S,
        operation_s=OPERATION_TIMEOUT_S,
    )
    address = f"{parts.scheme}://{parts.hostname}:{port}/{database}"
    return RedisRemote(address, Connections(server), _parse_ttl(parts))


def _parse_port(parts: SplitResult) -> int:
    try:
        return parts.port or _PORT
    except ValueError as error:
        raise _make_url_error(str(error)) from error


def _parse_ttl(parts: SplitResult) -> int:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        choose("option of a redis address", name, _OPTIONS)
    ttl = options.get("ttl_s", "0")
    if _WHOLE.fullmatch(ttl) is None:
        raise _make_url_error(f"ttl_s={ttl!r} is not an integer number of seconds")
    return int(ttl)


def _make_url_error(what: str) -> StoreError:
    return StoreError(f"{REMOTE.name} cannot be used: {what}")  # without the URL: it may contain a password


def _blob_key(key: str) -> str:
    return f"tilewright:v{SCHEMA}:blob:{check_key(key)}"


def _claim_key(key: str) -> str:
    return f"tilewright:v{SCHEMA}:claim:{check_key(key)}"


@dataclass(frozen=True)
class RedisCommand:
    """A command and the maximum number of bytes in its reply."""

    words: tuple[Word, ...]
    most: int = 0

    def encode(self) -> bytes:
        parts = [word if isinstance(word, bytes) else str(word).encode() for word in self.words]
        head = f"*{len(parts)}\r\n".encode()
        return head + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


@dataclass(frozen=True)
class RedisServer:
    """Address and settings of a server, with time limits to connect and for each piece sent or received."""

    host: str
    port: int
    database: int
    user: str | None
    password: str | None = field(repr=False)
    tls: bool
    connect_s: float
    operation_s: float


@dataclass
class Connections:
    """A pool of connections to one server. Each call uses one connection; forked processes do not share them."""

    server: RedisServer
    _idle: list[_Connection] = field(default_factory=list, repr=False)
    _busy: list[_Connection] = field(default_factory=list, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _owner: int = field(default_factory=os.getpid, repr=False)

    def send_commands(self, commands: Sequence[RedisCommand]) -> list[Reply]:
        """Send commands together and return their replies. Raises `RemoteError` if one is an error."""
        connection = self._take_connection()
        try:
            connection.prepare()
            replies = connection.send_commands(commands)
        except BaseException:
            self._return_connection(connection, keep=False)
            raise
        self._return_connection(connection, keep=True)
        return replies

    def shut(self) -> None:
        """Stop the running calls of other threads by closing their connections."""
        with self._lock:
            for connection in self._busy:
                connection.shut()

    def _take_connection(self) -> _Connection:
        with self._lock:
            if self._owner != os.getpid():
                self._owner, self._idle, self._busy = os.getpid(), [], []  # the old ones belong to our parent
            while self._idle and self._idle[-1].is_stale():
                self._idle.pop().close()
            connection = self._idle.pop() if self._idle else _Connection(self.server)
            self._busy.append(connection)
            return connection

    def _return_connection(self, connection: _Connection, *, keep: bool) -> None:
        with self._lock:
            if connection in self._busy:
                self._busy.remove(connection)
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()


class _Connection:
    """One connection, opened on first use."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._socket: socket.socket | None = None
        self._closed = False

    def prepare(self) -> None:
        if self._socket is not None:
            return
        server = self._server
        plain = socket.create_connection((server.host, server.port), server.connect_s)
        self._socket = plain
        if server.tls:
            self._socket = ssl.create_default_context().wrap_socket(plain, server_hostname=server.host)
        self._socket.settimeout(server.operation_s)
        # Commands are sent at once, without waiting for the acknowledgement of the previous one.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")
        if server.password is not None:
            words = ("AUTH", server.password) if server.user is None else ("AUTH", server.user, server.password)
            try:
                self.send_commands([RedisCommand(words)])
            except _RefusedError:
                # Without the server's message: a hostile server could repeat the password in it.
                raise RemoteError("the server rejected this user and password") from None
        if server.database:
            self.send_commands([RedisCommand(("SELECT", server.database))])

    def is_stale(self) -> bool:
        """Return whether the server has closed the connection or sent unexpected data since the last use."""
        if self._socket is None or self._closed:
            return True
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(0))

    def send_commands(self, commands: Sequence[RedisCommand]) -> list[Reply]:
        if self._socket is None or self._closed:
            raise RemoteError("the connection was closed")
        sent = memoryview(b"".join(command.encode() for command in commands))
        for start in range(0, len(sent), _PIECE):
            self._socket.sendall(sent[start : start + _PIECE])
        return [self._read_reply(command.most) for command in commands]

    def shut(self) -> None:
        """Close the connection, which wakes the thread that waits for it."""
        self._closed = True
        if self._socket is not None:
            with suppress(OSError, ValueError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closed = True
        if self._socket is not None:
            self._socket.close()

    def _read_reply(self, most: int) -> Reply:
        line = self._stream.readline(_LONGEST_LINE)
        if not line.endswith(b"\r\n"):
            raise RemoteError("the server ended the connection" if not line else "the server sent an overlong line")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b"-":
            raise _RefusedError(f"the server replied: {rest[:_SHOWN_ERROR].decode('ascii', 'backslashreplace')!r}")
        if kind not in (b":", b"$") or _NUMBER.fullmatch(rest) is None:
            raise RemoteError(f"the server sent {line[:40]!r}, which is not a valid reply")
        number = int(rest)
        return number if kind == b":" else self._read_bulk(number, most)

    def _read_bulk(self, size: int, most: int) -> bytes | None:
        if size == -1:
            return None
        if not 0 <= size <= most:
            raise RemoteError(f"the server announced {size:,} bytes where at most {most:,} were requested")
        content = self._stream.read(size + 2)
        if len(content) != size + 2 or content[-2:] != b"\r\n":
            raise RemoteError("the server ended the connection in the middle of a value")
        return content[:-2]


class _RefusedError(RemoteError):
    """The server answered with an error."""
