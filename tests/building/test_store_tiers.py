"""A shared folder behind the local store: read-through, write-back, claims, secrets, and remotes that fail."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from stores import CODE, build_every_key_once, eventually, forked, key_of, kill, noticed, put, whole

from tilewright.base.errors import KnobError, RemoteError, StoreError, UnknownValueError
from tilewright.building.store import tiers as module
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.store.local import Store
from tilewright.building.store.remote import open_remote, read_secret
from tilewright.building.store.remote_folder import FolderRemote
from tilewright.building.store.tiers import CircuitBreaker, Tiers, open_tiers

KEY, OTHER = key_of(1), key_of(2)


@pytest.fixture
def shared(tmp_path: Path) -> FolderRemote:
    (tmp_path / "shared").mkdir()
    return FolderRemote(tmp_path / "shared")


def machine(tmp_path: Path, remote: FolderRemote, name: str, secret: bytes | None = None) -> Tiers:
    return Tiers(Store(tmp_path / name / "store"), remote, secret)


def blob_path(remote: FolderRemote, key: str = KEY) -> Path:
    return remote.folder / "v1" / "blobs" / key[:2] / key


def test_what_one_machine_builds_another_has(tmp_path: Path, shared: FolderRemote) -> None:
    one, two = machine(tmp_path, shared, "one"), machine(tmp_path, shared, "two")
    one.publish(put(one.local, KEY))
    one.publish(one.local.put_failure(OTHER, "no", {"slug": "y"}))
    found = two.find_entries([KEY, OTHER, key_of(3)])
    assert set(found) == {KEY, OTHER}
    taken = found[KEY]
    assert isinstance(taken, Artifact)
    assert taken.verify_file("kernel.so").read_bytes() == CODE
    assert taken.folder.is_relative_to(two.local.root)
    assert found[OTHER] == Failure(OTHER, "no", {"slug": "y"})
    blob_path(shared).unlink()
    assert two.find_entries([KEY])[KEY] == taken
    assert list((shared.folder / "v1" / "new").iterdir()) == []


def test_without_a_remote(tmp_path: Path) -> None:
    alone = Tiers(Store(tmp_path / "store"))
    alone.publish(put(alone.local, KEY))
    assert set(alone.find_entries([KEY, OTHER])) == {KEY}
    assert alone.claim(OTHER)
    alone.release(OTHER)
    assert alone.wait_for(OTHER, 5) is None


def test_one_that_only_reads_writes_nothing(tmp_path: Path, shared: FolderRemote) -> None:
    reader = replace(machine(tmp_path, shared, "reader"), writes=False)
    reader.publish(put(reader.local, KEY))
    assert reader.claim(OTHER)
    reader.release(OTHER)
    assert list(shared.folder.iterdir()) == []


@pytest.mark.parametrize("damage", ["flip", "cut", "other", "empty", "huge"])
def test_rubbish_counts_as_absent_and_is_noticed_once(tmp_path: Path, shared: FolderRemote, damage: str) -> None:
    one, two = machine(tmp_path, shared, "one"), machine(tmp_path, shared, "two")
    one.publish(put(one.local, KEY))
    path = blob_path(shared)
    content = path.read_bytes()
    if damage == "huge":
        os.truncate(path, 2**33)
    else:
        flipped = content[:5000] + bytes([content[5000] ^ 1]) + content[5001:]
        path.write_bytes({"flip": flipped, "cut": content[:-1], "other": b"?" * 99, "empty": b""}[damage])
    with noticed() as messages:
        assert two.find_entries([KEY]) == {}
        assert two.find_entries([KEY]) == {}
    assert len(messages) == 1
    assert KEY in messages[0]
    assert two.rubbish.keys == {KEY}
    assert two.link.allows_calls
    two.publish(put(two.local, KEY))
    three = machine(tmp_path, shared, "three")
    assert KEY in three.find_entries([KEY])
    assert whole(three.local, KEY)


def test_a_blob_under_another_key_is_rubbish(tmp_path: Path, shared: FolderRemote) -> None:
    one, two = machine(tmp_path, shared, "one"), machine(tmp_path, shared, "two")
    one.publish(put(one.local, KEY))
    blob_path(shared, OTHER).parent.mkdir(exist_ok=True)
    blob_path(shared, OTHER).write_bytes(blob_path(shared).read_bytes())
    assert two.find_entries([OTHER]) == {}
    assert two.rubbish.keys == {OTHER}


def test_secrets(tmp_path: Path, shared: FolderRemote) -> None:
    ours, theirs = b"o" * 32, b"t" * 32
    plain, signed = machine(tmp_path, shared, "plain"), machine(tmp_path, shared, "signed", ours)
    plain.publish(put(plain.local, KEY))
    assert signed.find_entries([KEY]) == {}
    signed.publish(put(signed.local, OTHER))
    assert machine(tmp_path, shared, "wrong", theirs).find_entries([OTHER]) == {}
    assert set(machine(tmp_path, shared, "right", ours).find_entries([OTHER])) == {OTHER}
    assert "o" * 32 not in repr(signed)


def test_a_share_that_is_not_mounted_is_noticed_once_and_left_alone(tmp_path: Path) -> None:
    gone = Tiers(Store(tmp_path / "store"), FolderRemote(tmp_path / "nowhere"), link=CircuitBreaker(pause_s=3))
    with noticed() as messages:
        assert gone.find_entries([KEY]) == {}
        assert gone.claim(KEY)
        gone.publish(put(gone.local, KEY))
        gone.release(KEY)
        assert gone.wait_for(OTHER, 60) is None
    assert len(messages) == 1
    assert "not used for 3 s" in messages[0]
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "nowhere").mkdir()
    eventually(lambda: gone.link.allows_calls)
    gone.publish(put(gone.local, KEY))
    assert blob_path(FolderRemote(tmp_path / "nowhere")).exists()


@dataclass(frozen=True)
class HangingRemote(FolderRemote):
    """A folder whose server does not answer: a FIFO that nobody writes to stands for the dead mount."""

    freed: threading.Event = field(default_factory=threading.Event)

    def get_sizes(self, keys: Sequence[str]) -> Mapping[str, int]:
        with (self.folder / "fifo").open("rb"):
            self.freed.set()
        return {}


def test_a_share_that_hangs_costs_a_bounded_time(
    tmp_path: Path, shared: FolderRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OPERATION_TIMEOUT_S", 0.2)
    os.mkfifo(shared.folder / "fifo")
    remote = HangingRemote(shared.folder)
    slow = Tiers(Store(tmp_path / "store"), remote, link=CircuitBreaker(pause_s=0.05))
    started = time.monotonic()
    with noticed() as messages:
        assert slow.find_entries([KEY]) == {}
        time.sleep(0.1)
        assert slow.find_entries([KEY]) == {}  # the pause is over, but the first call still hangs
    assert time.monotonic() - started < 10  # the FIFO alone would hang for ever
    assert len(messages) == 1
    assert "no answer within 0.2 s" in messages[0]
    assert not slow.link.allows_calls
    (shared.folder / "fifo").open("wb").close()
    assert remote.freed.wait(5)
    eventually(lambda: slow.link.allows_calls)


def test_whatever_goes_wrong_in_a_remote_is_an_outage() -> None:
    """Its answers are not ours: none of them may end a build. The notice has the exception's name."""
    with noticed() as messages, pytest.raises(RemoteError, match="x: ZeroDivisionError: "):
        CircuitBreaker().call("x", lambda: 1 // 0, 1, lambda: None)
    assert "ZeroDivisionError" in messages[0]


def test_a_local_store_that_cannot_be_written_is_an_error(tmp_path: Path, shared: FolderRemote) -> None:
    one = machine(tmp_path, shared, "one")
    one.publish(put(one.local, KEY))
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        Tiers(Store(tmp_path / "file" / "store"), shared).find_entries([KEY])


def test_many_keys_come_in_bounded_batches(
    tmp_path: Path, shared: FolderRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = machine(tmp_path, shared, "one"), machine(tmp_path, shared, "two")
    keys = [key_of(number) for number in range(30)]
    for key in keys:
        one.publish(one.local.put_failure(key, "x" * 1000, {}))
    monkeypatch.setattr(module, "_BATCH_BYTES", 5000)
    monkeypatch.setattr(module, "_SIZES_AT_ONCE", 8)
    assert set(two.find_entries([*keys, *keys, *(key_of(f"absent {n}") for n in range(20))])) == set(keys)


def test_a_look_up_that_takes_too_long_stops(
    tmp_path: Path, shared: FolderRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = machine(tmp_path, shared, "one"), machine(tmp_path, shared, "two")
    for number in range(5):
        one.publish(one.local.put_failure(key_of(number), "x", {}))
    monkeypatch.setattr(module, "_BATCH_KEYS", 1)
    monkeypatch.setattr(module, "LOOKUP_BASE_S", -1.0)
    with noticed() as messages:
        assert len(two.find_entries([key_of(number) for number in range(5)])) == 1
    assert "4 of 5 keys" in messages[0]


def test_an_entry_too_large_to_share_stays_here(
    tmp_path: Path, shared: FolderRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BLOB_BYTES", 1000)
    one = machine(tmp_path, shared, "one")
    with noticed() as messages:
        one.publish(put(one.local, KEY))
    assert "not shared" in messages[0]
    assert list(shared.folder.iterdir()) == []


def test_a_pusher_killed_at_any_instant_leaves_whole_blobs(tmp_path: Path, shared: FolderRemote) -> None:
    one = machine(tmp_path, shared, "one")
    entry = put(one.local, KEY)

    def work() -> None:
        while True:
            one.publish(entry)

    for number in range(30):
        pid = forked(work)
        time.sleep(0.001 * (number % 10))
        kill(pid)
        reader = machine(tmp_path, shared, f"reader-{number}")
        reader.find_entries([KEY])
        assert reader.rubbish.keys == set()


def test_eight_machines_build_every_key_once(tmp_path: Path, shared: FolderRemote) -> None:
    keys = [key_of(number) for number in range(6)]
    build_every_key_once(tmp_path, keys, lambda name: machine(tmp_path, FolderRemote(shared.folder), name))


def test_knobs_name_the_tiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: FolderRemote) -> None:
    for name in ("TILEWRIGHT_REMOTE", "TILEWRIGHT_REMOTE_SECRET_FILE", "TILEWRIGHT_REMOTE_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "mine"))
    assert open_tiers().remote is None
    secret = tmp_path / "secret"
    secret.write_bytes(b"k" * 32)
    secret.chmod(0o600)
    monkeypatch.setenv("TILEWRIGHT_REMOTE", f"folder:{shared.folder}")
    monkeypatch.setenv("TILEWRIGHT_REMOTE_SECRET_FILE", str(secret))
    found = open_tiers()
    assert (found.local.root, found.remote, found.secret, found.writes) == (
        tmp_path / "mine",
        shared,
        b"k" * 32,
        True,
    )
    assert open_tiers().link is found.link
    monkeypatch.setenv("TILEWRIGHT_REMOTE_MODE", "read")
    assert not open_tiers().writes
    monkeypatch.setenv("TILEWRIGHT_REMOTE_MODE", "write")
    with pytest.raises(KnobError, match="Known: read, read-write"):
        open_tiers()


def test_addresses() -> None:
    assert open_remote("/srv/kernels") == open_remote("folder:/srv/kernels") == FolderRemote(Path("/srv/kernels"))
    with pytest.raises(UnknownValueError, match=r"unknown scheme of a remote store 'ftp'.*Known: folder, redis"):
        open_remote("ftp://bucket")
    for url in ("folder:kernels", "redis://", "redis://host:0x1", "redis://host/zero", "redis://host?ttl_s=long"):
        with pytest.raises(StoreError):
            open_remote(url)
    with pytest.raises(UnknownValueError, match="ttl_s"):
        open_remote("redis://host/0?ttl=5")


@pytest.mark.parametrize(
    ("mode", "content", "message"),
    [(0o640, b"k" * 32, "mode 0640.*chmod 600"), (0o604, b"k" * 32, "mode 0604"), (0o600, b"k" * 15, "15 bytes")],
)
def test_secrets_that_are_refused(tmp_path: Path, mode: int, content: bytes, message: str) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(StoreError, match=message):
        read_secret(path)
    with pytest.raises(StoreError, match="No such file"):
        read_secret(tmp_path / "nothing")
