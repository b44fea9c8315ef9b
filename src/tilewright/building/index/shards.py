"""Shards of an index: sorted tables of keys with the size and digest of each blob.

A shard has the keys that begin with the same bits. It is named by its digest, so it never changes; the signed index
lists the digests. A key that is not in its shard is not on the host: no request is needed to know that.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tilewright.base.errors import InvalidBlobError, InvalidValueError
from tilewright.building.store.files import check_key
from tilewright.building.store.remote import MAX_BLOB_BYTES

MAGIC = b"TWSHARD1"
_RECORD = struct.Struct("<16sI32s")
_ROW = struct.Struct("<32sI")
# A look-up reads one shard: about 200 records, 10 KB, as long as the table of shards is not larger than 200 KB.
_WANTED_RECORDS = 200
MOST_BITS = 12
# Records in one shard, at most: 3.4 MB.
MOST_RECORDS = 2**16


@dataclass(frozen=True, slots=True)
class BlobRecord:
    """Size and digest (256-bit blake2b) of a blob."""

    key: str
    size: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class ShardRow:
    """The digest of a shard and the number of its records."""

    digest: str
    count: int

    @property
    def size(self) -> int:
        """The bytes of the shard."""
        return len(MAGIC) + _RECORD.size * self.count


@dataclass(frozen=True)
class ShardTable:
    """The shards of an index. The first `bits` bits of a key give the number of its shard."""

    bits: int
    rows: bytes

    @property
    def count(self) -> int:
        """The number of keys."""
        return sum(row.count for row in self)

    def __iter__(self) -> Iterator[ShardRow]:
        return (ShardRow(digest.hex(), count) for digest, count in _ROW.iter_unpack(self.rows))

    def find_row(self, key: str) -> ShardRow:
        """Find the shard of a key."""
        digest, count = _ROW.unpack_from(self.rows, _ROW.size * get_shard_number(key, self.bits))
        return ShardRow(digest.hex(), count)

    def to_text(self) -> str:
        return base64.b64encode(self.rows).decode()


def read_table(bits: object, text: object) -> ShardTable:
    """Read the table of a signed index. Raises `InvalidValueError`."""
    if type(bits) is not int or not 0 <= bits <= MOST_BITS:
        raise InvalidValueError(f"has {bits!r} bits for shards: it must be 0 to {MOST_BITS}")
    try:
        rows = base64.b64decode(str(text), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidValueError("has a table of shards that is not base64") from error
    if len(rows) != _ROW.size << bits:
        raise InvalidValueError(f"has {len(rows):,} bytes of shards instead of {_ROW.size << bits:,}")
    table = ShardTable(bits, rows)
    if max(row.count for row in table) > MOST_RECORDS:
        raise InvalidValueError(f"has a shard with more than {MOST_RECORDS:,} keys")
    return table


def get_shard_number(key: str, bits: int) -> int:
    """Return the number of a key's shard."""
    return int(key[:4], 16) >> (16 - bits)


def choose_bits(count: int) -> int:
    """Choose the number of shards, as a power of two, for a number of keys."""
    bits = 0
    while bits < MOST_BITS and count > _WANTED_RECORDS << bits:
        bits += 1
    return bits


def make_shards(records: Iterable[BlobRecord]) -> tuple[ShardTable, dict[str, bytes]]:
    """Make the table and the shards, by digest, from records in any order."""
    packed = sorted(_RECORD.pack(bytes.fromhex(check_key(r.key)), r.size, r.digest) for r in records)
    bits = choose_bits(len(packed))
    shards: dict[str, bytes] = {}
    rows = []
    start = 0
    for number in range(1 << bits):
        end = start
        while end < len(packed) and int.from_bytes(packed[end][:2]) >> (16 - bits) == number:
            end += 1
        body = MAGIC + b"".join(packed[start:end])
        digest = hash_bytes(body)
        if end > start:
            shards[digest.hex()] = body
        rows.append(_ROW.pack(digest, end - start))
        start = end
    return read_table(bits, base64.b64encode(b"".join(rows)).decode()), shards


def check_shard(body: bytes, row: ShardRow) -> bytes:
    """Return a shard if it has the digest that the signed index lists. Raises `InvalidBlobError`."""
    if len(body) != row.size or hash_bytes(body).hex() != row.digest or not body.startswith(MAGIC):
        raise InvalidBlobError(f"the shard {row.digest[:16]} does not have the bytes that the signed index lists")
    return body


def find_record(shard: bytes, key: str) -> BlobRecord | None:
    """Find a key in a checked shard by binary search; None if the host does not have it."""
    wanted = bytes.fromhex(check_key(key))
    low, high = 0, (len(shard) - len(MAGIC)) // _RECORD.size
    while low < high:
        middle = (low + high) // 2
        found, size, digest = _RECORD.unpack_from(shard, len(MAGIC) + _RECORD.size * middle)
        if found == wanted:
            return BlobRecord(key, size, digest) if 0 < size <= MAX_BLOB_BYTES else None
        low, high = (middle + 1, high) if found < wanted else (low, middle)
    return None


def list_records(shard: bytes) -> Iterator[BlobRecord]:
    """Yield all records of a checked shard."""
    for key, size, digest in _RECORD.iter_unpack(memoryview(shard)[len(MAGIC) :]):
        yield BlobRecord(key.hex(), size, digest)


def hash_bytes(content: bytes) -> bytes:
    """256-bit blake2b."""
    return hashlib.blake2b(content, digest_size=32).digest()
