"""The lines of a journal: written with a checksum, and found again in files that were torn, damaged or concatenated.

A line is the JSON of a record; its last field, `check`, is the digest of all bytes before that field. This
distinguishes an intact line from one that was cut short or changed. An intact record is also found inside a damaged
line: when the end of a torn line is lost, the next record is in the same line.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from tilewright.base.digest import to_canonical_json
from tilewright.bench.record import OK, SCHEMA, STATUSES, Record

# Without surrogates, which may be valid pairs or errors: parsing the record decides. Possessive (`*+`), as a text
# cannot end anywhere else.
_TEXT = rb'"[ !#-\[\]-~]*+(?:\\(?:["\\/bfnrt]|u(?:[0-9a-ce-f][0-9a-f]|d[0-7])[0-9a-f]{2})[ !#-\[\]-~]*+)*+"'
# At most 15 digits and two of exponent in a number, 18 digits in a counter, 9 in a count: certainly finite, integers
# that a float holds exactly, and in range of their columns.
_NUMBER = rb"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,20})?(?:e[-+]?[0-9]{1,2})?"
_COUNT = rb"(?:0|[1-9][0-9]{0,8})"
_UNBOUNDED = rb'(?:null|"inf"|"-inf"|"nan"|' + _NUMBER + rb")"
_OPTIONAL = rb"(?:null|" + _NUMBER + rb")"
_COUNTER = rb'"[A-Za-z_][A-Za-z0-9_.]*+":(?:0|[1-9][0-9]{0,17})'


def _make_group(name: str, pattern: bytes) -> bytes:
    return b"(?P<%s>%s)" % (name.encode(), pattern)


def _make_object_pattern(**fields: bytes) -> bytes:
    return rb"\{" + b",".join(b'"%s":%s' % (name.encode(), fields[name]) for name in sorted(fields)) + rb"\}"


_TASK = _make_object_pattern(
    cold=_make_group("cold", rb"true|false"),
    **{name: _make_group(name, _TEXT) for name in ("arch", "device", "kernel", "op", "problem", "versions")},
)
_TIMES = _make_object_pattern(
    **{name: _make_group(name, _NUMBER) for name in ("us", "us_min", "us_max")},
    **dict.fromkeys(("us_p10", "us_p90"), _NUMBER),
    **dict.fromkeys(("runs", "warmups"), _COUNT),
    **dict.fromkeys(("clock_mhz", "power_w"), _OPTIONAL),
)
_BODY = _make_object_pattern(
    counters=rb"\{" + _make_group("counters", rb"(?:" + _COUNTER + rb"(?:," + _COUNTER + rb")*+)?+") + rb"\}",
    error_ulps=_UNBOUNDED,
    key=b'"%s"' % _make_group("key", rb"[0-9a-f]{32}"),
    kind=b'"%s"' % _make_group("kind", rb"time|counters|none"),
    message=_TEXT,
    schema=b"%d" % SCHEMA,
    share=_UNBOUNDED,
    started=_make_group("started", _NUMBER),
    status=b'"%s"' % _make_group("status", b"|".join(status.encode() for status in STATUSES)),
    task=_TASK,
    times=_make_group("times", rb"null|" + _TIMES),
    took_s=_NUMBER,
    worker=_TEXT,
)
LINE = re.compile(_BODY.removesuffix(rb"\}") + rb',"check":"[0-9a-f]{32}"\}')


def match_record(line: bytes) -> re.Match[bytes] | None:
    """The parts of a line by name if it is certainly a valid record; None if only parsing it can decide."""
    found = LINE.fullmatch(line)
    if found is None or found["key"] != _compute_key(found):
        return None
    has_times = found["us"] is not None
    kind = b"time" if has_times else b"counters" if found["counters"] else b"none"
    if found["kind"] != kind or (found["status"] == b"ok") != (kind != b"none") or (has_times and found["counters"]):
        return None
    if has_times and not 0 < float(found["us_min"]) <= float(found["us"]) <= float(found["us_max"]):
        return None
    return found


def _compute_key(found: re.Match[bytes]) -> bytes:
    """As `Task.key`: the texts of a line are canonical JSON already."""
    device = found["device"]
    where = b'"gpu"' if device.startswith(b'"gpu:') else device
    texts = (found["op"], found["arch"], found["kernel"], found["problem"], where, found["cold"], found["versions"])
    return hashlib.blake2b(b"[%s]" % b",".join(texts), digest_size=16).hexdigest().encode()


CHECK = b',"check":"'
DIGEST_BYTES = 16
TAIL = len(CHECK) + 2 * DIGEST_BYTES + len(b'"}')
# The first field of every line, as keys are sorted. Inside a text its quotes would be escaped, and counters hold
# numbers only, so an intact record has it at its beginning and nowhere else. The same holds for the end.
START = b'{"counters":{'
END = re.compile(re.escape(CHECK) + b"[0-9a-f]{%d}" % (2 * DIGEST_BYTES) + b'"}')
# A record has about a thousand bytes. This bounds the memory of a reader of a file without line ends.
LONGEST = 1 << 24


@dataclass(frozen=True)
class DamagedLine:
    """A journal line that is not one intact record."""

    file: Path
    line: int  # from 1
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.why}"


class IntactLine(NamedTuple):
    """The bytes of a record whose checksum is right, and their location. A tuple, as a merge makes millions."""

    file: Path
    line: int
    offset: int
    text: bytes

    @property
    def check(self) -> bytes:
        """The digest at the end of the line, as hex digits."""
        return self.text[-TAIL:][len(CHECK) : -2]


class RecordSummary(NamedTuple):
    """The fields that decide which of two records with one key is kept."""

    key: str
    ok: bool
    started: float


def format_line(record: Record) -> bytes:
    """A record as one line, with its checksum and line end."""
    return append_checksum(to_canonical_json(record.to_json())[:-1].encode())


def append_checksum(body: bytes) -> bytes:
    """A complete line from a record's JSON without its last brace."""
    return body + CHECK + _compute_checksum(body) + b'"}\n'


