"""A signed index: its parts, publishing it step by step, rotation of keys, and requests that a client makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hostile_index import KEYS, SMALL, published
from stores import key_of, noticed, put

from tilewright.base import knobs
from tilewright.base.errors import InvalidValueError, KnobError, RemoteError, StoreError
from tilewright.building.index.publish import build_index, verify_folder, write_keys
from tilewright.building.index.shards import BlobRecord, check_shard, find_record, hash_bytes, make_shards, read_table
from tilewright.building.index.signing import create_private_key, parse_pins, read_private_key
from tilewright.building.index.transport import parse_address
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.building.store.remote import open_remote
from tilewright.building.store.tiers import open_tiers


@pytest.mark.parametrize("count", [0, 1, 200, 201, 5000])
def test_every_key_is_found_in_its_shard_and_no_other_is(count: int) -> None:
    records = [BlobRecord(key_of(n), n + 1, hash_bytes(b"%d" % n)) for n in range(count)]
    table, shards = make_shards(records)
    assert table.count == count and read_table(table.bits, table.to_text()) == table
    for record in records:
        row = table.find_row(record.key)
        assert find_record(check_shard(shards[row.digest], row), record.key) == record
    for number in range(50):
        row = table.find_row(key := key_of(f"absent {number}"))
        assert row.count == 0 or find_record(shards[row.digest], key) is None
    assert max((len(body) for body in shards.values()), default=0) <= 8 + 52 * 400


def test_a_hit_costs_few_requests_and_a_miss_none(tmp_path: Path) -> None:
    with published(tmp_path) as world:
        client = world.client(recheck_s=3600.0)
        assert set(client.find_entries(KEYS[:2])) == set(KEYS[:2])
        blobs = [f"/blobs/{key[:2]}/{key}" for key in KEYS[:2]]
        assert [path for path in world.asked if "shards" not in path] == ["/keys.json", "/index.json", *blobs]
        world.asked.clear()
        assert client.find_entries([key_of(n) for n in range(100, 200)]) == {}
        assert world.asked == []
        # Another process of the machine uses the copy on disk.
        again = world.client(recheck_s=3600.0)
        assert set(again.find_entries([KEYS[2]])) == {KEYS[2]}
        assert [path for path in world.asked if "blobs" not in path] == []


def test_a_new_version_is_found_with_conditional_requests(tmp_path: Path) -> None:
    from tilewright.building.index.serve import make_server

    with published(tmp_path) as world, make_server(world.folder, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        world.url = f"http://127.0.0.1:{server.server_address[1]}/"
        client = world.client()
        assert client.find_entries([KEYS[0]])
        fetcher = client.remote.fetcher  # type: ignore[union-attr]
        before = fetcher.received
        assert client.find_entries([key_of("absent")]) == {}
        assert fetcher.received == before, "304 has no body"
        put(world.publisher, key_of("new"), SMALL, kernel={})
        world.publish()
        assert set(client.find_entries([key_of("new")])) == {key_of("new")}
        server.shutdown()


def test_a_client_follows_rotated_keys(tmp_path: Path) -> None:
    with published(tmp_path) as world:
        first = world.roots[0]
        client, late = world.client("early"), world.client("late", pins=(first.public,))
        assert client.find_entries([KEYS[0]])
        world.rotate(roots=[world.new_key("second")], signer=world.new_key("second-index"))
        world.publish()
        assert client.find_entries([KEYS[1]])
        world.rotate(roots=[world.new_key("third"), world.new_key("fourth")])
        assert client.find_entries([KEYS[2]])
        assert late.find_entries([KEYS[3]]), "from the first pin through two rotations"
        newest = world.client("newest", pins=(world.roots[1].public,))
        assert newest.find_entries([KEYS[4]])


def test_new_index_keys_count_versions_anew(tmp_path: Path) -> None:
    """A thief of the index key signs a huge version. After the rotation, the owner's versions count."""
    from test_index_attacks import serve, sign_index_as

    with published(tmp_path) as world:
        client = world.client()
        serve("/index.json", sign_index_as(world, world.signer, version=2**62))(world)
        assert client.find_entries([KEYS[0]])
        world.misbehaviour.clear()
        world.rotate(signer=world.new_key("new"))
        world.publish()
        assert client.find_entries([KEYS[1]])


