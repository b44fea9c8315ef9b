"""A signed index in a bucket: `s3://bucket/prefix` with boto3, against moto's server, which speaks S3's protocol."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hostile_index import KEYS, SMALL, World, published, sign
from stores import key_of, put

from tilewright.base import knobs
from tilewright.base.errors import MissingExtraError, StoreError
from tilewright.base.events import Notice, add_listener
from tilewright.building.index.remote_index import IndexRemote
from tilewright.building.index.s3_transport import S3Fetcher, parse_s3_address
from tilewright.building.index.trusted import TrustedIndex
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.building.store.remote import RemoteLimits, open_remote
from tilewright.building.store.tiers import Tiers, open_tiers

boto3 = pytest.importorskip("boto3", reason="needs the extra `s3`")
moto_server = pytest.importorskip("moto.server", reason="needs moto[server], the S3 server of these tests")

pytestmark = pytest.mark.service
URL = "s3://kernels/site"
# A new client of boto3 takes half a second on an idle machine.
LIMITS = RemoteLimits(30.0, 1e6, 60.0, 1.0, 64)
LARGE = bytes(range(256)) * 4096  # 1 MiB


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """The port of a server on loopback, and credentials that it accepts."""
    started = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    yield started.get_host_and_port()[1]
    started.stop()


@pytest.fixture
def bucket(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client with the bucket `kernels`."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server}")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    client = boto3.client("s3")
    client.create_bucket(Bucket="kernels")
    yield client
    for found in client.list_objects_v2(Bucket="kernels").get("Contents", ()):
        client.delete_object(Bucket="kernels", Key=found["Key"])


def upload(client: Any, folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            client.put_object(Bucket="kernels", Key=f"site/{path.relative_to(folder)}", Body=path.read_bytes())


def machine(world: World, name: str = "client", recheck_s: float = 0.0) -> tuple[Tiers, S3Fetcher]:
    fetcher = S3Fetcher(parse_s3_address(URL))
    index = TrustedIndex(world.read("1.root.json"), world.root / name / "copy", fetcher, recheck_s)
    remote = IndexRemote(URL, index, fetcher)
    return Tiers(Store(world.root / name / "store"), remote, writes=False, limits=LIMITS), fetcher


@contextmanager
def noticed() -> Iterator[list[str]]:
    messages: list[str] = []
    with add_listener(lambda event: messages.append(event.message) if isinstance(event, Notice) else None):
        yield messages


def test_a_hit_a_miss_and_a_new_version(bucket: Any, tmp_path: Path) -> None:
    with published(tmp_path) as world:
        upload(bucket, world.folder)
        client, fetcher = machine(world)
        assert isinstance(client.find_entries([KEYS[0]])[KEYS[0]], Artifact)
        assert fetcher.requests == 6  # root, timestamp, snapshot, targets, a bin, the blob
        put(world.publisher, key_of("new"), SMALL, kernel={})
        world.publish()
        upload(bucket, world.folder)
        assert set(client.find_entries([key_of("new")])) == {key_of("new")}


def test_the_environment_opens_it(bucket: Any, tmp_path: Path, clean_knobs: pytest.MonkeyPatch) -> None:
    with published(tmp_path) as world:
        upload(bucket, world.folder)
        clean_knobs.setenv(knobs.REMOTE.name, URL)
        with pytest.raises(StoreError, match="only with a pinned root"):
            open_tiers()
        clean_knobs.setenv(knobs.REMOTE_ROOT.name, str(world.folder / "metadata/1.root.json"))
        tiers = open_tiers()
        assert not tiers.writes
        assert set(tiers.find_entries([KEYS[0]])) == {KEYS[0]}


def find_blob(world: World, number: int) -> Path:
    return next((world.folder / "blobs").glob(f"*/*.{KEYS[number]}"))


def name_blob(world: World) -> str:
    return f"site/{find_blob(world, 1).relative_to(world.folder)}"


def swap_blobs(client: Any, world: World) -> None:
    client.put_object(Bucket="kernels", Key=name_blob(world), Body=find_blob(world, 3).read_bytes())


def remove_blob(client: Any, world: World) -> None:
    client.delete_object(Bucket="kernels", Key=name_blob(world))


def enlarge_blob(client: Any, world: World) -> None:
    client.put_object(Bucket="kernels", Key=name_blob(world), Body=LARGE)


def compress_timestamp(client: Any, world: World) -> None:
    body = world.read("timestamp.json") + b" "
    client.put_object(Bucket="kernels", Key="site/metadata/timestamp.json", Body=body, ContentEncoding="gzip")


def serve_unsigned_timestamp(client: Any, world: World) -> None:
    body = sign(world.load("timestamp.json"))
    client.put_object(Bucket="kernels", Key="site/metadata/timestamp.json", Body=body)


def serve_huge_timestamp(client: Any, _: World) -> None:
    client.put_object(Bucket="kernels", Key="site/metadata/timestamp.json", Body=LARGE * 3)


def remove_bucket(client: Any, _: World) -> None:
    for found in client.list_objects_v2(Bucket="kernels")["Contents"]:
        client.delete_object(Bucket="kernels", Key=found["Key"])
    client.delete_bucket(Bucket="kernels")


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        (swap_blobs, "does not have the digest"),
        (remove_blob, "the bucket does not have it"),
        (enlarge_blob, "announces 1,048,576 bytes, and the signed index lists"),
        (compress_timestamp, "has the encoding 'gzip'"),
        (serve_unsigned_timestamp, "timestamp was signed by 0/1 keys"),
        (serve_huge_timestamp, "announces 3,145,728 bytes, and 16,384 is the limit"),
        (remove_bucket, "NoSuchBucket"),
    ],
)
def test_only_signed_content_is_used(attack: Any, said: str, bucket: Any, tmp_path: Path) -> None:
    with published(tmp_path) as world:
        upload(bucket, world.folder)
        client, _ = machine(world)
        assert set(client.find_entries([KEYS[0]])) == {KEYS[0]}
        attack(bucket, world)
        with noticed() as messages:
            assert client.find_entries([KEYS[1]]) == {}
        assert len(messages) == 1
        assert said in messages[0]
        assert set(client.find_entries([KEYS[0]])) == {KEYS[0]}
        if attack is remove_bucket:
            bucket.create_bucket(Bucket="kernels")


def test_missing_credentials_and_a_dead_server_are_one_notice(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with published(tmp_path) as world:
        upload(bucket, world.folder)
        with monkeypatch.context() as patch:
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                patch.delenv(name)
            patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
            patch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
            with noticed() as messages:
                assert machine(world)[0].find_entries([KEYS[0]]) == {}
        (message,) = messages
        assert "use the https:// address of a public bucket" in message
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
        with noticed() as messages:
            assert machine(world, "second")[0].find_entries([KEYS[0]]) == {}
        (message,) = messages
        assert "does not work" in message


def test_addresses() -> None:
    assert str(parse_s3_address("s3://kernels")) == "s3://kernels/"
    assert str(parse_s3_address("s3://kernels/a/b/")) == "s3://kernels/a/b/"
    for url in ("s3:kernels", "s3://", "s3://UPPER/x", "s3://user:p@ss/x", "s3://kernels/a?b=1", "s3://kernels//a//b"):
        with pytest.raises(StoreError, match="must be s3://bucket/prefix"):
            open_remote(url)


def test_without_boto3_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tilewright\[s3\]'"):
        open_remote(URL)


class CuttingProxy:
    """Passes connections on to a server, and cuts those whose answers are long after a number of bytes."""

    def __init__(self, port: int, after: int) -> None:
        self._port, self._after = port, after
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._port))
            threading.Thread(target=self._copy, args=(near, far, 2**40), daemon=True).start()
            threading.Thread(target=self._copy, args=(far, near, self._after), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket, most: int) -> None:
        try:
            while most > 0 and (piece := source.recv(min(most, 65536))):
                target.sendall(piece)
                most -= len(piece)
            self.cuts += most == 0
        except OSError:
            pass
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # the other thread waits in `recv`
            each.close()

    def close(self) -> None:
        self._listener.close()


def test_a_large_blob_is_resumed(bucket: Any, server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection breaks after 300 KB; a blob of 2 MiB arrives in ranges, each byte once."""
    with published(tmp_path) as world:
        put(world.publisher, key_of("large"), LARGE, kernel={})
        world.publish()
        upload(bucket, world.folder)
        proxy = CuttingProxy(server, 300_000)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{proxy.port}")
        client, fetcher = machine(world)
        with noticed() as messages:
            found = client.find_entries([key_of("large")])
        proxy.close()
        assert isinstance(found.get(key_of("large")), Artifact), messages
        assert proxy.cuts >= 3
        key = key_of("large")
        size = next((world.folder / "blobs").glob(f"*/*.{key}")).stat().st_size
        assert size <= fetcher.received < size + 10_000, "besides the blob: metadata"
