"""The valid field values of records: types, finite numbers, text that every file can hold. All checks are here.

Records come from worker processes, journals, tables and other tools. A value that no column can hold is rejected when
it is read, not when millions of records are exported.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import InvalidValueError

# Table columns are 64-bit floats, and 32-bit or 64-bit integers.
LARGEST = sys.float_info.max
EXACT = 1 << 53  # floats hold every integer up to here
INT32, INT64 = (1 << 31) - 1, (1 << 63) - 1
# Counter names are table columns, and are found in journal lines without parsing them.
COUNTER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
# Longest quotation of a wrong value in a message.
QUOTED = 60


@dataclass(frozen=True)
class FieldKind:
    """A test of values, and its wording after "must be"."""

    holds: Callable[[Any], bool]
    wanted: str


def _is_text(value: object) -> bool:
    return isinstance(value, str) and (value.isascii() or _is_encodable(value))


def _is_encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # an unpaired surrogate, which UTF-8 cannot encode
        return False
    return True


def _is_number(value: object) -> bool:
    """A finite float, or an integer that a float holds exactly. Comparisons with NaN are false."""
    if isinstance(value, float):
        return -LARGEST <= value <= LARGEST
    return isinstance(value, int) and not isinstance(value, bool) and -EXACT <= value <= EXACT


def _is_unbounded(value: object) -> bool:
    return value is None or isinstance(value, float) or _is_number(value)


def _is_count(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _is_counter_table(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and COUNTER_NAME.fullmatch(name) and _is_count(count, INT64)
        for name, count in value.items()
    )


TEXT = FieldKind(_is_text, "text that UTF-8 can encode")
FLAG = FieldKind(lambda value: isinstance(value, bool), "true or false")
NUMBER = FieldKind(_is_number, "a finite number")
OPTIONAL_NUMBER = FieldKind(lambda value: value is None or _is_number(value), "a finite number or nothing")
UNBOUNDED = FieldKind(_is_unbounded, "a number or nothing")
COUNT = FieldKind(lambda value: _is_count(value, INT32), f"an integer from 0 to {INT32:,}")
COUNTERS = FieldKind(_is_counter_table, f"names (letters, digits, _ and .) with integers from 0 to {INT64:,}")


def check_fields(what: str, value: object, kinds: Mapping[str, FieldKind]) -> None:
    """Raise `InvalidValueError` for the first invalid field."""
    own = vars(value)
    for name, kind in kinds.items():
        if not kind.holds(own[name]):
            raise InvalidValueError(f"{what}: {name} is {format_quoted(own[name])}, must be {kind.wanted}")


def check_object(what: str, value: object, names: Collection[str]) -> dict[str, Any]:
    """Return `value` if it is a JSON object with exactly these fields, else raise `InvalidValueError`."""
    if not isinstance(value, dict):
        raise InvalidValueError(f"{what} is {format_quoted(value)}, must be an object with fields")
    if value.keys() != set(names):
        lacks = ", ".join(name for name in names if name not in value)
        odd = ", ".join(format_quoted(name) for name in value if name not in names)
        told = [f"lacks {lacks}"] * bool(lacks) + [f"has the unknown fields {odd[:QUOTED]}"] * bool(odd)
        raise InvalidValueError(f"{what} {' and '.join(told)}. Its fields: {', '.join(names)}.")
    return value


def format_quoted(value: object) -> str:
    """The beginning of any value, as ASCII."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):  # more digits than Python prints, or nested too deeply
        return f"a value of type {type(value).__name__} that cannot be shown"
    return text if len(text) <= QUOTED else f"{text[: QUOTED - 1]}…"
