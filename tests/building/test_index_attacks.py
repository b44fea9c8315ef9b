"""A host that fails or attacks, also with stolen keys: each answer is refused with one message, and the client goes
on without it."""

from __future__ import annotations

import gzip
import json
import re
import time
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hostile_index import IMPATIENT, KEYS, SMALL, Handler, World, close, drip, flood, hang, published, send_raw, sign
from stores import key_of, noticed, put
from tuf.api.metadata import Delegations, MetaFile, Snapshot, SuccinctRoles, TargetFile, Targets, Timestamp

from tilewright.building.index.publish import publish_targets, sign_timestamp, write_blob
from tilewright.building.index.trusted import get_blob_path
from tilewright.building.store.artifact import Artifact

TIMESTAMP, SNAPSHOT, TARGETS, BIN = "/timestamp.json", ".snapshot.json", ".targets.json", ".bin-5.json"
BLOB = f".{KEYS[1]}"
ROOTS = ".root.json"
BOMB = gzip.compress(bytes(2**24))
OK = b"HTTP/1.1 200 OK\r\n"
# Limits of one attack: the client's time limit is 2 s for an operation, and 3 s here are for a busy machine.
MAX_S = 5.0
MAX_BYTES = 8 * 2**20
EVIL = b"a kernel of the thief"
SOON = datetime.now(UTC) + timedelta(days=1)
PAST = datetime(2020, 1, 1, tzinfo=UTC)


def serve(path: str, body: bytes | Callable[[World], bytes]) -> Callable[[World], None]:
    """Serve other bytes for a path."""

    def attack(world: World) -> None:
        answer = body if isinstance(body, bytes) else body(world)
        world.misbehaviour[path] = lambda handler: handler.answer(answer)

    return attack


def do(path: str, misbehave: Callable[[Handler], None]) -> Callable[[World], None]:
    return lambda world: world.misbehaviour.__setitem__(path, misbehave)


def redirect(path: str, target: str) -> Callable[[World], None]:
    return do(path, lambda handler: handler.answer(b"", 302, Location=target))


def kill(world: World) -> None:
    assert world.server is not None
    world.server.shutdown()
    world.server.server_close()
    world.misbehaviour["/"] = close  # its connections end with it


def after_publishing(attack: Callable[[World], None]) -> Callable[[World], None]:
    """The client must ask for a new snapshot and for new targets."""

    def attack_news(world: World) -> None:
        world.publish()
        attack(world)

    return attack_news


def read_blob(world: World, number: int) -> bytes:
    return next((world.folder / "blobs").glob(f"*/*.{KEYS[number]}")).read_bytes()


def change_timestamp(world: World, signer: Any = None, **changes: Any) -> bytes:
    """The next timestamp with changes, signed by the owner's timestamp key or another one."""
    content: Timestamp = world.load("timestamp.json")
    content.version += 1
    for name, value in changes.items():
        setattr(content, name, value)
    return sign(content, signer or world.timestamp)


def break_signature(world: World) -> bytes:
    document = json.loads(world.read("timestamp.json"))
    text = document["signatures"][0]["sig"]
    document["signatures"][0]["sig"] = ("0" if text[0] != "0" else "1") + text[1:]
    return json.dumps(document).encode()


def change_unsigned(world: World) -> bytes:
    document = json.loads(world.read("timestamp.json"))
    document["signed"]["version"] = 100
    return json.dumps(document).encode()


def serve_new_timestamp(world: World, snapshot: bytes, **changes: Any) -> None:
    """A thief of the timestamp key, and `snapshot` as the next one."""
    version = world.load("snapshot.json").version + 1
    meta = MetaFile.from_data(version, snapshot, ["sha256"])
    serve(TIMESTAMP, change_timestamp(world, snapshot_meta=meta, **changes))(world)
    serve(f"/{version}{SNAPSHOT}", snapshot)(world)