def read_lines(file: Path, *, longest: int = LONGEST) -> Iterator[IntactLine | DamagedLine]:
    """All intact records of a file, in order, and every damaged line. Never raises because of the file's content."""
    number, offset = 0, 0
    with file.open("rb") as stream:
        while line := stream.readline(longest):
            number += 1
            if len(line) == longest and not line.endswith(b"\n"):
                offset = yield from _skip_overlong_line(file, stream, number, offset, line, longest)
                continue
            text = line.removesuffix(b"\n")
            if _has_valid_checksum(text):
                yield IntactLine(file, number, offset, text)
            elif text.strip():
                yield from _scan_damaged_line(file, number, offset, text)
            offset += len(line)


def parse_record(line: IntactLine) -> Record | DamagedLine:
    """The record of a line. A record of another schema, or with an unknown field, is returned as damaged."""
    try:
        value = json.loads(line.text)
        if isinstance(value, dict):
            value.pop("check", None)
        return Record.from_json(value)
    except (ValueError, RecursionError) as error:  # InvalidValueError is a ValueError
        return DamagedLine(line.file, line.line, f"has a valid checksum, but is not a record of this version: {error}")


def parse_summary(line: IntactLine) -> RecordSummary | DamagedLine:
    """The fields that a merge needs, several times faster than the whole record. Damaged where the record is."""
    found = match_record(line.text)
    if found is not None:
        return RecordSummary(found["key"].decode(), found["status"] == b"ok", float(found["started"]))
    record = parse_record(line)
    return (
        record
        if isinstance(record, DamagedLine)
        else RecordSummary(record.key, record.status == OK, float(record.started))
    )


def _skip_overlong_line(
    file: Path, stream: IO[bytes], number: int, offset: int, held: bytes, longest: int
) -> Generator[IntactLine | DamagedLine, None, int]:
    """Read a line that is longer than any record, piece by piece. Returns the offset of the next line."""
    yield DamagedLine(file, number, f"is longer than {longest:,} bytes, the limit of a record")
    while True:
        after = 0
        for start, end in _find_intact_records(held):
            yield IntactLine(file, number, offset + start, held[start:end])
            after = end
        more = b"" if held.endswith(b"\n") else stream.readline(longest)
        if not more:
            return offset + len(held)
        # A record that begins in this piece and ends in the next has at most `longest` bytes.
        cut = max(after, len(held) - longest)
        offset, held = offset + cut, held[cut:] + more


def _scan_damaged_line(file: Path, number: int, offset: int, text: bytes) -> Iterator[IntactLine | DamagedLine]:
    inside = list(_find_intact_records(text))
    kept = f"; intact records inside it: {len(inside)}, which are kept" if inside else ""
    yield DamagedLine(file, number, _describe_damage(text) + kept)
    for start, end in inside:
        yield IntactLine(file, number, offset + start, text[start:end])


def _find_intact_records(text: bytes) -> Iterator[tuple[int, int]]:
    """The start and end of every intact record in a damaged line."""
    after = 0
    for end in END.finditer(text):
        start = text.rfind(START, after, end.start())
        if start >= 0 and _has_valid_checksum(text[start : end.end()]):
            yield start, end.end()
        after = end.end()


def _describe_damage(text: bytes) -> str:
    if not text.startswith(START):
        return f"does not begin with {START.decode()}, as records do: its beginning is lost or changed"
    if END.search(text) is None:
        return f"ends after {len(text):,} bytes, before its checksum: it was cut short"
    return "has a checksum that does not match its bytes: it was changed"


def _has_valid_checksum(text: bytes) -> bool:
    """Whether a text ends with the digest of the bytes before it."""
    return text[-TAIL:] == CHECK + _compute_checksum(text[:-TAIL]) + b'"}'


def _compute_checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=DIGEST_BYTES).hexdigest().encode()
