"""The little of Redis' protocol (RESP2) that blobs and claims need, for servers that are not trusted.

A reply has one of four plain types and a size that the caller allows; at anything else the connection is closed.
General clients read whatever length a server announces and nest replies as deep as it likes, which bounds neither
memory nor the stack. https://redis.io/docs/latest/develop/reference/protocol-spec/
"""

from __future__ import annotations

import os
import re
import select
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tilewright.base.errors import RemoteError

Reply = int | bytes | None
Word = str | bytes | int

_LONGEST_LINE = 4096  # status, numbers, lengths and errors; those of Redis have some hundred bytes
_SHOWN_ERROR = 200
_NUMBER = re.compile(rb"-?[0-9]{1,19}")  # Redis' integers have 64 bit
_PIECE = 2**20  # sent within one time limit


@dataclass(frozen=True)
class Command:
    """One command, and how many bytes its reply may have at most."""

    words: tuple[Word, ...]
    most: int = 0

    def encoded(self) -> bytes:
        parts = [word if isinstance(word, bytes) else str(word).encode() for word in self.words]
        head = f"*{len(parts)}\r\n".encode()
        return head + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


@dataclass(frozen=True)
class Server:
    """Where a server is, and how it is spoken to. Seconds to connect, and for each piece sent or received."""

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
    """Connections to one server: kept for the next call, one per call at a time, never shared with a fork."""

    server: Server
    _idle: list[_Connection] = field(default_factory=list, repr=False)
    _busy: list[_Connection] = field(default_factory=list, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _owner: int = field(default_factory=os.getpid, repr=False)

    def ask(self, commands: Sequence[Command]) -> list[Reply]:
        """The replies to some commands, sent together. An error among them is a `RemoteError`."""
        connection = self._take()
        try:
            connection.prepare()
            replies = connection.ask(commands)
        except BaseException:
            self._leave(connection, keep=False)
            raise
        self._leave(connection, keep=True)
        return replies

    def shut(self) -> None:
        """End the calls that are under way in other threads: each finds its connection closed."""
        with self._lock:
            for connection in self._busy:
                connection.shut()

    def _take(self) -> _Connection:
        with self._lock:
            if self._owner != os.getpid():
                self._owner, self._idle, self._busy = os.getpid(), [], []  # those are our parent's
            while self._idle and self._idle[-1].stale():
                self._idle.pop().close()
            connection = self._idle.pop() if self._idle else _Connection(self.server)
            self._busy.append(connection)
            return connection

    def _leave(self, connection: _Connection, *, keep: bool) -> None:
        with self._lock:
            if connection in self._busy:
                self._busy.remove(connection)
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()


class _Connection:
    """One connection, made when it is first needed."""

    def __init__(self, server: Server) -> None:
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
        # A command goes out at once, instead of waiting for the acknowledgement of the one before.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")
        if server.password is not None:
            words = ("AUTH", server.password) if server.user is None else ("AUTH", server.user, server.password)
            try:
                self.ask([Command(words)])
            except _RefusedError:
                # Without the server's words: a hostile one would repeat the password in a message.
                raise RemoteError("the server refuses this user and password") from None
        if server.database:
            self.ask([Command(("SELECT", server.database))])

    def stale(self) -> bool:
        """Whether the server has closed it, or sent what nobody asked for, since it was used last."""
        if self._socket is None or self._closed:
            return True
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(0))

    def ask(self, commands: Sequence[Command]) -> list[Reply]:
        if self._socket is None or self._closed:
            raise RemoteError("the connection was closed")
        sent = memoryview(b"".join(command.encoded() for command in commands))
        for start in range(0, len(sent), _PIECE):
            self._socket.sendall(sent[start : start + _PIECE])
        return [self._reply(command.most) for command in commands]

    def shut(self) -> None:
        """Wake the thread that waits for this connection."""
        self._closed = True
        if self._socket is not None:
            with suppress(OSError, ValueError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closed = True
        if self._socket is not None:
            self._socket.close()

    def _reply(self, most: int) -> Reply:
        line = self._stream.readline(_LONGEST_LINE)
        if not line.endswith(b"\r\n"):
            raise RemoteError("the server ended the connection" if not line else "the server sent an endless line")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b"-":
            raise _RefusedError(f"the server refuses: {rest[:_SHOWN_ERROR].decode('ascii', 'backslashreplace')!r}")
        if kind not in (b":", b"$") or _NUMBER.fullmatch(rest) is None:
            raise RemoteError(f"the server sent {line[:40]!r}, which no command here is answered with")
        number = int(rest)
        return number if kind == b":" else self._bulk(number, most)

    def _bulk(self, size: int, most: int) -> bytes | None:
        if size == -1:
            return None
        if not 0 <= size <= most:
            raise RemoteError(f"the server announced {size:,} bytes where at most {most:,} were asked for")
        content = self._stream.read(size + 2)
        if len(content) != size + 2 or content[-2:] != b"\r\n":
            raise RemoteError("the server ended the connection in the middle of a value")
        return content[:-2]


class _RefusedError(RemoteError):
    """The server answered with an error."""
