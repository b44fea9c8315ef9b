"""A signed index, a client of it, and a server on loopback that can do everything a stolen host can."""

from __future__ import annotations

import http.server
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stores import key_of, put

from tilewright.building.index.local_copy import LocalCopy
from tilewright.building.index.publish import build_index, sign_index, write_keys
from tilewright.building.index.remote_index import IndexRemote
from tilewright.building.index.signing import PrivateKey, create_private_key
from tilewright.building.index.transport import Fetcher, parse_address
from tilewright.building.store.local import Store
from tilewright.building.store.remote import RemoteLimits
from tilewright.building.store.tiers import CircuitBreaker, Tiers

# Short, so that a server that does not answer costs a test a second.
LIMITS = RemoteLimits(1.0, 1e6, 5.0, 1.0, 64)
KEYS = tuple(key_of(number) for number in range(6))
SMALL = b"a kernel" * 100

Misbehave = Callable[["Handler"], None]


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the files of the world, unless the world has something else for the path."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    world: World

    def do_GET(self) -> None:
        self.world.asked.append(self.path)
        for part, misbehave in self.world.misbehaviour.items():
            if part in self.path:
                misbehave(self)
                return
        path = self.world.folder / self.path.lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        self.answer(path.read_bytes())

    def answer(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def finish(self) -> None:
        try:
            super().finish()
        except OSError:
            return  # the client has gone, as it should

    def log_message(self, *_: Any) -> None: ...


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None: ...


@dataclass
class World:
    """A published index in `folder`, served at `url`, and a client machine in `root`."""

    root: Path
    folder: Path
    url: str
    publisher: Store
    roots: list[PrivateKey]
    signer: PrivateKey
    misbehaviour: dict[str, Misbehave] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    server: Server | None = None

    def client(self, name: str = "client", *, recheck_s: float = 0.0, pins: tuple[str, ...] | None = None) -> Tiers:
        """A machine with a store of its own."""
        pinned = pins if pins is not None else (self.roots[0].public,)
        copy = LocalCopy(self.root / name / "copy")
        fetcher = Fetcher(parse_address(self.url))
        remote = IndexRemote(self.url, pinned, fetcher, copy, recheck_s)
        link = CircuitBreaker()
        return Tiers(Store(self.root / name / "store"), remote, writes=False, link=link, limits=LIMITS)

    def publish(self, days: float = 14.0) -> bytes:
        """Sign the next version, and return its bytes."""
        build_index(self.folder, self.publisher)
        sign_index(self.folder, self.signer, days)
        return (self.folder / "index.json").read_bytes()

    def new_key(self, name: str) -> PrivateKey:
        return create_private_key(self.root / f"{name}.key")

    def rotate(self, *, roots: list[PrivateKey] | None = None, signer: PrivateKey | None = None) -> bytes:
        """Write the next list of keys, and return its bytes."""
        before, self.roots, self.signer = self.roots, roots or self.roots, signer or self.signer
        signing = list({key.public: key for key in (*before, *self.roots)}.values())
        write_keys(self.folder, "test", [key.public for key in self.roots], [self.signer.public], 1, signing, 365)
        return (self.folder / "keys.json").read_bytes()

    def read_payload(self, raw: bytes) -> dict[str, Any]:
        return dict(json.loads(json.loads(raw)["payload"]))


@contextmanager
def published(root: Path) -> Iterator[World]:
    """A world with six kernels, the second version of its index signed."""
    publisher = Store(root / "publisher")
    for number, key in enumerate(KEYS):
        put(publisher, key, SMALL + bytes([number]), kernel={})
    handler = type("WorldHandler", (Handler,), {})
    server = Server(("127.0.0.1", 0), handler)
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    folder = root / "site"
    folder.mkdir()
    world = World(root, folder, url, publisher, [], None, server=server)  # type: ignore[arg-type]
    world.roots, world.signer = [world.new_key("root")], world.new_key("index")
    handler.world = world
    world.rotate()
    world.publish()
    world.publish()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield world
    finally:
        server.shutdown()
        server.server_close()


def hang(handler: Handler) -> None:
    time.sleep(3.0)
    close(handler)


def close(handler: Handler) -> None:
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def drip(handler: Handler, raw: bytes, pause_s: float = 0.2) -> None:
    """Send bytes one by one, for three seconds."""
    handler.close_connection = True
    for place in range(min(len(raw), int(3.0 / pause_s))):
        handler.wfile.write(raw[place : place + 1])
        time.sleep(pause_s)


def send_raw(handler: Handler, raw: bytes) -> None:
    handler.close_connection = True
    handler.wfile.write(raw)


def flood(handler: Handler, head: bytes, piece: bytes) -> None:
    """Send without end, until the client closes the connection or 256 MiB have gone."""
    handler.close_connection = True
    handler.wfile.write(head)
    for _ in range(2**28 // len(piece)):
        handler.wfile.write(piece)
