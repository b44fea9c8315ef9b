"""A signed index: publishing it step by step, rotation of keys, and requests that a client makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hostile_index import KEYS, SMALL, World, published, sign
from stores import eight_at_once, key_of, noticed, put
from test_index_attacks import EVIL, change_timestamp, list_evil, read_blob, serve, serve_new_timestamp, write_evil_root
from tuf.api.metadata import MetaFile, TargetFile

from tilewright.base import knobs
from tilewright.base.errors import InvalidValueError, KnobError, RemoteError, StoreError
from tilewright.building.index.keys import create_private_key, format_public_key, parse_public_key, read_private_key
from tilewright.building.index.publish import (
    publish_kernels,
    publish_targets,
    sign_timestamp,
    verify_folder,
    write_root,
)
from tilewright.building.index.transport import parse_address
from tilewright.building.index.trusted import get_blob_path
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.building.store.remote import open_remote
from tilewright.building.store.tiers import Tiers, open_tiers


def forget(client: Tiers) -> None:
    """Let a client ask the host again after an hour."""
    os.utime(client.remote.index.copy / "checked", (0, time.time() - 4000))  # type: ignore[union-attr]


def add(world: World, numbers: range) -> list[str]:
    """List kernels that have no blobs."""
    keys = [key_of(f"more {number}") for number in numbers]
    new = [TargetFile.from_data(get_blob_path(key), b"x", ["sha256"]) for key in keys]
    publish_targets(world.folder, new, world.index, 90)
    sign_timestamp(world.folder, world.timestamp, 14)
    return keys


def test_every_key_is_in_its_bin_after_splits(tmp_path: Path) -> None:
    with published(tmp_path) as world:
        client = world.client(recheck_s=3600.0)
        assert set(client.remote.get_sizes(KEYS)) == set(KEYS)  # type: ignore[union-attr]
        keys = list(KEYS)
        for numbers, bins in ((range(2), 8), (range(2, 100), 16), (range(100, 1500), 64)):
            keys += add(world, numbers)
            assert world.load("targets.json").delegations.succinct_roles.number_of_bins == bins
            forget(client)
            client = world.client(recheck_s=3600.0)  # its copy has the bins before the split
            absent = [key_of(f"absent {number}") for number in range(50)]
            assert set(client.remote.get_sizes([*keys, *absent])) == set(keys)  # type: ignore[union-attr]


def test_a_hit_costs_few_requests_and_a_miss_one(tmp_path: Path) -> None:
    with published(tmp_path) as world:
        client = world.client(recheck_s=3600.0)
        assert set(client.find_entries(KEYS[:2])) == set(KEYS[:2])
        names = [path.rpartition("/")[2] for path in world.asked if "blobs" not in path]
        assert names == [
            "2.root.json",
            "timestamp.json",
            "2.snapshot.json",
            "2.targets.json",
            "1.bin-3.json",
            "1.bin-5.json",
        ]
        assert sum("blobs" in path for path in world.asked) == 2
        world.asked.clear()
        # Another process of the machine uses the copy on disk; each bin is requested once.
        again = world.client(recheck_s=3600.0)
        assert again.find_entries([key_of(n) for n in range(100, 200)]) == {}
        assert sorted(path.rpartition("/")[2] for path in world.asked) == [
            f"1.bin-{n}.json" for n in (0, 1, 2, 4, 6, 7)
        ]
        world.asked.clear()
        assert set(again.find_entries([KEYS[2]])) == {KEYS[2]}
        assert [path for path in world.asked if "blobs" not in path] == []


def test_an_unchanged_index_costs_two_requests_an_hour(tmp_path: Path) -> None:
    with published(tmp_path) as world:
        client = world.client(recheck_s=3600.0)
        assert client.find_entries([KEYS[0]])
        sign_timestamp(world.folder, world.timestamp, 14)
        forget(client)
        world.asked.clear()
        assert world.client(recheck_s=3600.0).find_entries([KEYS[1]])
        assert [path.rpartition("/")[2] for path in world.asked][:2] == ["2.root.json", "timestamp.json"]
        assert len(world.asked) == 4, "a bin and a blob besides"


def test_only_changed_bins_are_new(tmp_path: Path) -> None:
    with published(tmp_path) as world:
        put(world.publisher, key_of("new"), SMALL, kernel={})
        done = publish_kernels(world.folder, world.publisher, world.index, 90)
        assert (done.keys, done.added, done.bins, done.signed) == (7, 1, 8, 1)
        world.rotate(index=world.new_key("new-index"))
        assert publish_kernels(world.folder, world.publisher, world.index, 90).signed == 8


def test_a_client_follows_rotated_keys(tmp_path: Path) -> None:
    with published(tmp_path) as world:
        client, late = world.client("early"), world.client("late")
        assert client.find_entries([KEYS[0]])
        world.rotate(roots=[world.new_key("second")], index=world.new_key("second-index"))
        world.publish()
        assert client.find_entries([KEYS[1]])
        world.rotate(roots=[world.new_key("third"), world.new_key("fourth")], timestamp=world.new_key("dates"))
        world.publish()
        assert client.find_entries([KEYS[2]])
        assert late.find_entries([KEYS[3]]), "from the first root through two rotations"
        newest = world.client("newest", root=world.read("2.root.json"))
        assert newest.find_entries([KEYS[4]])


@pytest.mark.parametrize("role", ["timestamp", "index"])
def test_replaced_keys_end_a_fast_forward(tmp_path: Path, role: str) -> None:
    """A thief signs huge versions. After the owner has replaced the key, the owner's versions count."""
    with published(tmp_path) as world:
        client = world.client()
        snapshot = world.load("snapshot.json")
        snapshot.version = 2**40
        raw = sign(snapshot, world.index)
        meta = MetaFile.from_data(2**40, raw, ["sha256"])
        forged = change_timestamp(world, version=2**40, **({"snapshot_meta": meta} if role == "index" else {}))
        serve("timestamp.json", forged)(world)
        serve(f"/{2**40}.snapshot.json", raw)(world)
        assert client.find_entries([KEYS[0]])
        world.misbehaviour.clear()
        with noticed() as messages:
            assert world.client().find_entries([KEYS[1]]) == {}
        assert f"must be >= {2**40}" in messages[0]
        keys = {"timestamp": world.new_key("dates")} | (
            {"index": world.new_key("publishes")} if role == "index" else {}
        )
        world.rotate(**keys)  # type: ignore[arg-type]
        world.publish()
        assert world.client().find_entries([KEYS[1]])