def test_a_threshold_of_root_keys_must_sign(tmp_path: Path) -> None:
    keys = [create_private_key(tmp_path / f"{n}.key") for n in range(3)]
    public = [key.public for key in keys]
    with pytest.raises(RemoteError, match="root keys before it"):
        write_keys(tmp_path, "x", public, public[:1], 2, keys[:1], 10)
    assert write_keys(tmp_path, "x", public, public[:1], 2, keys[:2], 10) == 1
    with pytest.raises(RemoteError, match="root keys before it"):
        write_keys(tmp_path, "x", public, public[:1], 2, keys[2:], 10)
    assert write_keys(tmp_path, "x", public, public[1:], 2, keys[1:], 10) == 2


def test_building_again_adds_only_new_kernels(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for number in range(3):
        put(store, key_of(number), SMALL, kernel={})
    put(store, key_of("no kernel"), SMALL)
    made = build_index(tmp_path / "site", store)
    assert (made.keys, made.added) == (3, 3)
    put(store, key_of(3), SMALL, kernel={})
    again = build_index(tmp_path / "site", store)
    assert (again.keys, again.added) == (4, 1)


def test_verify_names_damaged_files(tmp_path: Path) -> None:
    with published(tmp_path) as world:
        pins = (world.roots[0].public,)
        assert verify_folder(world.folder, pins, blobs=True)[1] == []
        blob = world.folder / "blobs" / KEYS[0][:2] / KEYS[0]
        blob.write_bytes(blob.read_bytes()[:-1] + b"x")
        assert [str(blob) in problem for problem in verify_folder(world.folder, pins, blobs=True)[1]] == [True]
        assert verify_folder(world.folder, pins, blobs=False)[1] == []
        next((world.folder / "shards").rglob("*/*")).write_bytes(b"x")
        assert "does not have the bytes" in verify_folder(world.folder, pins, blobs=False)[1][0]
        with pytest.raises(RemoteError, match="not signed by a pinned key"):
            verify_folder(world.folder, ("0" * 64,), blobs=False)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/x",
        "https://user:pass@host/",
        "https://host/?a=1",
        "https:///x",
        "http://[::2]/",
        "https://h:x/",
    ],
)
def test_addresses_that_are_not_used(url: str) -> None:
    with pytest.raises(StoreError):
        parse_address(url)


def test_addresses_of_loopback_may_lack_tls() -> None:
    for host in ("localhost", "127.0.0.1", "127.8.9.10", "[::1]"):
        assert str(parse_address(f"http://{host}:80/a")) == f"http://{host}:80/a/"