def list_evil(world: World, signer: Any) -> dict[str, bytes]:
    """A bin with a blob of the thief, and targets and a snapshot that list it, signed by one key."""
    target = TargetFile.from_data(get_blob_path(KEYS[1]), EVIL, ["sha256"])
    roles = SuccinctRoles([signer.public_key.keyid], 1, 3, "bin")
    bins = sign(Targets(1, None, SOON, {target.path: target}), signer)
    key = signer.public_key
    targets = sign(Targets(99, None, SOON, delegations=Delegations({key.keyid: key}, succinct_roles=roles)), signer)
    old: Snapshot = world.load("snapshot.json")
    meta = {
        **old.meta,
        "targets.json": MetaFile.from_data(99, targets, ["sha256"]),
        "bin-5.json": MetaFile.from_data(1, bins, ["sha256"]),
    }
    snapshot = sign(Snapshot(old.version + 1, None, SOON, meta), signer)
    return {BIN: bins, f"/99{TARGETS}": targets, f"/{old.version + 1}{SNAPSHOT}": snapshot, BLOB: EVIL}


def steal_index_key(*paths: str) -> Callable[[World], None]:
    """A thief of the index key serves his own files of these roles under the names that clients ask for."""

    def attack(world: World) -> None:
        world.publish()
        evil = list_evil(world, world.index)
        for path in paths:
            body = next(raw for name, raw in evil.items() if name.endswith(path))
            serve(path, body)(world)

    return attack


def steal_timestamp_key(world: World) -> None:
    """A thief of the timestamp key dates a snapshot that he has signed himself."""
    evil = list_evil(world, world.timestamp)
    for path, body in evil.items():
        serve(path, body)(world)
    serve_new_timestamp(world, next(raw for name, raw in evil.items() if name.endswith(SNAPSHOT)))


def return_to_old_snapshot(world: World) -> None:
    """A thief of the timestamp key dates an earlier snapshot of the owner."""
    old = world.load("timestamp.json").snapshot_meta
    world.publish()
    assert world.seen.find_entries([KEYS[2]])  # type: ignore[attr-defined]
    serve(TIMESTAMP, change_timestamp(world, snapshot_meta=old))(world)


def write_evil_root(world: World, version: int, *signers: Any) -> None:
    """A root that gives all roles to the thief, and everything that follows from it."""
    thief = world.thief
    root = world.load("root.json")
    root.version, root.expires = version, SOON
    for role in ("root", "targets", "snapshot", "timestamp"):
        root.roles[role].keyids, root.roles[role].threshold = [], 1
        root.add_key(thief.public_key, role)
    serve(f"/{version}{ROOTS}", sign(root, *signers, thief))(world)
    evil = list_evil(world, thief)
    for path, body in evil.items():
        serve(path, body)(world)
    snapshot = next(raw for name, raw in evil.items() if name.endswith(SNAPSHOT))
    meta = MetaFile.from_data(world.load("snapshot.json").version + 1, snapshot, ["sha256"])
    serve(TIMESTAMP, sign(Timestamp(99, None, SOON, meta), thief))(world)


def steal_replaced_root(version: int) -> Callable[[World], None]:
    """The first root key was stolen, so the owner replaced it, and the client has seen that."""

    def attack(world: World) -> None:
        stolen = world.roots[0]
        world.rotate(roots=[world.new_key("new-root")])
        assert world.seen.find_entries([KEYS[2]])  # type: ignore[attr-defined]
        write_evil_root(world, version, stolen)

    return attack


def steal_one_root_of_two(world: World) -> None:
    """Two root keys must sign, the first of them is stolen, and the client has seen the threshold."""
    stolen, world.threshold = world.roots[0], 2
    world.rotate(roots=[stolen, world.new_key("second-root")])
    assert world.seen.find_entries([KEYS[2]])  # type: ignore[attr-defined]
    write_evil_root(world, 3, stolen)


def sign_root(world: World, *signers: Any, **changes: Any) -> None:
    """The next root with changes, signed by these keys."""
    root = world.load("root.json")
    root.version += 1
    path = f"/{root.version}{ROOTS}"
    for name, value in changes.items():
        setattr(root, name, value)
    serve(path, sign(root, *signers))(world)


def use_replaced_key(role: str) -> Callable[[World], None]:
    """The owner has replaced a key, and the host serves what a thief has signed with the earlier one."""

    def attack(world: World) -> None:
        world.publish()
        world.rotate(**{role: world.new_key(f"new-{role}")})  # type: ignore[arg-type]

    return attack


def mix_snapshots(world: World) -> None:
    """An earlier snapshot under the name of the newest."""
    old = world.read("snapshot.json")
    world.publish()
    serve(SNAPSHOT, old)(world)