def test_index_and_timestamp_key_stolen_together_deceive(tmp_path: Path) -> None:
    """Until the owner has replaced one of them. This also shows that the attacks with one key are real ones."""
    with published(tmp_path) as world:
        client = world.client()
        evil = list_evil(world, world.index)
        for path, body in evil.items():
            serve(path, body)(world)
        serve_new_timestamp(world, next(raw for name, raw in evil.items() if name.endswith(".snapshot.json")))
        assert client.remote.fetch(client.remote.get_sizes([KEYS[1]])) == {KEYS[1]: EVIL}  # type: ignore[union-attr]
        world.rotate(index=world.new_key("new-index"))
        with pytest.raises(RemoteError, match="snapshot was signed by 0/1 keys"):
            world.client().remote.get_sizes([KEYS[1]])  # type: ignore[union-attr]


def test_a_replaced_root_key_deceives_only_new_machines(tmp_path: Path) -> None:
    with published(tmp_path) as world:
        stolen, first = world.roots[0], world.read("1.root.json")
        world.rotate(roots=[world.new_key("new-root")])
        write_evil_root(world, 2, stolen)
        deceived = world.client("pins the old root", root=first).remote
        assert deceived is not None and deceived.fetch(deceived.get_sizes([KEYS[1]])) == {KEYS[1]: EVIL}
        careful = world.client("pins the new root", root=world.read("2.root.json")).remote
        assert careful is not None
        with pytest.raises(RemoteError, match="signed by 0/1 keys"):
            careful.get_sizes([KEYS[1]])


def test_a_fork_of_the_timestamp_is_not_used(tmp_path: Path) -> None:
    """Another timestamp with the version that the client has: it keeps its own."""
    with published(tmp_path) as world:
        client = world.client()
        assert client.find_entries([KEYS[0]])
        evil = list_evil(world, world.index)
        for path, body in evil.items():
            serve(path, body)(world)
        meta = MetaFile.from_data(3, next(raw for name, raw in evil.items() if "snapshot" in name), ["sha256"])
        version = world.load("timestamp.json").version
        serve("timestamp.json", change_timestamp(world, version=version, snapshot_meta=meta))(world)
        world.misbehaviour.pop(f".{KEYS[1]}")
        world.misbehaviour.pop(".bin-5.json")
        assert client.remote.fetch(client.remote.get_sizes([KEYS[1]])) == {KEYS[1]: read_blob(world, 1)}  # type: ignore[union-attr]