def test_an_index_needs_a_pinned_key(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_knobs.setenv(knobs.REMOTE.name, "https://example.org/kernels")
    with pytest.raises(StoreError, match="only with a pinned key"):
        open_tiers()
    clean_knobs.setenv(knobs.REMOTE_KEYS.name, "ed25519:12")
    with pytest.raises(KnobError, match="64 hex digits"):
        open_tiers()
    clean_knobs.setenv(knobs.REMOTE_KEYS.name, "ed25519:" + "ab" * 32)
    tiers = open_tiers()
    assert tiers.remote is not None and not tiers.writes
    assert tiers.claim(key_of(0)), "nothing is claimed on a host that is only read"
    clean_knobs.setenv(knobs.REMOTE_MODE.name, "read-write")
    with pytest.raises(StoreError, match="only read"):
        open_tiers()
    clean_knobs.setenv(knobs.REMOTE_SECRET_FILE.name, str(tmp_path / "secret"))
    with pytest.raises(StoreError, match="for private stores"):
        open_remote("https://example.org/kernels")


def test_private_keys_are_private(tmp_path: Path) -> None:
    path = tmp_path / "key"
    made = create_private_key(path)
    assert path.stat().st_mode & 0o777 == 0o600 and read_private_key(path).public == made.public
    assert path.read_text().strip() not in repr(made)
    with pytest.raises(StoreError, match="never overwritten"):
        create_private_key(path)
    path.chmod(0o644)
    with pytest.raises(StoreError, match="chmod 600"):
        read_private_key(path)
    with pytest.raises(InvalidValueError, match="pinned key"):
        parse_pins("rsa:1234")


@pytest.mark.parametrize("damage", ["state.json", "keys.json", "index.json", "shards"])
def test_a_damaged_copy_is_asked_for_again(tmp_path: Path, damage: str) -> None:
    with published(tmp_path) as world:
        client = world.client(recheck_s=3600.0)
        assert client.find_entries([KEYS[0]])
        folder = client.remote.copy.folder  # type: ignore[union-attr]
        for path in [folder / damage] if damage != "shards" else (folder / damage).iterdir():
            path.write_bytes(b"damaged")
        with noticed() as messages:
            assert world.client(recheck_s=3600.0).find_entries([KEYS[1]])
        assert len(messages) == (1 if damage == "state.json" else 0), messages


def test_a_copy_of_others_is_not_used(tmp_path: Path) -> None:
    with published(tmp_path) as world:
        client = world.client()
        folder = client.remote.copy.folder  # type: ignore[union-attr]
        folder.mkdir(parents=True)
        folder.chmod(0o777)
        with noticed() as messages:
            assert client.find_entries([KEYS[0]]) == {}
        assert len(messages) == 1 and str(folder) in messages[0]


def test_commands_publish_what_a_client_finds(tmp_path: Path, clean_knobs: pytest.MonkeyPatch) -> None:
    """All steps by the command line; the server is a process of its own."""
    store = Store(tmp_path / "publisher")
    for key in KEYS:
        put(store, key, SMALL, kernel={})
    environment = {**os.environ, knobs.STORE.name: str(store.root)}

    def run(*arguments: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "tilewright", "index", *arguments]
        done = subprocess.run(command, env=environment, cwd=tmp_path, check=False, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return done.stdout if code < 2 else done.stderr

    root, index = (run("new-key", f"{name}.key").strip() for name in ("root", "index"))
    assert json.loads(run("build", "site", "--json"))["added"] == len(KEYS)
    assert "does not exist" in run("sign", "site", "--key", "index.key", code=2)
    run("trust", "site", "--root-key", "root.key", "--index-key", index)
    assert "is not an index key" in run("sign", "site", "--key", "root.key", code=2)
    assert run("sign", "site", "--key", "index.key").startswith("version 1 with 6 kernels")
    assert "good" in run("verify", "site", "--pin", root, "--blobs")
    assert "not signed by a pinned key" in run("verify", "site", "--pin", index, code=2)
    command = [sys.executable, "-m", "tilewright", "index", "serve", "site"]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            clean_knobs.setenv(knobs.REMOTE.name, server.stdout.readline().strip())
            clean_knobs.setenv(knobs.REMOTE_KEYS.name, root)
            found = open_tiers().find_entries(list(KEYS))
            assert set(found) == set(KEYS) and all(isinstance(entry, Artifact) for entry in found.values())
        finally:
            server.terminate()


def test_threads_share_one_client(tmp_path: Path) -> None:
    with published(tmp_path) as world:
        client = world.client(recheck_s=3600.0)
        found: list[int] = []

        def look_up() -> None:
            mine = replace(client, local=Store(tmp_path / f"store-{threading.get_ident()}"))
            found.append(len(mine.find_entries(KEYS)))

        threads = [threading.Thread(target=look_up) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [len(KEYS)] * 8
