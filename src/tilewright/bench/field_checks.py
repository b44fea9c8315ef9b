"""What the fields of records may hold: types, finite numbers, text that any file can keep. The one place that checks.

Records come from worker processes, journals, tables and other tools. A value that no column can hold is refused where
it is met, and not when millions of records are exported.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import InvalidValueError

# Columns of tables are 64-bit floats, and 32-bit or 64-bit whole numbers.
LARGEST = sys.float_info.max
EXACT = 1 << 53  # up to here floats hold every whole number
INT32, INT64 = (1 << 31) - 1, (1 << 63) - 1
# Names of counters are columns of tables, and are found in lines of journals without parsing these.
COUNTER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
# How much of a wrong value a message quotes.
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
    except UnicodeEncodeError:  # half of a surrogate pair, which UTF-8 does not have
        return False
    return True


def _is_number(value: object) -> bool:
    """A finite float, or a whole number that a float holds exactly. Comparing is false for NaN."""
    if isinstance(value, float):
        return -LARGEST <= value <= LARGEST
    return isinstance(value, int) and not isinstance(value, bool) and -EXACT <= value <= EXACT


def _is_unbounded(value: object) -> bool:
    return value is None or isinstance(value, float) or _is_number(value)


def _is_count(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _are_counters(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and COUNTER_NAME.fullmatch(name) and _is_count(count, INT64)
        for name, count in value.items()
    )


TEXT = FieldKind(_is_text, "a text that UTF-8 can hold")
FLAG = FieldKind(lambda value: isinstance(value, bool), "true or false")
NUMBER = FieldKind(_is_number, "a finite number")
OPTIONAL_NUMBER = FieldKind(lambda value: value is None or _is_number(value), "a finite number or nothing")
UNBOUNDED = FieldKind(_is_unbounded, "a number or nothing")
COUNT = FieldKind(lambda value: _is_count(value, INT32), f"a whole number from 0 to {INT32:,}")
COUNTERS = FieldKind(_are_counters, f"names (letters, digits, _ and .) with whole numbers from 0 to {INT64:,}")


def check_fields(what: str, value: object, kinds: Mapping[str, FieldKind]) -> None:
    """Raise `InvalidValueError` for the first field that is not of its kind."""
    own = vars(value)
    for name, kind in kinds.items():
        if not kind.holds(own[name]):
            raise InvalidValueError(f"{what}: {name} is {quoted(own[name])}, must be {kind.wanted}")


def checked_object(what: str, value: object, names: Collection[str]) -> dict[str, Any]:
    """`value` if it is a JSON object with these fields and no others, else `InvalidValueError`."""
    if not isinstance(value, dict):
        raise InvalidValueError(f"{what} is {quoted(value)}, must be an object with fields")
    if value.keys() != set(names):
        lacks = ", ".join(name for name in names if name not in value)
        odd = ", ".join(quoted(name) for name in value if name not in names)
        told = [f"lacks {lacks}"] * bool(lacks) + [f"has the unknown fields {odd[:QUOTED]}"] * bool(odd)
        raise InvalidValueError(f"{what} {' and '.join(told)}. Its fields: {', '.join(names)}.")
    return value


def quoted(value: object) -> str:
    """The beginning of a value as ASCII, whatever it is."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):  # more digits than Python prints, or too deep
        return f"a value of type {type(value).__name__} that cannot be shown"
    return text if len(text) <= QUOTED else f"{text[: QUOTED - 1]}…"