def test_a_threshold_of_root_keys_must_sign(tmp_path: Path) -> None:
    keys = [create_private_key(tmp_path / f"{n}.key") for n in range(3)]
    public = [key.public_key for key in keys]
    others = (public[:1], public[:1])
    with pytest.raises(StoreError, match="2 root keys of version 1 must sign, and 1 did"):
        write_root(tmp_path, public, *others, 2, keys[:1], 10)
    assert write_root(tmp_path, public, *others, 2, keys[:2], 10).name == "1.root.json"
    with pytest.raises(StoreError, match="2 root keys of version 1 must sign, and 1 did"):
        write_root(tmp_path, public[2:], *others, 1, keys[2:], 10)
    assert write_root(tmp_path, public, *others, 2, keys[1:], 10).name == "2.root.json"


def test_publishing_again_adds_only_new_kernels(tmp_path: Path) -> None:
    with published(tmp_path) as world:
        put(world.publisher, key_of("no kernel"), SMALL)
        blobs = {path: path.stat().st_mtime_ns for path in (world.folder / "blobs").rglob("*.*")}
        done = publish_kernels(world.folder, world.publisher, world.index, 90)
        assert (done.keys, done.added, done.signed) == (6, 0, 0)
        assert {path: path.stat().st_mtime_ns for path in (world.folder / "blobs").rglob("*.*")} == blobs


@pytest.mark.parametrize("role", ["root", "snapshot", "targets", "bin-3"])
def test_exchanged_metadata_is_not_signed_again(tmp_path: Path, role: str) -> None:
    with published(tmp_path) as world:
        newest = {path.name.split(".")[-2]: path for path in sorted((world.folder / "metadata").iterdir())}
        others = {
            path.read_bytes() for name, path in newest.items() if name.partition("-")[0] != role.partition("-")[0]
        }
        for content in others:
            newest[role].write_bytes(content)
            with pytest.raises(StoreError, match=f"{newest[role].name} cannot be used"):
                world.publish()


def test_verify_names_damaged_files(tmp_path: Path) -> None:
    with published(tmp_path) as world:
        root = world.read("1.root.json")
        assert verify_folder(world.folder, root, blobs=True).problems == []
        blob = next((world.folder / "blobs").rglob("*.*"))
        blob.write_bytes(blob.read_bytes()[:-1] + b"x")
        assert [str(blob) in problem for problem in verify_folder(world.folder, root, blobs=True).problems] == [True]
        assert verify_folder(world.folder, root, blobs=False).problems == []
        path = next((world.folder / "metadata").glob("*bin-2.json"))
        path.write_bytes(b"x")
        (problem,) = verify_folder(world.folder, root, blobs=False).problems
        assert str(path) in problem and "does not match expected length" in problem
        with pytest.raises(StoreError, match=f"{path.name} cannot be used"):
            world.publish()
        other = world.new_key("other")
        (tmp_path / "else").mkdir()
        keys = [other.public_key]
        with pytest.raises(RemoteError, match="signed by 0/1 keys"):
            verify_folder(
                world.folder, write_root(tmp_path / "else", keys, keys, keys, 1, [other], 9).read_bytes(), blobs=False
            )


def test_a_folder_of_the_earlier_format_is_refused(tmp_path: Path) -> None:
    key = create_private_key(tmp_path / "key")
    site = tmp_path / "site"
    site.mkdir()
    (site / "keys.json").write_text("{}")
    public = [key.public_key]
    for call in (
        lambda: write_root(site, public, public, public, 1, [key], 10),
        lambda: publish_kernels(site, Store(tmp_path / "store"), key, 10),
        lambda: sign_timestamp(site, key, 10),
        lambda: verify_folder(site, b"", blobs=False),
    ):
        with pytest.raises(StoreError, match=r"earlier format.*tilewright index publish"):
            call()


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


