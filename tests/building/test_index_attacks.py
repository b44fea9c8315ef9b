"""A host that fails or attacks: every answer is refused with one message, and the client goes on without it."""

from __future__ import annotations

import base64
import gzip
import json
import re
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile_index import KEYS, SMALL, Handler, World, close, drip, flood, hang, published, send_raw
from stores import key_of, noticed, put

from tilewright.building.index.publish import sign_index, write_table
from tilewright.building.index.shards import BlobRecord, hash_bytes
from tilewright.building.index.signing import sign_payload
from tilewright.building.store.artifact import Artifact

BLOB = f"/blobs/{KEYS[1][:2]}/{KEYS[1]}"
INDEX, KEYS_FILE = "/index.json", "/keys.json"
BOMB = gzip.compress(bytes(2**24))
OK = b"HTTP/1.1 200 OK\r\n"
# Limits of one attack: the client's time limit is 1 s for an operation, and 2 s here are for a busy machine.
MOST_S = 5.0
MOST_BYTES = 8 * 2**20


def serve(path: str, body: bytes | Callable[[World], bytes]) -> Callable[[World], None]:
    """Serve other bytes for a path."""

    def attack(world: World) -> None:
        made = body if isinstance(body, bytes) else body(world)
        world.misbehaviour[path] = lambda handler: handler.answer(made)

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


def read(path: str) -> Callable[[World], bytes]:
    return lambda world: (world.folder / path.lstrip("/")).read_bytes()


def change_document(raw: bytes, **changes: Any) -> bytes:
    """Change the payload of a signed document, without signing it again."""
    document = json.loads(raw)
    document["payload"] = json.dumps({**json.loads(document["payload"]), **changes})
    return json.dumps(document).encode()


def sign_index_as(world: World, key: Any, **changes: Any) -> bytes:
    facts = {**world.read_payload(read(INDEX)(world)), "version": 99, **changes}
    return json.dumps(sign_payload("index", facts, [key]).to_json()).encode()


def break_signature(world: World) -> bytes:
    document = json.loads(read(INDEX)(world))
    key, signature = next(iter(document["signatures"].items()))
    document["signatures"] = {key: ("0" if signature[0] != "0" else "1") + signature[1:]}
    return json.dumps(document).encode()


def serve_yesterday(world: World) -> None:
    world.misbehaviour[INDEX] = lambda handler: handler.answer(world.old)  # type: ignore[attr-defined]


def sign_same_version(world: World) -> bytes:
    return sign_index_as(world, world.signer, version=world.read_payload(read(INDEX)(world))["version"], keys=1)


def sign_keys_as(world: World, keys: list[Any], **changes: Any) -> bytes:
    """A list of keys whose next version is signed by other keys than the root keys."""
    documents = json.loads(read(KEYS_FILE)(world))["documents"]
    facts = {**json.loads(documents[-1]["payload"]), "version": len(documents) + 1, **changes}
    return json.dumps({"documents": [*documents, sign_payload("keys", facts, keys).to_json()]}).encode()


def replace_keys(world: World) -> bytes:
    """A whole list of keys by somebody else."""
    thief = world.new_key("thief")
    facts = {
        **json.loads(json.loads(read(KEYS_FILE)(world))["documents"][0]["payload"]),
        **{"roots": [thief.public], "index": [thief.public]},
    }
    return json.dumps({"documents": [sign_payload("keys", facts, [thief]).to_json()]}).encode()


def roll_keys_back(world: World) -> None:
    """The client has seen the second list, from which the old index key was removed because it was stolen."""
    old = read(KEYS_FILE)(world)
    stolen = sign_index_as(world, world.signer)
    world.rotate(signer=world.new_key("new-index"))
    world.publish()
    assert world.seen.find_entries([KEYS[2]])  # type: ignore[attr-defined]
    serve(KEYS_FILE, old)(world)
    serve(INDEX, stolen)(world)


def fork_keys(world: World) -> None:
    """Another second version, signed by the first root key, which was replaced because it was stolen."""
    stolen = world.roots[0]
    forked = sign_keys_as(world, [stolen], index=[stolen.public])
    world.rotate(roots=[world.new_key("new-root")])
    assert world.seen.find_entries([KEYS[2]])  # type: ignore[attr-defined]
    serve(KEYS_FILE, forked)(world)


def use_revoked_key(world: World) -> None:
    stolen = sign_index_as(world, world.signer)
    world.rotate(signer=world.new_key("new-index"))
    serve(INDEX, stolen)(world)