def mix_targets(world: World) -> None:
    old = world.read("targets.json")
    world.publish()
    serve(TARGETS, old)(world)


def mix_bins(world: World) -> None:
    """An earlier version of the one bin whose content has changed."""
    old = world.read("bin-5.json")
    add_kernels(world)
    serve(BIN, old)(world)


def add_kernels(world: World) -> None:
    """Two of them are in the bin of the kernel that the client looks up."""
    for number in range(20, 24):
        put(world.publisher, key_of(number), SMALL, kernel={})
    world.publish()


def expire(role: str) -> Callable[[World], None]:
    """The owner's own newest metadata of a role, with an expiry in the past."""

    def attack(world: World) -> None:
        world.publish()
        snapshot, targets = world.load("snapshot.json"), world.load("targets.json")
        snapshot.version, targets.version = snapshot.version + 1, targets.version + 1
        (targets if role == "targets" else snapshot).expires = PAST
        raw = sign(targets, world.index)
        snapshot.meta["targets.json"] = MetaFile.from_data(targets.version, raw, ["sha256"])
        serve(f"/{targets.version}{TARGETS}", raw)(world)
        serve_new_timestamp(world, sign(snapshot, world.index))

    return attack


def drop_bins(world: World) -> None:
    """A snapshot, signed by the owner, that does not list a bin which the client has seen."""
    snapshot = world.load("snapshot.json")
    snapshot.version += 1
    del snapshot.meta["bin-0.json"]
    serve_new_timestamp(world, sign(snapshot, world.index))


def announce_huge_snapshot(world: World) -> None:
    """A thief of the timestamp key announces a snapshot of a terabyte, and sends without end."""
    meta = MetaFile(world.load("snapshot.json").version + 1, 2**40)
    serve(TIMESTAMP, change_timestamp(world, snapshot_meta=meta))(world)
    do(SNAPSHOT, send_chunks)(world)


def list_instead(world: World, blob: bytes) -> None:
    """The owner lists another blob for a key: a broken publisher, or a thief of all his keys."""
    target = write_blob(world.folder, get_blob_path(KEYS[1]), blob)
    publish_targets(world.folder, [target], world.index, 90)
    sign_timestamp(world.folder, world.timestamp, 14)


def cut_off(handler: Handler) -> None:
    send_raw(handler, OK + b"Content-Length: 5000\r\n\r\n" + b"x" * 100)


def answer_huge(handler: Handler) -> None:
    send_raw(handler, OK + b"Content-Length: 99999999999\r\n\r\n" + b"x" * 100)


def send_chunks(handler: Handler) -> None:
    flood(handler, OK + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65536 + b"\r\n")


def send_headers(handler: Handler) -> None:
    flood(handler, OK, b"X-Long: " + b"y" * 60000 + b"\r\n")


def send_bomb(handler: Handler) -> None:
    handler.answer(BOMB, Content_Encoding="gzip")