def test_an_index_needs_a_pinned_root(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_knobs.setenv(knobs.REMOTE.name, "https://example.org/kernels")
    with pytest.raises(StoreError, match="only with a pinned root"):
        open_tiers()
    file = tmp_path / "root.json"
    clean_knobs.setenv(knobs.REMOTE_ROOT.name, str(file))
    with pytest.raises(KnobError, match="cannot be read"):
        open_tiers()
    file.write_bytes(b'{"signatures": []}')
    with pytest.raises(KnobError, match="not root metadata of The Update Framework"):
        open_tiers()
    key = create_private_key(tmp_path / "key")
    root = write_root(tmp_path, *([key.public_key],) * 3, 1, [key], 10)
    file.write_bytes(root.read_bytes().replace(b'"threshold":1', b'"threshold":2'))
    with pytest.raises(KnobError, match="signed by 0"):
        open_tiers()
    clean_knobs.setenv(knobs.REMOTE_ROOT.name, str(root))
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
    key = create_private_key(path).public_key
    assert path.stat().st_mode & 0o777 == 0o600 and read_private_key(path).public_key == key
    assert parse_public_key(format_public_key(key)) == key
    with pytest.raises(StoreError, match="never overwritten"):
        create_private_key(path)
    path.chmod(0o644)
    with pytest.raises(StoreError, match="chmod 600"):
        read_private_key(path)
    path.chmod(0o600)
    path.write_text("0" * 64)
    with pytest.raises(StoreError, match="not a private key in PEM"):
        read_private_key(path)
    with pytest.raises(InvalidValueError, match="64 hex digits"):
        parse_public_key("rsa:1234")


@pytest.mark.parametrize(
    "damage", ["checked", "root.json", "timestamp.json", "snapshot.json", "targets.json", "bin-3.json"]
)
def test_a_damaged_copy_is_asked_for_again(tmp_path: Path, damage: str) -> None:
    with published(tmp_path) as world:
        client = world.client(recheck_s=3600.0)
        assert client.find_entries([KEYS[0]])
        copy = client.remote.index.copy  # type: ignore[union-attr]
        (copy / damage).write_bytes(b"damaged")
        again = world.client(recheck_s=3600.0)
        with noticed() as messages:
            assert set(again.remote.get_sizes(KEYS[:2])) == set(KEYS[:2])  # type: ignore[union-attr]
        assert messages == []


def test_a_copy_of_others_is_not_used(tmp_path: Path) -> None:
    with published(tmp_path) as world:
        client = world.client()
        copy = client.remote.index.copy  # type: ignore[union-attr]
        copy.mkdir(parents=True)
        copy.chmod(0o777)
        with noticed() as messages:
            assert client.find_entries([KEYS[0]]) == {}
        assert len(messages) == 1 and str(copy) in messages[0]


def test_a_copy_that_cannot_be_written_is_one_notice(tmp_path: Path) -> None:
    with published(tmp_path) as world:
        client = world.client()
        copy = client.remote.index.copy  # type: ignore[union-attr]
        copy.parent.mkdir(parents=True)
        copy.write_bytes(b"a file")
        with noticed() as messages:
            assert client.find_entries([KEYS[0]]) == {}
        assert len(messages) == 1 and f"the copy of the index in {copy} cannot be used" in messages[0]


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

    _, index, timestamp = (run("new-key", f"{name}.key").strip() for name in ("root", "index", "timestamp"))
    trust = ("trust", "site", "--root-key", "root.key", "--index-key", index, "--timestamp-key", timestamp)
    root = run(*trust).strip()
    assert root == "site/metadata/1.root.json"
    assert "not one of the role 'targets'" in run("publish", "site", "--key", "timestamp.key", code=2)
    assert "has no snapshot" in run("sign", "site", "--key", "timestamp.key", code=2)
    assert json.loads(run("publish", "site", "--key", "index.key", "--json"))["added"] == len(KEYS)
    assert "not one of the role 'timestamp'" in run("sign", "site", "--key", "index.key", code=2)
    assert run("sign", "site", "--key", "timestamp.key").startswith("version 1 with snapshot 1, for 14 days")
    assert "good: snapshot 1 with 6 kernels" in run("verify", "site", "--root", root, "--blobs")
    command = [sys.executable, "-m", "tilewright", "index", "serve", "site"]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            clean_knobs.setenv(knobs.REMOTE.name, server.stdout.readline().strip())
            clean_knobs.setenv(knobs.REMOTE_ROOT.name, str(tmp_path / root))
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


def test_processes_share_one_copy(tmp_path: Path) -> None:
    """Eight processes begin cold at once: one asks the host, and all find all keys."""
    with published(tmp_path) as world:

        def work(number: int) -> bool:
            remote = world.client(recheck_s=3600.0).remote
            return remote is not None and set(remote.get_sizes(KEYS)) == set(KEYS)

        eight_at_once(work)
        assert sum("timestamp.json" in path for path in world.asked) == 1