def add_kernels(world: World) -> None:
    """A new version of the index with other shards, so that the client does not have them."""
    for number in range(20, 24):
        put(world.publisher, key_of(number), SMALL, kernel={})
    world.publish()


def attack_shards(change: Callable[[bytes], bytes]) -> Callable[[World], None]:
    def attack(world: World) -> None:
        add_kernels(world)

        def answer(handler: Handler) -> None:
            handler.answer(change((world.folder / handler.path.lstrip("/")).read_bytes()))

        world.misbehaviour["/shards/"] = answer

    return attack


def list_garbage(world: World) -> None:
    """The index key itself lists a blob that is no entry: a stolen key, or a broken publisher."""
    garbage = b"not an entry" * 10
    write_table(world.folder, [BlobRecord(KEYS[1], len(garbage), hash_bytes(garbage))])
    sign_index(world.folder, world.signer, 14)
    serve(BLOB, garbage)(world)


def list_another_kernel(world: World) -> None:
    """The index key lists the blob of one key under another."""
    other = (world.folder / "blobs" / KEYS[3][:2] / KEYS[3]).read_bytes()
    write_table(world.folder, [BlobRecord(KEYS[1], len(other), hash_bytes(other))])
    sign_index(world.folder, world.signer, 14)
    serve(BLOB, other)(world)


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
        do(INDEX, lambda h: (send_raw(h, OK + b"Content-Length: 2000\r\n\r\n"), drip(h, b"{" * 2000))[0]),
        "no answer within",
    ),
    "a blob byte by byte": (
        do(BLOB, lambda h: (send_raw(h, OK + b"\r\n"), drip(h, b"x" * 2000))[0]),
        "no answer within",
    ),
    "the index is cut off": (do(INDEX, cut_off), "IncompleteRead"),
    "a blob is cut off": (do(BLOB, lambda h: send_raw(h, OK + b"\r\nxyz")), "the host sends 3 bytes"),
    "half of the index": (serve(INDEX, lambda world: read(INDEX)(world)[:300]), "is not JSON"),
    "no HTTP": (do("/", lambda h: send_raw(h, b"\0\1\2garbage\r\n\r\n" * 10)), "BadStatusLine|HTTP"),
    "an index without end": (do(INDEX, send_chunks), "sends more bytes than"),
    "a huge index is announced": (do(INDEX, answer_huge), "announces 99,999,999,999 bytes"),
    "a huge list of keys": (do(KEYS_FILE, answer_huge), "announces 99,999,999,999 bytes"),
    "a huge blob is announced": (do(BLOB, answer_huge), "announces 99,999,999,999 bytes, and the signed index lists"),
    "a blob without end": (do(BLOB, send_chunks), "sends more bytes than"),
    "headers without end": (do("/", send_headers), "LineTooLong|HTTPException|got more than"),
    "a compressed bomb": (do(INDEX, send_bomb), "in the encoding 'gzip'"),
    "a redirect to a file": (redirect(INDEX, "file:///etc/passwd"), "redirects to 'file:///etc/passwd'"),
    "a redirect to another host": (redirect(INDEX, "http://127.0.0.2:9/index.json"), "redirects to 'http://127.0.0.2"),
    "a redirect to itself": (redirect(INDEX, "/index.json"), "redirects are not followed"),
    "a redirected blob": (redirect(BLOB, "file:///etc/passwd"), "redirects to 'file:///etc/passwd'"),
    "a redirect with control characters": (redirect(INDEX, "ftp://\x1b[31mred"), r"redirects to 'ftp://\\x1b"),
    "errors without end": (do("/", lambda h: h.answer(b"", 503)), "answers 503"),
    "no index": (do(INDEX, lambda h: h.answer(b"", 404)), "does not have it"),
    "no blob": (do(BLOB, lambda h: h.answer(b"", 404)), "does not have it"),
    "not modified, without a condition": (do(INDEX, lambda h: h.answer(b"", 304)), "304 to a request without"),
    "yesterday's index": (serve_yesterday, "it is an old one"),
    "two indexes of one version": (serve(INDEX, sign_same_version), "differs from the one that was verified before"),
    "an expired index": (serve(INDEX, lambda w: sign_index_as(w, w.signer, expires=1000)), "index.json expired"),
    "an unknown key": (serve(INDEX, lambda w: sign_index_as(w, w.new_key("x"))), "not signed by a key of keys.json"),
    "no signature": (
        serve(INDEX, lambda w: json.dumps({**json.loads(read(INDEX)(w)), "signatures": {}}).encode()),
        "not signed by a key of keys.json",
    ),
    "a wrong signature": (serve(INDEX, break_signature), "not signed by a key of keys.json"),
    "a changed index": (serve(INDEX, lambda w: change_document(read(INDEX)(w), version=100)), "not signed by a key"),
    "the index of another name": (
        serve(INDEX, lambda w: sign_index_as(w, w.signer, name="other")),
        "belongs to 'other'",
    ),
    "a root key signs the index": (serve(INDEX, lambda w: sign_index_as(w, w.roots[0])), "not signed by a key"),
    "shards that do not fit": (serve(INDEX, lambda w: sign_index_as(w, w.signer, bits=5)), "bytes of shards instead"),
    "shards that are not base64": (serve(INDEX, lambda w: sign_index_as(w, w.signer, shards="?")), "not base64"),
    "a shard of four billion keys": (
        serve(INDEX, lambda w: sign_index_as(w, w.signer, shards=base64.b64encode(b"\xff" * 36).decode())),
        "a shard with more than",
    ),
    "keys of somebody else": (serve(KEYS_FILE, replace_keys), "not signed by a pinned key"),
    "keys signed by the index key": (
        serve(KEYS_FILE, lambda w: sign_keys_as(w, [w.signer])),
        "not signed by the root keys before it",
    ),
    "a new root that the old did not sign": (
        serve(KEYS_FILE, lambda w: sign_keys_as(w, [thief := w.new_key("t")], roots=[thief.public])),
        "not signed by the root keys before it",
    ),
    "expired keys": (serve(KEYS_FILE, lambda w: sign_keys_as(w, w.roots, expires=1000)), "keys.json expired"),
    "keys rolled back": (roll_keys_back, "ends with version 1, and version 2 was verified before"),
    "keys forked": (fork_keys, "version 2 of keys.json differs"),
    "a revoked index key": (use_revoked_key, "not signed by a key of keys.json"),
    "keys nested too deeply": (serve(KEYS_FILE, b'{"documents":' + b"[" * 100_000), "nested too deeply|is not JSON"),
    "a key twice": (serve(KEYS_FILE, b'{"documents":[],"documents":[]}'), "twice"),
    "a thousand signatures": (
        serve(
            INDEX, lambda w: json.dumps({"payload": "", "signatures": {f"{n:064x}": "" for n in range(1000)}}).encode()
        ),
        "1,000 signatures",
    ),
    "swapped blobs": (serve(BLOB, read(f"/blobs/{KEYS[3][:2]}/{KEYS[3]}")), "does not have the digest"),
    "a changed blob": (serve(BLOB, lambda w: b"X" + read(BLOB)(w)[1:]), "does not have the digest"),
    "a shorter blob": (serve(BLOB, lambda w: read(BLOB)(w)[:-1]), "announces .* and the signed index lists"),
    "a changed shard": (attack_shards(lambda body: body[:20] + b"X" + body[21:]), "does not have the bytes"),
    "a shorter shard": (attack_shards(lambda body: body[:-52]), "announces .* and the signed index lists"),
    "a signed blob that is no entry": (list_garbage, "too short|header of this version"),
    "a signed blob of another kernel": (list_another_kernel, "digest is not that of its bytes and key"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_with_one_message(name: str, tmp_path: Path) -> None:
    attack, said = ATTACKS[name]
    with published(tmp_path) as world:
        world.old = read(INDEX)(world)  # type: ignore[attr-defined]
        client = world.client()
        world.seen = client  # type: ignore[attr-defined]
        assert list(client.find_entries([KEYS[0]])) == [KEYS[0]]
        world.publish()
        assert client.find_entries([key_of("absent")]) == {}
        attack(world)
        tracemalloc.start()
        started = time.monotonic()
        with noticed() as messages:
            found = client.find_entries([KEYS[1]])
        taken, (_, most) = time.monotonic() - started, tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found == {}
        assert len(messages) == 1, messages
        assert re.search(said, messages[0]), messages[0]
        assert "\x1b" not in messages[0]
        assert taken < MOST_S and most < MOST_BYTES, (taken, most)
        # What was there before is used, and later look-ups neither wait nor report.
        with noticed() as later:
            assert isinstance(client.find_entries([KEYS[0]])[KEYS[0]], Artifact)
            assert time.monotonic() - started < 2 * MOST_S
        assert later == []


def test_there_are_more_than_thirty_attacks() -> None:
    assert len(ATTACKS) >= 30