ATTACKS: dict[str, tuple[Callable[[World], None], str]] = {
    "the server is killed": (kill, "refused"),
    "it never answers": (do("/", hang), "no answer within|timed out"),
    "it closes the connection": (do("/", close), "RemoteDisconnected|ConnectionReset"),
    "headers byte by byte": (do("/", lambda h: drip(h, OK + b"Content-Length: 2000\r\n\r\n")), "no answer within"),
    "the body byte by byte": (
        do(TIMESTAMP, lambda h: (send_raw(h, OK + b"Content-Length: 2000\r\n\r\n"), drip(h, b"{" * 2000))[0]),
        "no answer within",
    ),
    "a blob byte by byte": (
        do(BLOB, lambda h: (send_raw(h, OK + b"\r\n"), drip(h, b"x" * 2000))[0]),
        "no answer within",
    ),
    "the timestamp is cut off": (do(TIMESTAMP, cut_off), "IncompleteRead"),
    "a blob is cut off": (do(BLOB, lambda h: send_raw(h, OK + b"\r\nxyz")), "the host sends 3 bytes"),
    "half of the timestamp": (serve(TIMESTAMP, lambda w: w.read("timestamp.json")[:300]), "deserialize JSON"),
    "no HTTP": (do("/", lambda h: send_raw(h, b"\0\1\2garbage\r\n\r\n" * 10)), "BadStatusLine|HTTP"),
    "a root without end": (do(ROOTS, send_chunks), "sends more bytes than 512,000"),
    "a timestamp without end": (do(TIMESTAMP, send_chunks), "sends more bytes than 16,384"),
    "a snapshot without end": (after_publishing(do(SNAPSHOT, send_chunks)), "sends more bytes than"),
    "targets without end": (after_publishing(do(TARGETS, send_chunks)), "sends more bytes than"),
    "a bin without end": (do(BIN, send_chunks), "sends more bytes than"),
    "a blob without end": (do(BLOB, send_chunks), "sends more bytes than"),
    "a huge root is announced": (do(ROOTS, answer_huge), "announces 99,999,999,999 bytes"),
    "a huge timestamp is announced": (do(TIMESTAMP, answer_huge), "announces 99,999,999,999 bytes"),
    "a huge blob is announced": (do(BLOB, answer_huge), "announces 99,999,999,999 bytes, and the signed index lists"),
    "a signed length of a terabyte": (announce_huge_snapshot, "sends more bytes than 4,194,304"),
    "headers without end": (do("/", send_headers), "LineTooLong|HTTPException|got more than"),
    "a compressed bomb": (do(TIMESTAMP, send_bomb), "in the encoding 'gzip'"),
    "a redirect to a file": (redirect(TIMESTAMP, "file:///etc/passwd"), "redirects to 'file:///etc/passwd'"),
    "a redirect to another host": (redirect(TIMESTAMP, "http://127.0.0.2:9/x.json"), "redirects to 'http://127.0.0.2"),
    "a redirect to itself": (redirect(TIMESTAMP, "/timestamp.json"), "redirects are not followed"),
    "a redirected blob": (redirect(BLOB, "file:///etc/passwd"), "redirects to 'file:///etc/passwd'"),
    "a redirect with control characters": (redirect(TIMESTAMP, "ftp://\x1b[31mred"), r"redirects to 'ftp://\\x1b"),
    "errors without end": (do("/", lambda h: h.answer(b"", 503)), "answers 503"),
    "no timestamp": (do(TIMESTAMP, lambda h: h.answer(b"", 404)), r"have it \(404\). Its owner must publish it again"),
    "no blob": (do(BLOB, lambda h: h.answer(b"", 404)), "does not have it"),
    "no bin": (do(BIN, lambda h: h.answer(b"", 403)), "does not have it"),
    "not modified, without a condition": (do(TIMESTAMP, lambda h: h.answer(b"", 304)), "redirects to ''"),
    # Signatures and form.
    "an unknown key": (serve(TIMESTAMP, lambda w: change_timestamp(w, w.thief)), "timestamp was signed by 0/1 keys"),
    "no signature": (serve(TIMESTAMP, lambda w: sign(w.load("timestamp.json"))), "timestamp was signed by 0/1 keys"),
    "a wrong signature": (serve(TIMESTAMP, break_signature), "timestamp was signed by 0/1 keys"),
    "a changed timestamp": (serve(TIMESTAMP, change_unsigned), "timestamp was signed by 0/1 keys"),
    "a root key signs the timestamp": (serve(TIMESTAMP, lambda w: change_timestamp(w, w.roots[0])), "signed by 0/1"),
    "the index key signs the timestamp": (serve(TIMESTAMP, lambda w: change_timestamp(w, w.index)), "signed by 0/1"),
    "metadata of another role": (serve(TIMESTAMP, lambda w: w.read("snapshot.json")), "Expected 'timestamp'"),
    "metadata nested too deeply": (serve(TIMESTAMP, b'{"signed":' + b"[" * 10_000), "deserialize JSON"),
    "a thousand signatures": (
        serve(TIMESTAMP, json.dumps({"signatures": [{"keyid": f"{n:064x}", "sig": ""} for n in range(1000)]}).encode()),
        "announces .* bytes, and 16,384 is the limit",
    ),
    "a snapshot that is no JSON": (after_publishing(serve(SNAPSHOT, b"{")), "does not match expected length"),
    # Each key stolen alone, with the host.
    "the stolen index key: a bin": (steal_index_key(BIN), "bin-5.json is refused: .*|announces .* is the limit"),
    "the stolen index key: targets": (steal_index_key(TARGETS), "does not match expected|is the limit"),
    "the stolen index key: a snapshot": (steal_index_key(SNAPSHOT), "does not match expected|is the limit"),
    "the stolen index key: everything": (
        steal_index_key(BIN, TARGETS, SNAPSHOT, BLOB),
        "does not match expected|is the limit",
    ),
    "the stolen timestamp key": (steal_timestamp_key, "snapshot was signed by 0/1 keys"),
    "the stolen timestamp key: an old snapshot": (return_to_old_snapshot, "New snapshot version must be >= "),
    "a replaced root key signs the next root": (steal_replaced_root(3), "root was signed by 0/1 keys"),
    "a replaced root key forks the root": (steal_replaced_root(2), "timestamp was signed by 0/1 keys"),
    "one of two root keys": (steal_one_root_of_two, "root was signed by 1/2 keys"),
    "the index key signs a root": (lambda w: sign_root(w, w.index), "root was signed by 0/1 keys"),
    "the timestamp key signs a root": (lambda w: sign_root(w, w.timestamp), "root was signed by 0/1 keys"),
    "a root of somebody else": (lambda w: write_evil_root(w, 2), "root was signed by 0/1 keys"),
    "a root that skips a version": (
        lambda w: sign_root(w, w.roots[0], version=7),
        "Expected root version 2 instead got version 7",
    ),
    "a replaced timestamp key": (use_replaced_key("timestamp"), "timestamp was signed by 0/1 keys"),
    "a replaced index key": (use_replaced_key("index"), "snapshot was signed by 0/1 keys"),
    # Freezes, rollbacks, mixtures.
    "an expired timestamp": (
        serve(TIMESTAMP, lambda w: change_timestamp(w, expires=PAST)),
        "timestamp.json is expired: its owner must sign it anew",
    ),
    "an expired snapshot": (expire("snapshot"), "snapshot.json is expired"),
    "expired targets": (expire("targets"), "targets is expired"),
    "an expired root": (lambda w: sign_root(w, w.roots[0], expires=PAST), "Final root.json is expired"),
    "yesterday's timestamp": (
        lambda w: serve(TIMESTAMP, w.old)(w),  # type: ignore[attr-defined]
        r"New timestamp version \d must be >= \d",
    ),
    "yesterday's snapshot": (mix_snapshots, "does not match expected hash"),
    "yesterday's targets": (mix_targets, "does not match expected hash"),
    "yesterday's bin": (mix_bins, "does not match expected"),
    "a snapshot without a bin": (drop_bins, "New snapshot is missing info for 'bin-0.json'"),
    # Blobs.
    "swapped blobs": (serve(BLOB, lambda w: read_blob(w, 3)), "does not have the digest"),
    "a changed blob": (serve(BLOB, lambda w: b"X" + read_blob(w, 1)[1:]), "does not have the digest"),
    "a shorter blob": (serve(BLOB, lambda w: read_blob(w, 1)[:-1]), "announces .* and the signed index lists"),
    "a signed blob that is no entry": (lambda w: list_instead(w, b"not an entry" * 10), "too short|header of this"),
    "a signed blob of another kernel": (lambda w: list_instead(w, read_blob(w, 3)), "is not that of its bytes and key"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_with_one_message(name: str, tmp_path: Path) -> None:
    attack, said = ATTACKS[name]
    with published(tmp_path) as world:
        world.old = world.read("timestamp.json")  # type: ignore[attr-defined]
        client = world.client(limits=IMPATIENT)
        world.seen = client  # type: ignore[attr-defined]
        assert list(client.find_entries([KEYS[0]])) == [KEYS[0]]
        world.publish()
        assert client.find_entries([key_of("absent")]) == {}
        attack(world)
        tracemalloc.start()
        started = time.monotonic()
        with noticed() as messages:
            found = client.find_entries([KEYS[1]])
        taken, (_, peak) = time.monotonic() - started, tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found == {}
        assert len(messages) == 1, messages
        assert re.search(said, messages[0]), messages[0]
        assert "\x1b" not in messages[0]
        assert taken < MAX_S and peak < MAX_BYTES, (taken, peak)
        # What was there before is used, and later look-ups neither wait nor report.
        with noticed() as later:
            assert isinstance(client.find_entries([KEYS[0]])[KEYS[0]], Artifact)
            assert time.monotonic() - started < 2 * MAX_S
        assert later == []


def test_there_are_more_than_sixty_attacks() -> None:
    assert len(ATTACKS) >= 60
