"""Damaged entries are never given, are moved aside, and are found by `verify`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stores import key_of, noticed, put, whole

from tilewright.base.errors import CorruptError
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.damaged import MAX_COPIES
from tilewright.building.store.local import Store
from tilewright.building.store.maintenance import move_damaged_entries, verify_entries

KEY = key_of(1)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def edit(**changes: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "manifest.json"
        table = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({name: value for name, value in table.items() if value is not None}))

    return damage


def write(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def truncate(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-1]) and None


def unlink(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def as_link(folder: Path) -> None:
    """The file's bytes, but somewhere else, where anybody could change them later."""
    outside = folder.parents[5] / "outside.so"
    shutil.move(folder / "kernel.so", outside)
    (folder / "kernel.so").symlink_to(outside)


def as_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("no folder")


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


GOOD = {"size": 1, "blake2b": "0" * 32}
SEEN_AT_ONCE: dict[str, tuple[Callable[[Path], None], str]] = {
    "manifest truncated": (truncate("manifest.json"), "not JSON"),
    "manifest empty": (write("manifest.json", b""), "not JSON"),
    "manifest of zeros": (write("manifest.json", b"\0" * 500), "not JSON"),
    "manifest too deep": (write("manifest.json", b"[" * 100_000), "not JSON"),
    "manifest not a table": (write("manifest.json", b"[]"), "not a table"),
    "manifest huge": (write("manifest.json", b" " * 5_000_000), "over 4,194,304 bytes"),
    "manifest with nan": (write("manifest.json", b'{"schema":NaN}'), "NaN"),
    "manifest with 1e999": (write("manifest.json", b'{"schema":1e999}'), "1e999"),
    "manifest missing": (unlink("manifest.json"), "missing"),
    "unknown schema": (edit(schema=2), "schema 2, but only 1 is supported"),
    "schema true": (edit(schema=True), "schema True"),
    "another key": (edit(key=key_of(2)), "not to"),
    "unknown kind": (edit(kind="pickle"), "kind 'pickle'"),
    "failure with files": (edit(kind="failure"), "a failure has the files"),
    "missing field": (edit(facts=None), "has the keys"),
    "foreign field": (edit(run="rm -rf"), "has the keys"),
    "facts no table": (edit(facts=[]), "must be tables"),
    "created no number": (edit(created="now"), "'created'"),
    "version no text": (edit(version=3), "'version'"),
    "file outside": (edit(files={"../../x": GOOD}), "not a plain file name"),
    "file absolute": (edit(files={"/etc/passwd": GOOD}), "not a plain file name"),
    "file is the manifest": (edit(files={"manifest.json": GOOD}), "not a plain file name"),
    "file without size": (edit(files={"kernel.so": {"blake2b": "0" * 32}}), "size and blake2b"),
    "size negative": (edit(files={"kernel.so": {"size": -1, "blake2b": "0" * 32}}), "size or blake2b"),
    "digest no digest": (edit(files={"kernel.so": {"size": 1, "blake2b": "x"}}), "size or blake2b"),
    "file truncated": (truncate("kernel.so"), "bytes instead of"),
    "file missing": (unlink("kernel.so"), "kernel.so is missing"),
    "file is a link": (as_link, "not a regular file"),
    "entry is a file": (as_file, "not a folder"),
    "entry is empty": (empty, "manifest.json is missing"),
}


@pytest.mark.parametrize("name", SEEN_AT_ONCE)
def test_damage_that_get_sees(store: Store, name: str) -> None:
    damage, reason = SEEN_AT_ONCE[name]
    damage(put(store, KEY).folder)
    assert [finding.key for finding in verify_entries(store)] == [KEY]
    assert not store.layout.corrupt.exists()
    with noticed() as messages:
        assert store.get(KEY) is None
    assert len(messages) == 1
    assert reason in messages[0]
    assert (store.layout.corrupt / f"{KEY}-0").exists()
    assert list(store.list_keys()) == []
    assert verify_entries(store) == []
    put(store, KEY, b"again")
    assert whole(store, KEY, b"again")


def test_a_flipped_bit_is_seen_before_the_file_is_used(store: Store) -> None:
    made = put(store, KEY)
    content = bytearray((made.folder / "kernel.so").read_bytes())
    content[1000] ^= 1
    (made.folder / "kernel.so").write_bytes(content)
    found = store.get(KEY)
    assert isinstance(found, Artifact)
    with noticed() as messages, pytest.raises(CorruptError, match="build it again"):
        found.verify_file("kernel.so")
    assert "kernel.so has 204,800 bytes" in messages[0]
    assert store.get(KEY) is None
    assert (store.layout.corrupt / f"{KEY}-0" / "kernel.so").read_bytes() == content


def test_an_artifact_that_was_removed_since_is_said_to_be_gone(store: Store) -> None:
    made = put(store, KEY)
    store.remove(KEY)
    with noticed() as messages, pytest.raises(CorruptError, match="no longer exists"):
        made.verify_file("kernel.so")
    assert messages == []
    put(store, KEY)
    assert made.verify_file("kernel.so").exists()


def test_the_log_of_a_failure_is_checked_when_read(store: Store) -> None:
    store.put_failure(KEY, "yes", {})
    (store.layout.entry_folder(KEY) / "build.log").write_text("yet")
    assert [finding.kind for finding in verify_entries(store)] == ["wrong digest"]
    assert store.get(KEY) is None


def test_damaged_copies_of_one_key_are_bounded(store: Store) -> None:
    for _ in range(MAX_COPIES + 5):
        unlink("manifest.json")(put(store, KEY, b"x").folder)
        assert store.get(KEY) is None
    assert len(list(store.layout.corrupt.iterdir())) == MAX_COPIES


def test_verify_names_every_finding(store: Store) -> None:
    folders = [put(store, key_of(i), b"x" * 10).folder for i in range(6)]
    (folders[0] / "kernel.so").write_bytes(b"y" * 10)
    (folders[1] / "kernel.so").write_bytes(b"x")
    (folders[2] / "kernel.so").unlink()
    (folders[3] / "manifest.json").write_text("{}")
    (folders[4] / "more.so").write_text("")
    (store.layout.entries / "notes.txt").write_text("")
    (folders[5].parent / key_of(5)[::-1]).mkdir()
    findings = {str(f.key): f.kind for f in verify_entries(store) if f.key}
    assert findings == {
        key_of(0): "wrong digest",
        key_of(1): "wrong size",
        key_of(2): "missing file",
        key_of(3): "bad manifest",
        key_of(4): "foreign file",
    }
    strays = {f.path for f in verify_entries(store) if f.key is None}
    assert strays == {store.layout.entries / "notes.txt", folders[5].parent / key_of(5)[::-1]}
    assert [f.key for f in verify_entries(store, [key_of(0), key_of(5)])] == [key_of(0)]
    assert len(move_damaged_entries(store, verify_entries(store))) == 7
    assert verify_entries(store) == []
    assert list(store.list_keys()) == [key_of(5)]
