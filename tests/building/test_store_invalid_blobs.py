"""Bytes that nobody thought of: whatever lies in an entry or comes in a blob is damage, never another exception."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stores import key_of, noticed, put, whole

from tilewright.base.digest import to_canonical_json
from tilewright.base.errors import InvalidBlobError, InvalidValueError
from tilewright.building.store import remote as module
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.store.local import Store
from tilewright.building.store.maintenance import move_damaged_entries, remove_unused_entries, verify_entries
from tilewright.building.store.manifest import parse_core, parse_manifest
from tilewright.building.store.remote import MAGIC, pack_entry, unpack_entry
from tilewright.building.store.remote_folder import FolderRemote
from tilewright.building.store.tiers import Tiers

KEY, OTHER = key_of(1), key_of(2)
NOT_UTF8 = b"error: \xff\xfe\x80 no\n"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def forged_failure(log: bytes, key: str = KEY) -> bytes:
    """A blob of a failure with a log of any bytes, and every digest right."""
    digest = hashlib.blake2b(log, digest_size=16).hexdigest()
    files = {"build.log": {"size": len(log), "blake2b": digest}}
    core = to_canonical_json({"schema": 1, "key": key, "kind": "failure", "files": files, "facts": {}}).encode()
    body = module._HEAD.pack(MAGIC, 0, len(core)) + core + log
    return body + module._compute_seal(key, body)


def plant_failure(store: Store, log: bytes) -> None:
    """The same as an entry of the local store, as an older version would have installed it."""
    store.put_failure(KEY, "x", {})
    folder = store.layout.entry_folder(KEY)
    table = json.loads((folder / "manifest.json").read_text())
    table["files"] = {"build.log": {"size": len(log), "blake2b": hashlib.blake2b(log, digest_size=16).hexdigest()}}
    (folder / "manifest.json").write_text(json.dumps(table))
    (folder / "build.log").write_bytes(log)


def test_a_log_that_is_no_text_is_rubbish_and_not_installed(tmp_path: Path, store: Store) -> None:
    with pytest.raises(InvalidBlobError, match=r"build\.log cannot be parsed: UnicodeDecodeError"):
        unpack_entry(forged_failure(NOT_UTF8), KEY)
    share = FolderRemote(tmp_path / "share")
    share.folder.mkdir()
    share.push(KEY, forged_failure(NOT_UTF8))
    share.push(OTHER, forged_failure("überlang".encode(), OTHER))
    with noticed() as messages:
        assert set(Tiers(store, share).find_entries([KEY, OTHER])) == {OTHER}
    assert len(messages) == 1
    assert list(store.list_keys()) == [OTHER]


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.get(KEY),
        lambda store: list(store.list_entries()),
        remove_unused_entries,
        lambda store: move_damaged_entries(store, verify_entries(store)),
        lambda store: put(store, KEY),
    ],
    ids=["get", "ls", "gc", "verify --remove", "put"],
)
def test_a_log_that_is_no_text_in_the_store_stops_nothing(store: Store, use: Callable[[Store], Any]) -> None:
    plant_failure(store, NOT_UTF8)
    put(store, OTHER)
    with noticed():
        use(store)
        assert not isinstance(store.get(KEY), Failure)
    put(store, KEY)
    assert whole(store, KEY)
    assert whole(store, OTHER)
    assert verify_entries(store) == []


def test_a_log_that_cannot_be_read_back_is_not_put(store: Store) -> None:
    with pytest.raises(InvalidValueError, match=r"build\.log cannot be parsed"):
        store.put_content(KEY, "failure", {"build.log": NOT_UTF8}, {})
    assert list(store.list_keys()) == []
    kept = store.put_failure(KEY, "half a pair: \ud83d", {})
    assert kept == store.get(KEY) == Failure(KEY, "half a pair: ?", {})
    assert unpack_entry(pack_entry(kept), KEY).files["build.log"] == b"half a pair: ?"


@pytest.mark.parametrize("name", ["manifest.json", "kernel.so"])
@pytest.mark.parametrize("what", ["fifo", "folder", "link", "device"])
def test_what_is_no_regular_file_is_neither_followed_nor_waited_for(store: Store, name: str, what: str) -> None:
    path = put(store, KEY).folder / name
    content = path.read_bytes()
    path.unlink()
    if what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "link":
        (store.root / "elsewhere").write_bytes(content)
        path.symlink_to(store.root / "elsewhere")
    else:
        path.symlink_to("/dev/zero")
    assert [finding.key for finding in verify_entries(store)] == [KEY]
    with noticed() as messages:
        assert store.get(KEY) is None
    assert len(messages) == 1


def test_a_file_replaced_by_a_fifo_before_it_is_loaded(store: Store) -> None:
    made = put(store, KEY)
    (made.folder / "kernel.so").unlink()
    os.mkfifo(made.folder / "kernel.so")
    with noticed(), pytest.raises(module.CorruptError, match="not a regular file"):
        made.verify_file("kernel.so")
    assert store.get(KEY) is None


ODD: tuple[Any, ...] = (
    None, True, -1, 0, 10**400, -(10**400), 2**64, 1e308, "", "x", "\ud800", "../x", "\0", [], [[]], {}, {"": {}}, [{}],
)  # fmt: skip
TOKENS = (
    b"1e999", b"-0", b"NaN", b"-Infinity", b"9" * 5000, b'"\\ud800"', b"\xff", b"\x00", b"{", b"[" * 3000, b'""', b":",
    b",", b"null", b"1E400", b'"' + b"a" * 300 + b'"', b'"\xc3\x28"', b"\xef\xbb\xbf",
)  # fmt: skip


def with_an_odd_value(value: Any, random: random.Random) -> Any:
    """A document with one value somewhere in it replaced, one name changed, or one thing more or less."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        name = random.choice(sorted(value))
        changed = dict(value)
        how = random.random()
        if how < 0.1:
            del changed[name]
        elif how < 0.2:
            changed[random.choice(("", "../a", "\ud800", "x" * 300, "build.log"))] = changed.pop(name)
        else:
            changed[name] = with_an_odd_value(value[name], random)
        return changed
    return random.choice(ODD)


