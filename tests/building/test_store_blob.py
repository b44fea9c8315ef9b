"""Blobs: what is packed comes out, and anything else is rubbish."""

from __future__ import annotations

import hashlib
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stores import key_of

from tilewright.base.digest import to_canonical_json
from tilewright.base.errors import CorruptError, InvalidBlobError
from tilewright.building.store import remote as module
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.store.local import Store
from tilewright.building.store.remote import MAGIC, MAX_BLOB_BYTES, pack_entry, unpack_entry

KEY, OTHER = key_of(1), key_of(2)
SECRET, WRONG = b"s" * 32, b"w" * 32
FAILURE = Failure(KEY, "error: no\n", {"slug": "gemm-x", "numbers": [1, None, "ü"]})


@pytest.fixture(scope="module")
def artifact() -> Iterator[Artifact]:
    with tempfile.TemporaryDirectory() as folder:
        contents = {"kernel.so": b"\x7fELF" + bytes(300), "empty": b"", "a-b_c.txt": b"text"}
        stored = Store(Path(folder) / "store").put_content(KEY, "artifact", contents, {"slug": "gemm-x"})
        assert isinstance(stored, Artifact)
        yield stored


@pytest.mark.parametrize("secret", [None, SECRET])
def test_a_round_trip(artifact: Artifact, secret: bytes | None) -> None:
    content = unpack_entry(pack_entry(artifact, secret), KEY, secret)
    assert (content.key, content.kind, content.facts) == (KEY, "artifact", {"slug": "gemm-x"})
    assert content.files == {name: (artifact.folder / name).read_bytes() for name in artifact.files}
    failed = unpack_entry(pack_entry(FAILURE, secret), KEY, secret)
    assert (failed.kind, failed.files, failed.facts) == ("failure", {"build.log": b"error: no\n"}, FAILURE.facts)


def test_the_same_entry_gives_the_same_bytes(artifact: Artifact) -> None:
    assert pack_entry(artifact) == pack_entry(
        Artifact(KEY, artifact.folder, dict(reversed(artifact.files.items())), artifact.facts)
    )


def test_a_secret_refuses_what_it_did_not_sign() -> None:
    for packed, message in ((pack_entry(FAILURE), "not signed"), (pack_entry(FAILURE, WRONG), "another secret")):
        with pytest.raises(InvalidBlobError, match=message):
            unpack_entry(packed, KEY, SECRET)
    assert unpack_entry(pack_entry(FAILURE, SECRET), KEY, None).kind == "failure"


def test_taking_the_signature_off_does_not_help() -> None:
    signed = pack_entry(FAILURE, SECRET)
    for stripped in (signed[:-32], signed[:8] + b"\0" + signed[9:-32], signed[:8] + b"\0" + signed[9:]):
        for secret in (None, SECRET):
            with pytest.raises(InvalidBlobError):
                unpack_entry(stripped, KEY, secret)


@pytest.mark.parametrize("secret", [None, SECRET])
def test_an_entry_under_another_key_is_rubbish(secret: bytes | None) -> None:
    with pytest.raises(InvalidBlobError):
        unpack_entry(pack_entry(FAILURE, secret), OTHER, secret)


EXAMPLES = {None: pack_entry(FAILURE), SECRET: pack_entry(FAILURE, SECRET)}


@st.composite
def mutations(draw: st.DrawFn, original: bytes) -> bytes:
    changed = bytearray(original)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(0, len(changed) - 1)))
        what = draw(st.sampled_from(("flip", "set", "cut", "insert", "drop", "repeat")))
        if what == "flip" and changed:
            changed[place] ^= 1 << draw(st.integers(0, 7))
        elif what == "set":
            changed[place : place + 4] = draw(st.binary(min_size=4, max_size=4))
        elif what == "cut":
            del changed[place:]
        elif what == "insert":
            changed[place:place] = draw(st.binary(max_size=40))
        elif what == "drop":
            del changed[place : place + draw(st.integers(1, 40))]
        else:
            changed += changed[place:]
    return bytes(changed)


@given(st.sampled_from([None, SECRET]).flatmap(lambda s: st.tuples(st.just(s), mutations(EXAMPLES[s]))))
def test_any_mutation_is_rubbish_or_changes_nothing(case: tuple[bytes | None, bytes]) -> None:
    secret, changed = case
    try:
        content = unpack_entry(changed, KEY, secret)
    except InvalidBlobError:
        return
    assert content == unpack_entry(EXAMPLES[secret], KEY, secret)


@given(st.binary(max_size=200))
def test_any_bytes_at_all(content: bytes) -> None:
    for attempt in (content, MAGIC + content):
        with pytest.raises(InvalidBlobError):
            unpack_entry(attempt, KEY)


def sealed(core: Any, contents: bytes = b"", size: int | None = None) -> bytes:
    """A blob whose digest is right, as somebody who knows the format and not the secret would make it."""
    text = core if isinstance(core, bytes) else to_canonical_json(core).encode()
    body = module._HEAD.pack(MAGIC, 0, len(text) if size is None else size) + text + contents
    return body + module._compute_seal(KEY, body)


def core_with(name: str = "a", size: int = 1, digest: str = "0" * 32, **changes: Any) -> dict[str, Any]:
    files = {name: {"size": size, "blake2b": digest}}
    return {"schema": 1, "key": KEY, "kind": "artifact", "files": files, "facts": {}, **changes}


ONE = hashlib.blake2b(b"x", digest_size=16).hexdigest()


@pytest.mark.parametrize(
    "blob",
    [
        sealed(core_with(digest=ONE), b"y"),
        sealed(core_with(digest=ONE), b""),
        sealed(core_with(digest=ONE), b"xx"),
        sealed(core_with("../a", digest=ONE), b"x"),
        sealed(core_with("/a", digest=ONE), b"x"),
        sealed(core_with(".a", digest=ONE), b"x"),
        sealed(core_with("manifest.json", digest=ONE), b"x"),
        sealed(core_with(digest=ONE, key=OTHER), b"x"),
        sealed(core_with(digest=ONE, kind="failure"), b"x"),
        sealed(core_with(digest=ONE, schema=2), b"x"),
        sealed(core_with(digest=ONE, more=1), b"x"),
        sealed(b"[" * 100_000),
        sealed(b"\xff\xfe"),
        sealed(core_with(digest=ONE), b"x", size=2**32 - 1),
        sealed(core_with(digest=ONE), b"x", size=0),
        sealed(core_with(size=2**62)),
    ],
)
def test_a_right_digest_does_not_excuse_a_lie(blob: bytes) -> None:
    with pytest.raises(InvalidBlobError):
        unpack_entry(blob, KEY)


def test_the_honest_one_of_these_passes() -> None:
    assert unpack_entry(sealed(core_with(digest=ONE), b"x"), KEY).files == {"a": b"x"}


def test_a_lying_header_takes_no_memory() -> None:
    liar = sealed(core_with(size=2**40), b"x", size=None)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidBlobError):
            unpack_entry(liar, KEY)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_blob_over_the_limit_is_not_looked_into() -> None:
    with pytest.raises(InvalidBlobError, match="67,108,864 is the limit"):
        unpack_entry(bytes(MAX_BLOB_BYTES + 1), KEY)


def test_a_damaged_artifact_is_not_packed(tmp_path: Path) -> None:
    stored = Store(tmp_path / "store").put_content(KEY, "artifact", {"a": b"x"}, {})
    assert isinstance(stored, Artifact)
    (stored.folder / "a").write_bytes(b"y")
    with pytest.raises(CorruptError):
        pack_entry(stored)
