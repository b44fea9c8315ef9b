"""One pattern for almost all journal lines: matching it is much faster than parsing the record.

The pattern and the comparisons after it only accept. A line that they do not accept may still be a record, such as one
with a very large number or an emoji: the caller then parses the record, which decides.
"""

from __future__ import annotations

import hashlib
import re

from tilewright.bench.record import SCHEMA, STATUSES

# Without surrogates, which may be valid pairs or errors: parsing the record decides. Possessive (`*+`), as a text
# cannot end anywhere else.
_TEXT = rb'"[ !#-\[\]-~]*+(?:\\(?:["\\/bfnrt]|u(?:[0-9a-ce-f][0-9a-f]|d[0-7])[0-9a-f]{2})[ !#-\[\]-~]*+)*+"'
# At most two digits of exponent, 18 of a counter and 9 of a count: certainly finite, and in range of their columns.
_NUMBER = rb"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,20})?(?:e[-+]?[0-9]{1,2})?"
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