def mutated(raw: bytes, random: random.Random) -> bytes:
    if random.random() < 0.6:
        return json.dumps(with_an_odd_value(json.loads(raw), random)).encode()
    changed = bytearray(raw)
    for _ in range(random.randint(1, 3)):
        place = random.randrange(len(changed) + 1)
        changed[place : place + random.choice((0, 0, 1, 5, 40))] = random.choice((*TOKENS, random.randbytes(3)))
    return bytes(changed)


def test_any_manifest_is_one_or_invalid(store: Store) -> None:
    draw = random.Random(7)
    put(store, KEY)
    store.put_failure(OTHER, "no", {"slug": "x", "errors": ["a"]})
    accepted = 0
    for key in (KEY, OTHER):
        raw = (store.layout.entry_folder(key) / "manifest.json").read_bytes()
        table = json.loads(raw)
        core = to_canonical_json({name: table[name] for name in table if name not in ("version", "created")}).encode()
        assert parse_manifest(raw, key).core == parse_core(core, key)
        for _ in range(1500):
            for parse, original in ((parse_manifest, raw), (parse_core, core)):
                try:
                    parsed = parse(mutated(original, draw), key)
                except InvalidValueError:
                    continue
                accepted += 1
                json.dumps(getattr(parsed, "core", parsed).facts, ensure_ascii=False).encode()  # it can be printed
    assert 100 < accepted < 3000  # mutations of facts and of version are legal


def test_any_blob_with_right_digests_is_an_entry_or_rubbish(store: Store) -> None:
    """Somebody who knows the format can make every digest right: core and contents are judged by themselves."""
    draw = random.Random(8)
    log = b"error: no\n"
    core = unpacked_core(forged_failure(log))
    taken = 0
    for _ in range(800):
        text = mutated(core, draw) if draw.random() < 0.7 else core
        content = log if draw.random() < 0.7 else draw.randbytes(draw.randint(0, 12))
        if text is core:  # the digest of whatever the content is
            table = json.loads(core)
            digest = hashlib.blake2b(content, digest_size=16).hexdigest()
            table["files"]["build.log"] = {"size": len(content), "blake2b": digest}
            text = to_canonical_json(table).encode()
        body = module._HEAD.pack(MAGIC, 0, len(text)) + text + content
        try:
            found = unpack_entry(body + module._compute_seal(KEY, body), KEY)
        except InvalidBlobError:
            continue
        taken += 1
        if taken % 40 == 1:  # what passes can be installed and read back
            store.remove(KEY)
            store.put_content(KEY, found.kind, found.files, found.facts)
            assert store.get(KEY) is not None
    assert 50 < taken < 750


def unpacked_core(blob: bytes) -> bytes:
    size = module._HEAD.unpack_from(blob)[2]
    return blob[module._HEAD.size : module._HEAD.size + size]


def test_any_entry_is_sound_or_set_aside(store: Store) -> None:
    draw = random.Random(9)
    put(store, KEY, b"code")
    store.put_failure(OTHER, "log", {"slug": "x"})
    folders = [store.layout.entry_folder(key) for key in (KEY, OTHER)]
    originals = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]
    sound = 0
    for _ in range(80):
        for folder, files in zip(folders, originals, strict=True):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            damaged = draw.choice(sorted(files))
            for name, raw in files.items():
                other = mutated(raw, draw) if name == "manifest.json" else draw.randbytes(len(raw))
                (folder / name).write_bytes(other if name == damaged else raw)
        with noticed():
            listed = {entry.key for entry in store.list_entries()}
            findings = {finding.key for finding in verify_entries(store)}
            for key in (KEY, OTHER):
                found = store.get(key)
                assert (found is not None) == (key in listed) == os.path.lexists(store.layout.entry_folder(key))
                if isinstance(found, Artifact):
                    sound += store._find_winner(key, "artifact") is not None
                assert found is not None or key in findings
            remove_unused_entries(store)
    assert 0 < sound < 80
