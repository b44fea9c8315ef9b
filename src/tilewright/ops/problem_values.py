"""Values of problems: whole numbers within bounds, extents with one number for each dimension, their texts and JSON."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tilewright.base.digest import canonical_json
from tilewright.base.errors import InvalidValueError

Extents: TypeAlias = tuple[int, ...]
MOST = 2**63 - 1  # sizes are int64_t in the C interface of every op
_WHOLE = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")


def all_fields(problem: Any) -> dict[str, Any]:
    """All fields of a problem by name, from which it can be made again."""
    return {each.name: getattr(problem, each.name) for each in dataclasses.fields(problem)}


def problem_json(problem: Any) -> str:
    """A problem as tables and tasks have it: all its fields as canonical JSON, from which it can be made again."""
    return canonical_json(all_fields(problem))


def from_json(value: Any) -> Any:
    """A value as problems have it: extents are lists in JSON and tuples in problems."""
    return tuple(value) if isinstance(value, list) else value


def problem_from_json(problem_type: type, values: Mapping[str, Any]) -> Any:
    """The problem whose fields came out of a JSON document."""
    return problem_type(**{name: from_json(value) for name, value in values.items()})


def check_count(name: str, value: Any, least: int, most: int = MOST) -> None:
    """An error unless the value is a whole number within the bounds."""
    if type(value) is not int:
        raise InvalidValueError(f"{name} must be a whole number, got {value!r}")
    if not least <= value <= most:
        raise InvalidValueError(f"{name} is {value}, must be at least {least} and at most {most}")


def read_extents(name: str, value: Any, least: int, ndim: int | None = None) -> Extents:
    """Extents from (28, 28), [28, 28], "28x28" or 28. With `ndim`, a single number stands for every dimension."""
    parts: Any = value.split("x") if isinstance(value, str) else value
    if isinstance(value, str):
        if not all(part.isdecimal() for part in parts):
            raise InvalidValueError(f"{name} must look like 28x28, got {value!r}")
        parts = [int(part) for part in parts]
    if not isinstance(parts, Sequence):
        parts = [parts]
    for part in parts:
        check_count(name, part, least)
    if ndim is not None and len(parts) == 1:
        parts = list(parts) * ndim
    if not parts or (ndim is not None and len(parts) != ndim):
        wanted = "at least one number" if ndim is None else f"one number, or {ndim} of them"
        raise InvalidValueError(f"{name} needs {wanted}, got {value!r}")
    return tuple(parts)


def value_text(value: Any) -> str:
    """A value as files and command lines have it: extents as 28x28, true and false."""
    if isinstance(value, bool):
        return str(value).lower()
    return "x".join(str(part) for part in value) if isinstance(value, tuple) else str(value)


def read_value(text: str) -> Any:
    """The value of a text: a number, true or false. All else stays a text, which the problem reads."""
    if text in ("true", "false"):
        return text == "true"
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text
