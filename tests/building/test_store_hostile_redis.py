"""A server on loopback that answers as no Redis does: bounded time and memory, and kernels are built here."""

from __future__ import annotations

import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from stores import eventually, key_of, noticed, put, whole

from tilewright.building.store import tiers as module
from tilewright.building.store.local import Store
from tilewright.building.store.remote import open_remote
from tilewright.building.store.tiers import CircuitBreaker, Tiers

KEY = key_of(1)
MIB = 2**20
# What a server says of a value of 100 bytes, unless a case says otherwise. The map is RESP3's answer to HELLO.
USUAL = {"HELLO": b"%1\r\n+proto\r\n:3\r\n", "STRLEN": b":100\r\n", "PTTL": b":-2\r\n", "EVAL": b":1\r\n"}

Reply = bytes | Iterator[bytes]


def endless(head: bytes, piece: bytes, pause_s: float = 0.0) -> Iterator[bytes]:
    yield head
    while True:
        yield piece
        time.sleep(pause_s)


class Hostile:
    """Answers each command by its name. A reply may be endless; it ends with the connection."""

    def __init__(self, replies: Mapping[str, Reply]) -> None:
        self.replies = {**USUAL, **replies}
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.sent = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.listener.getsockname()[1]}/0"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        with line, suppress(OSError), line.makefile("rb") as stream:
            for word in stream:
                name = word.strip().upper().decode(errors="replace")
                if name in self.replies:
                    reply = self.replies[name]
                    for piece in [reply] if isinstance(reply, bytes) else reply:
                        line.sendall(piece)
                        self.sent += len(piece)
                elif name in ("CLIENT", "SELECT", "PING", "SET"):
                    line.sendall(b"+OK\r\n")


@contextmanager
def hostile(replies: Mapping[str, Reply], folder: Path) -> Iterator[tuple[Hostile, Tiers]]:
    server = Hostile(replies)
    try:
        # With a secret: nothing that such a server serves could ever be taken.
        yield (
            server,
            Tiers(Store(folder / "store"), open_remote(server.url), b"k" * 32, link=CircuitBreaker(pause_s=0.2)),
        )
    finally:
        server.listener.close()


def left_behind() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "tilewright-remote"]


CASES: dict[str, Mapping[str, Reply]] = {
    "a size that is text": {"STRLEN": b"+abc\r\n"},
    "a size that is a value": {"STRLEN": b"$1\r\n5\r\n"},
    "a size that is nothing": {"STRLEN": b"$-1\r\n"},
    "a size that is a list": {"STRLEN": b"*1\r\n:5\r\n"},
    "a size that is a big number": {"STRLEN": b"(3492890328409238509324850943850943825024385\r\n"},
    "a size of 400 digits": {"STRLEN": b":" + b"9" * 400 + b"\r\n"},
    "a size that is no number": {"STRLEN": b":1e9\r\n"},
    "a value that is a number": {"GETRANGE": b":1500000000\r\n"},
    "a value that is a list of numbers": {"GETRANGE": b"*2\r\n:300\r\n:5\r\n"},
    "a value that is a status": {"GETRANGE": b"+OK\r\n"},
    "a value larger than was asked for": {"GETRANGE": b"$102\r\n" + b"x" * 102 + b"\r\n"},
    "a value of a negative size": {"GETRANGE": b"$-7\r\n"},
    "a value that ends otherwise": {"GETRANGE": b"$3\r\nabcdef\r\n"},
    "lists in lists": {"STRLEN": b"*1\r\n" * 5000 + b":1\r\n"},
    "an answer to HELLO that is no map": {"HELLO": b"+OK\r\n", "STRLEN": b"+OK\r\n"},
    "another protocol": {"STRLEN": b"HTTP/1.1 400 Bad Request\r\n\r\n"},
    "an error that is not ASCII": {"STRLEN": b"-\xff\x1b[2J\r\n"},
}


@pytest.mark.parametrize("name", CASES)
def test_an_answer_of_another_kind_is_an_outage(tmp_path: Path, name: str) -> None:
    with hostile(CASES[name], tmp_path) as (_, tiers), noticed() as messages:
        assert tiers.find_entries([KEY]) == {}
        assert len(messages) == 1, messages
        assert "does not work" in messages[0] or "serves an invalid blob" in messages[0]
        assert messages[0].isprintable()
        put(tiers.local, KEY, b"x")
        assert whole(tiers.local, KEY, b"x")


@pytest.mark.parametrize("size", [b":-5000000\r\n", b":0\r\n", b":9223372036854775807\r\n"])
def test_a_size_that_no_blob_has_is_never_fetched(tmp_path: Path, size: bytes) -> None:
    with hostile({"STRLEN": size, "GETRANGE": b"$3\r\nabc\r\n"}, tmp_path) as (_, tiers), noticed() as messages:
        assert tiers.find_entries([KEY]) == {}
        assert tiers.link.allows_calls
        assert len(messages) == (size == b":9223372036854775807\r\n")


ENDLESS = {
    "a value of 3 GB": lambda: {"GETRANGE": endless(b"$3000000000\r\n", b"x" * MIB)},
    "a line without an end": lambda: {"STRLEN": endless(b"+", b"x" * MIB)},
    "a list of a billion": lambda: {"STRLEN": endless(b"*1000000000\r\n", b":1\r\n" * 100_000)},
    "a value that comes byte by byte": lambda: {"GETRANGE": endless(b"$100\r\n", b"x", 0.05)},
    "no answer at all": lambda: {"STRLEN": b""},
}


@pytest.mark.parametrize("name", ENDLESS)
def test_an_answer_without_an_end_takes_bounded_time_and_memory(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OPERATION_TIMEOUT_S", 0.5)
    with hostile(ENDLESS[name](), tmp_path) as (server, tiers), noticed() as messages:
        tracemalloc.start()
        try:
            started = time.monotonic()
            assert tiers.find_entries([KEY]) == {}
            assert time.monotonic() - started < 10
            eventually(lambda: left_behind() == [], 5)
            sent = server.sent
            time.sleep(0.3)
            assert server.sent <= sent + 8 * MIB, "nobody reads any more"
            # The server's own pieces, what waits in sockets and one value as large as was asked for.
            assert tracemalloc.get_traced_memory()[1] < 16 * MIB
        finally:
            tracemalloc.stop()
        assert len(messages) == 1
        eventually(lambda: tiers.link.allows_calls, 5)


@pytest.mark.parametrize("reply", [b"+yes\r\n", b"$1\r\n1\r\n", b"*0\r\n", b":99999999999999999999999\r\n", b"-no\r\n"])
def test_claims_that_are_answered_with_rubbish_stop_nobody(tmp_path: Path, reply: bytes) -> None:
    with hostile({"EVAL": reply, "PTTL": reply, "SET": reply}, tmp_path) as (_, tiers), noticed() as messages:
        assert tiers.claim(KEY)
        tiers.release(KEY)
        assert tiers.wait_for(KEY, 30) is None
        tiers.publish(put(tiers.local, KEY))
    assert len(messages) == 1


def test_a_password_is_not_repeated_for_a_server(tmp_path: Path) -> None:
    server = Hostile({"AUTH": b"-ERR your password is hunter2\r\n"})
    remote = open_remote(server.url.replace("//", "//ann:hunter2@"))
    with noticed() as messages:
        assert Tiers(Store(tmp_path / "store"), remote).find_entries([KEY]) == {}
    server.listener.close()
    assert "rejected this user and password" in messages[0]
    assert "hunter2" not in messages[0]
