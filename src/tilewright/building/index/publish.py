"""Make an index from a store: blobs, shards, the list of keys, and the signed index. Files are only added.

The folder is what a static host serves. Blobs and shards never change; `index.json` and `keys.json` do, and are written
last, so that a copy of the folder at any moment is complete.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base.atomic_write import write_atomically
from tilewright.base.digest import to_canonical_json
from tilewright.base.documents import parse_json, read_bytes
from tilewright.base.errors import InvalidBlobError, InvalidValueError, StoreError
from tilewright.base.events import report_task
from tilewright.building.index.remote_index import BLOBS, SHARDS
from tilewright.building.index.shards import (
    BlobRecord,
    ShardTable,
    check_shard,
    hash_bytes,
    list_records,
    make_shards,
    read_table,
)
from tilewright.building.index.signing import PrivateKey, check_public_key, parse_signed, read_signed, sign_payload
from tilewright.building.index.trust import (
    FORMAT,
    INDEX,
    INDEX_FILE,
    KEYS,
    KEYS_FILE,
    MOST_INDEX_BYTES,
    MOST_KEYS_BYTES,
    Known,
    TrustedIndex,
    verify_index,
    verify_keys,
)
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.building.store.remote import MAX_BLOB_BYTES, pack_entry, unpack_entry

# The unsigned table of shards, between `build` and `sign`. It is not served.
_DRAFT = ".draft.json"


@dataclass(frozen=True)
class BuiltIndex:
    """The result of `build_index`."""

    keys: int
    added: int
    shards: int
    bytes: int  # of the added blobs


def build_index(folder: Path, store: Store) -> BuiltIndex:
    """Add all built kernels of a store to the folder of an index. Kernels that it has are not read again."""
    records = {record.key: record for record in read_records(folder)}
    added = size = 0
    entries = [entry for entry in store.list_entries() if isinstance(entry.content, Artifact)]
    with report_task("adding kernels", len(entries)) as advance:
        for entry in entries:
            if entry.key not in records and isinstance(entry.content, Artifact) and "kernel" in entry.content.facts:
                blob = pack_entry(entry.content)
                if len(blob) <= MAX_BLOB_BYTES:
                    _write(folder / BLOBS / entry.key[:2] / entry.key, blob)
                    records[entry.key] = BlobRecord(entry.key, len(blob), hash_bytes(blob))
                    added, size = added + 1, size + len(blob)
            advance(entry.name)
    shards = write_table(folder, list(records.values()))
    return BuiltIndex(len(records), added, shards, size)


def write_table(folder: Path, records: Sequence[BlobRecord]) -> int:
    """Write the shards of records and the table for `sign_index`. Returns the number of shards."""
    table, shards = make_shards(records)
    for digest, body in shards.items():
        path = folder / SHARDS / digest[:2] / digest
        if not path.exists():
            _write(path, body)
    _write(folder / _DRAFT, to_canonical_json({"bits": table.bits, "shards": table.to_text()}).encode())
    return len(shards)


def read_records(folder: Path) -> Iterator[BlobRecord]:
    """Yield the records of the last `build_index`."""
    if not (folder / _DRAFT).exists():
        return
    for row in _read_draft(folder):
        if row.count:
            yield from list_records(check_shard((folder / SHARDS / row.digest[:2] / row.digest).read_bytes(), row))


def write_keys(
    folder: Path, name: str, roots: Sequence[str], index: Sequence[str], threshold: int, signers: Sequence[PrivateKey],
    days: float,
) -> int:  # fmt: skip
    """Add a version to the list of keys: the first, or a rotation. Returns its number.

    A rotation must be signed by the root keys of the version before, and by the new ones.
    """
    path = folder / KEYS_FILE
    documents = []
    if path.exists():
        documents = [read_signed(each) for each in parse_json(read_bytes(path, MOST_KEYS_BYTES))["documents"]]
    facts = {
        "format": FORMAT,
        "role": KEYS,
        "name": name,
        "version": len(documents) + 1,
        "expires": _compute_expiry(days),
        "roots": [check_public_key(key) for key in roots],
        "threshold": threshold,
        "index": [check_public_key(key) for key in index],
    }
    documents.append(sign_payload(KEYS, facts, signers))
    raw = to_canonical_json({"documents": [document.to_json() for document in documents]}).encode()
    first = read_signed(parse_json(raw)["documents"][0])
    verify_keys(raw, tuple(first.signatures), Known())  # clients would refuse what is refused here
    _write(path, raw)
    return len(documents)


def sign_index(folder: Path, key: PrivateKey, days: float) -> TrustedIndex:
    """Sign the table of the last `build_index` as the next version of the index."""
    keys_raw = _read_document(folder / KEYS_FILE, MOST_KEYS_BYTES)
    first = read_signed(parse_json(keys_raw)["documents"][0])
    keys = verify_keys(keys_raw, tuple(first.signatures), Known())
    if key.public not in keys.index:
        raise StoreError(f"the key {key.public[:16]}… is not an index key of {folder / KEYS_FILE}: use `index trust`")
    table = _read_draft(folder)
    facts = {
        "format": FORMAT,
        "role": INDEX,
        "name": keys.name,
        "version": _read_version(folder) + 1,
        "expires": _compute_expiry(days),
        "bits": table.bits,
        "keys": table.count,
        "shards": table.to_text(),
    }
    raw = to_canonical_json(sign_payload(INDEX, facts, [key]).to_json()).encode()
    index = verify_index(raw, keys, Known())
    _write(folder / INDEX_FILE, raw)
    return index


def verify_folder(folder: Path, pins: Sequence[str], *, blobs: bool) -> tuple[TrustedIndex, list[str]]:
    """Verify an index as a client does, with all shards, and with `blobs` every blob. Returns the problems found."""
    keys = verify_keys(_read_document(folder / KEYS_FILE, MOST_KEYS_BYTES), pins, Known())
    index = verify_index(_read_document(folder / INDEX_FILE, MOST_INDEX_BYTES), keys, Known())
    problems = []
    with report_task("verifying", index.table.count) as advance:
        for row in index.table:
            if not row.count:
                continue
            path = folder / SHARDS / row.digest[:2] / row.digest
            try:
                shard = check_shard(path.read_bytes(), row)
            except (OSError, InvalidBlobError) as error:
                problems.append(f"{path}: {error}")
                continue
            for record in list_records(shard):
                advance(record.key)
                if blobs and (what := _find_blob_problem(folder, record)):
                    problems.append(what)
    return index, problems


def _find_blob_problem(folder: Path, record: BlobRecord) -> str:
    path = folder / BLOBS / record.key[:2] / record.key
    try:
        blob = path.read_bytes()
        if hash_bytes(blob) != record.digest:
            return f"{path}: it does not have the digest that the index lists"
        unpack_entry(blob, record.key)
    except (OSError, InvalidBlobError) as error:
        return f"{path}: {error}"
    return ""


def _read_draft(folder: Path) -> ShardTable:
    facts: Any = parse_json(_read_document(folder / _DRAFT, MOST_INDEX_BYTES))
    return read_table(facts["bits"], facts["shards"])


def _read_version(folder: Path) -> int:
    """The version of the signed index; 0 if there is none."""
    if not (folder / INDEX_FILE).exists():
        return 0
    return int(parse_json(parse_signed(read_bytes(folder / INDEX_FILE, MOST_INDEX_BYTES)).payload)["version"])


def _read_document(path: Path, most: int) -> bytes:
    if not path.exists():
        raise StoreError(f"{path} does not exist. Run `tilewright index build` and `tilewright index trust` first.")
    return read_bytes(path, most)


def _compute_expiry(days: float) -> int:
    if not 0 < days <= 3650:
        raise InvalidValueError(f"{days:g} days cannot be the life of a document: it must be above 0 and at most 3650")
    return int(time.time() + days * 86400)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as draft:
        draft.write_bytes(content)
