"""Checks of single document values. An invalid one raises `InvalidValueError` with field, value and limits."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from tilewright.base.errors import InvalidValueError, UnknownValueError

T = TypeVar("T")
_LONGEST = 100  # characters of a value that a message shows
_DIGITS = re.compile("[0-9]{1,20}")  # as many as 64 bits have


def format_value(value: object) -> str:
    """A value for a message. A long one is cut, and its length is given."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"


def to_integer(value: Any) -> int | None:
    """An integer of Python or NumPy as Python's `int`; None for other values, also for true and false."""
    if type(value) is int:
        return value
    if isinstance(value, bool):
        return None
    try:
        return int(operator.index(value))
    except TypeError:
        return None


def expect_integer(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """Require an integer within bounds; true and false are not integers."""
    found = to_integer(value)
    if found is None:
        raise InvalidValueError(f"{name} must be an integer, got {format_value(value)}")
    _check_bounds(name, found, least, most)
    return found


def parse_digits(name: str, text: Any) -> int:
    """Convert a text of decimal digits to an integer."""
    if not is_digits(text):
        raise InvalidValueError(f"{name} must be an integer of at most 20 digits, got {format_value(text)}")
    return int(text)


def is_digits(text: Any) -> bool:
    """Whether a text consists of 1 to 20 digits 0 to 9."""
    return isinstance(text, str) and _DIGITS.fullmatch(text) is not None


def expect_number(
    name: str, value: Any, least: float | None = None, most: float | None = None, above: float | None = None
) -> float:
    """Require a finite number within bounds, and return it as a float; true and false are not numbers."""
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        raise InvalidValueError(f"{name} must be a number, got {format_value(value)}")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    except (TypeError, ValueError) as error:  # an array
        raise InvalidValueError(f"{name} must be a number, got {format_value(value)}") from error
    if not math.isfinite(found):
        raise InvalidValueError(f"{name} is {format_value(value)}, must be finite")
    _check_bounds(name, found, least, most)
    if above is not None and not found > above:
        raise InvalidValueError(f"{name} is {found:g}, must be above {above:g}")
    return found


def parse_number(name: str, text: Any, above: float | None = None) -> float:
    """Convert a text to a finite number."""
    try:
        found = float(text)
    except (ValueError, TypeError) as error:
        raise InvalidValueError(f"{name} must be a number, got {format_value(text)}") from error
    return expect_number(name, found, above=above)


def _check_bounds(name: str, value: float, least: float | None, most: float | None) -> None:
    if least is not None and not value >= least:
        raise InvalidValueError(f"{name} is {value}, must be at least {least}")
    if most is not None and not value <= most:
        raise InvalidValueError(f"{name} is {value}, must be at most {most}")


def expect_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidValueError(f"{name} must be a text, got {format_value(value)}")
    return value


def expect_table(name: str, value: Any) -> dict[str, Any]:
    """Require a table (JSON's object) with any keys."""
    if not isinstance(value, dict):
        raise InvalidValueError(f"{name} must be an object, got {format_value(value)}")
    return value


def expect_table_values(name: str, value: Any, read: Callable[[str, Any], T]) -> dict[str, T]:
    """Require a table whose values are all of one kind."""
    return {key: read(f"{name}.{key}", each) for key, each in expect_table(name, value).items()}


def expect_list_items(name: str, value: Any, read: Callable[[str, Any], T]) -> list[T]:
    """Require a list whose items are all of one kind."""
    if not isinstance(value, list):
        raise InvalidValueError(f"{name} must be a list, got {format_value(value)}")
    return [read(f"{name}.{i}", each) for i, each in enumerate(value)]


def check_keys(name: str, value: Mapping[str, Any], needed: Iterable[str], others: Collection[str] = ()) -> None:
    """Raise an error for a missing key and for an unknown one."""
    needed = tuple(needed)
    missing = [key for key in needed if key not in value]
    if missing:
        raise InvalidValueError(f"{name} has no {', '.join(missing)}")
    for key in value:
        if key not in needed and key not in others:
            raise UnknownValueError(f"key of {name}", key, (*needed, *others))
