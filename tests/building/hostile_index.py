"""A signed index, a client of it, and a server on loopback that can do everything a stolen host can."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from securesystemslib.signer import CryptoSigner
from stores import key_of, put
from tuf.api.metadata import Metadata, Root, Signed

from tilewright.building.index.keys import create_private_key
from tilewright.building.index.publish import publish_kernels, sign_timestamp, write_root
from tilewright.building.index.remote_index import IndexRemote
from tilewright.building.index.transport import Fetcher, parse_address
from tilewright.building.index.trusted import TrustedIndex
from tilewright.building.store.local import Store
from tilewright.building.store.remote import RemoteLimits
from tilewright.building.store.tiers import CircuitBreaker, Tiers

PATIENT = RemoteLimits(30.0, 1e6, 60.0, 1.0, 64)
# Short, so that a server that does not answer costs a test two seconds.
IMPATIENT = RemoteLimits(2.0, 1e6, 5.0, 1.0, 64)
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
    """A published index in `folder`, served at `url`, and a client machine in `root`.

    `roots`, `index` and `timestamp` are the owner's newest keys; `thief` is the key of somebody else.
    """

    root: Path
    folder: Path
    url: str
    publisher: Store
    roots: list[CryptoSigner]
    index: CryptoSigner
    timestamp: CryptoSigner
    thief: CryptoSigner
    threshold: int = 1
    misbehaviour: dict[str, Misbehave] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    server: Server | None = None

    def client(
        self, name: str = "client", *, recheck_s: float = 0.0, root: bytes | None = None, limits: RemoteLimits = PATIENT
    ) -> Tiers:
        """A machine with a store of its own, which pins the first root."""
        pinned = root if root is not None else self.read("1.root.json")
        fetcher = Fetcher(parse_address(self.url))
        index = TrustedIndex(pinned, self.root / name / "copy", fetcher, recheck_s)
        remote = IndexRemote(self.url, index, fetcher)
        link = CircuitBreaker()
        return Tiers(Store(self.root / name / "store"), remote, writes=False, link=link, limits=limits)

    def publish(self, days: float = 14.0) -> None:
        """Publish the next snapshot."""
        publish_kernels(self.folder, self.publisher, self.index, 90)
        sign_timestamp(self.folder, self.timestamp, days)

    def new_key(self, name: str) -> CryptoSigner:
        return create_private_key(self.root / f"{name}.key")

    def rotate(
        self,
        *,
        roots: list[CryptoSigner] | None = None,
        index: CryptoSigner | None = None,
        timestamp: CryptoSigner | None = None,
    ) -> None:
        """Write the next root, signed by the keys before it and its own."""
        before, self.roots = self.roots, roots or self.roots
        self.index, self.timestamp = index or self.index, timestamp or self.timestamp
        signers = list({key.public_key.keyid: key for key in (*before, *self.roots)}.values())
        public = [key.public_key for key in self.roots]
        keys = [[self.index.public_key], [self.timestamp.public_key]]
        write_root(self.folder, public, *keys, self.threshold, signers, 365)

    def read(self, name: str) -> bytes:
        """Metadata of the folder; `targets.json` is that of the newest version."""
        paths = (self.folder / "metadata").glob(f"*{name}")
        return max(paths, key=lambda path: int(path.name.split(".")[0]) if "." in path.stem else 0).read_bytes()

    def load(self, name: str) -> Any:
        """The content of metadata of the folder, to be changed and signed by a thief."""
        return Metadata[Root].from_bytes(self.read(name)).signed


def sign(content: Signed, *signers: CryptoSigner) -> bytes:
    metadata: Any = Metadata(content)  # type: ignore[type-var]
    for signer in signers:
        metadata.sign(signer, append=True)
    return bytes(metadata.to_bytes())


@contextmanager
def published(root: Path) -> Iterator[World]:
    """A world with six kernels, each in a bin of its own, and the second snapshot."""
    publisher = Store(root / "publisher")
    for number, key in enumerate(KEYS):
        put(publisher, key, SMALL + bytes([number]), kernel={})
    handler = type("WorldHandler", (Handler,), {})
    server = Server(("127.0.0.1", 0), handler)
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    folder = root / "site"
    folder.mkdir()
    (root / "keys").mkdir()
    keys = [create_private_key(root / "keys" / name) for name in ("root", "index", "timestamp", "thief")]
    world = World(root, folder, url, publisher, keys[:1], *keys[1:], server=server)
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
