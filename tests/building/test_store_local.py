"""The local store: what is put comes back, for this user only, and the first of two writers wins."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest
from stores import CODE, files_below, key_of, noticed, put, whole

from tilewright.base.digest import digest_file
from tilewright.base.errors import InvalidValueError, StoreError, UnknownValueError
from tilewright.building.store.artifact import Artifact, Entry, Failure
from tilewright.building.store.damaged import DamagedEntry, move_damaged
from tilewright.building.store.files import SCHEMA, get_inode
from tilewright.building.store.local import USE_RESOLUTION_S, Store
from tilewright.building.store.manifest import read_entry

KEY = key_of(1)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_what_is_put_comes_back(store: Store) -> None:
    assert store.get(KEY) is None
    made = put(store, KEY, numbers=[1, 2.5, None])
    assert store.get(KEY) == made
    assert made.facts == {"slug": "gemm-x", "numbers": [1, 2.5, None]}
    assert made.files["kernel.so"].size == len(CODE)
    assert made.verify_file("kernel.so").read_bytes() == CODE
    assert digest_file(made.folder / "kernel.so") == made.files["kernel.so"].blake2b
    with pytest.raises(UnknownValueError, match=r"kernel\.so"):
        made.verify_file("kernel.s")


def test_a_failure_is_an_entry_too(store: Store) -> None:
    log = "error: no\nünicode as it came\n"
    made = store.put_failure(KEY, log, {"slug": "gemm-x"})
    assert made == Failure(KEY, log, {"slug": "gemm-x"})
    assert store.get(KEY) == made


def test_files_are_for_this_user_only(store: Store) -> None:
    old = os.umask(0)
    try:
        put(store, KEY)
        with store.lock_build(KEY), store.create_work_folder("x") as folder:
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        os.umask(old)
    for path in store.root.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_the_schema_is_part_of_the_path_and_nothing_else_remains(store: Store) -> None:
    put(store, KEY)
    entry = f"v{SCHEMA}/entries/{KEY[:2]}/{KEY}"
    assert files_below(store.root) == [f"{entry}/kernel.hpp", f"{entry}/kernel.so", f"{entry}/manifest.json"]


def test_another_schema_beside_it_is_not_touched(store: Store) -> None:
    other = store.root / f"v{SCHEMA + 1}" / "entries" / KEY[:2] / KEY / "manifest.json"
    other.parent.mkdir(parents=True)
    other.write_text("in a format of the future")
    assert store.get(KEY) is None
    put(store, KEY)
    assert list(store.list_keys()) == [KEY]
    store.remove(KEY)
    assert other.read_text() == "in a format of the future"


def test_the_first_of_two_writers_wins(store: Store) -> None:
    first = put(store, KEY, b"one", who="first")
    assert put(store, KEY, b"two", who="second") == first
    assert whole(store, KEY, b"one")


def test_a_damaged_winner_is_replaced(store: Store) -> None:
    (put(store, KEY, b"one").folder / "kernel.so").write_bytes(b"onf")
    with noticed() as messages:
        assert put(store, KEY, b"two").files["kernel.so"].size == 3
    assert whole(store, KEY, b"two")
    assert len(messages) == 1


def test_an_artifact_takes_the_place_of_a_failure_and_not_the_other_way_round(store: Store) -> None:
    store.put_failure(KEY, "no", {})
    put(store, KEY)
    assert whole(store, KEY)
    with noticed() as messages:
        assert store.put_failure(KEY, "no", {}).log == "no"
    assert whole(store, KEY)
    assert "is kept" in messages[0]


@pytest.mark.parametrize("key", ["", "..", "0" * 31, "0" * 33, "A" * 32, "../" + "0" * 29, "0" * 32 + "\n"])
def test_what_is_no_key_never_becomes_a_path(store: Store, key: str) -> None:
    for use in (store.get, store.remove, store.lock_build, store.try_lock_build):
        with pytest.raises(InvalidValueError, match="32 hex digits"):
            use(key)


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "/etc/passwd", "a\0b", "manifest.json", "ä", "a\n"])
def test_what_is_no_plain_name_is_refused(store: Store, name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="cannot name a file"):
        store.put(KEY, {name: Path(__file__)}, {})
    assert files_below(store.root) == []


def test_facts_that_json_cannot_hold_are_refused(store: Store) -> None:
    for facts in ({"x": object()}, {"x": float("nan")}, {"x": {1, 2}}):
        with pytest.raises(InvalidValueError, match="must be JSON"):
            store.put(KEY, {}, facts)
    with pytest.raises(InvalidValueError, match="is the limit"):
        store.put(KEY, {}, {"x": "y" * 5_000_000})
    assert files_below(store.root) == []


def test_a_source_that_is_missing_is_named(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot read .*nowhere\.so: No such file"):
        store.put(KEY, {"kernel.so": tmp_path / "nowhere.so"}, {})
    assert files_below(store.root) == []


def test_listing_and_removing(store: Store) -> None:
    keys = sorted(key_of(i) for i in range(20))
    for key in keys:
        put(store, key, b"x" * 100)
    store.put_failure(key_of("f"), "log", {})
    assert list(store.list_keys()) == sorted([*keys, key_of("f")])
    entries = {entry.key: entry for entry in store.list_entries()}
    assert set(entries) == {*keys, key_of("f")}
    assert entries[key_of("f")].failed
    assert entries[keys[0]].name == "gemm-x"
    assert entries[keys[0]].size == sum(p.stat().st_size for p in entries[keys[0]].folder.iterdir())
    assert abs(entries[keys[0]].last_use - time.time()) < 60
    assert store.remove(keys[0])
    assert not store.remove(keys[0])
    assert store.get(keys[0]) is None
    assert len(list(store.list_entries())) == 20


def test_use_is_marked_at_most_once_an_hour(store: Store) -> None:
    folder = put(store, KEY).folder
    now = time.time()
    for before, marked in ((-60, False), (-USE_RESOLUTION_S - 60, True), (+USE_RESOLUTION_S + 60, True)):
        os.utime(folder, (now + before, now + before))
        store.get(KEY)
        assert (abs(folder.stat().st_mtime - now) < 50) == marked, before
        os.utime(folder, (now, now))
    os.utime(folder, (1, 1))
    list(store.list_entries())
    assert folder.stat().st_mtime == 1


def test_what_is_loaded_survives_removal(store: Store) -> None:
    with put(store, KEY).verify_file("kernel.so").open("rb") as stream:
        store.remove(KEY)
        assert stream.read() == CODE


def test_the_store_is_where_the_knobs_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TILEWRIGHT_STORE", raising=False)
    assert Store().root == tmp_path / "cache" / "store"
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "mine"))
    assert Store().root == tmp_path / "mine"


def test_a_hit_is_cheap(store: Store) -> None:
    put(store, KEY)
    fastest = 1.0
    for _ in range(20):
        started = time.perf_counter()
        found = store.get(KEY)
        assert isinstance(found, Artifact)
        found.verify_file("kernel.so")
        fastest = min(fastest, time.perf_counter() - started)
    assert fastest < 0.003


def test_listing_is_fast(store: Store) -> None:
    """Compared with plain reading of the same manifests in the same run: the machine may be slow or busy."""
    for number in range(250):
        store.put(key_of(number), {}, {"slug": "x" * 100})
    listed = plain = 9.0
    for _ in range(5):
        started = time.process_time()
        assert len(list(store.list_entries())) == 250
        listed = min(listed, time.process_time() - started)
        started = time.process_time()
        assert len([json.loads(path.read_text()) for path in store.root.rglob("manifest.json")]) == 250
        plain = min(plain, time.process_time() - started)
    assert listed < 3 * plain


def test_a_sound_entry_with_the_inode_of_a_removed_one_goes_back(store: Store) -> None:
    """A reader judged a folder that was removed; a writer's new folder got its inode."""
    put(store, KEY, b"x")
    folder = store.layout.entry_folder(KEY)
    stale = DamagedEntry(KEY, folder, "missing file", "x is missing", get_inode(folder))
    assert move_damaged(store.layout, stale, lambda path: isinstance(read_entry(path, KEY), Entry)) is None
    assert whole(store, KEY, b"x")
    assert move_damaged(store.layout, stale) is not None
