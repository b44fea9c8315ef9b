"""Values of problems: bounded integers, and extents with one integer per dimension, with their text and JSON."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tilewright.base.digest import to_canonical_json
from tilewright.base.document_values import expect_integer, format_value, is_digits
from tilewright.base.errors import InvalidValueError, choose

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Extents: TypeAlias = tuple[int, ...]
MOST = 2**63 - 1  # sizes are int64_t in the C interface of every op
# No field accepts longer numbers, and Python converts them in quadratic time.
_WHOLE = re.compile(r"-?[0-9]{1,20}")
_NUMBER = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,400})?(e[+-]?[0-9]{1,4})?")


def list_all_fields(problem: DataclassInstance) -> dict[str, Any]:
    """All fields of a problem by name. An equal problem can be created from them."""
    return {each.name: getattr(problem, each.name) for each in dataclasses.fields(problem)}


def dump_problem(problem: DataclassInstance) -> str:
    """A problem as in tables and tasks: its fields as canonical JSON. An equal problem can be created from it.

    A field that is newer than such files is left out if it has its default, so that problems in earlier files are
    still the same.
    """
    values = list_all_fields(problem)
    newer = [field for field in getattr(problem, "_declared", {}).values() if field.newer]
    return to_canonical_json(
        {name: value for name, value in values.items() if (name, value) not in [(f.name, f.default) for f in newer]}
    )


def parse_json_value(value: object) -> object:
    """Convert a JSON value to a problem's value: extents are lists in JSON and tuples in problems."""
    return tuple(value) if isinstance(value, list) else value


def load_problem(problem_type: type, values: Mapping[str, Any]) -> Any:
    """A problem from the fields of a JSON document."""
    known, needed = _list_parameters(problem_type)
    for name in values:
        choose("field of a problem", name, known)
    if missing := [name for name in needed if name not in values]:
        raise InvalidValueError(f"the problem has no {', '.join(missing)}")
    return problem_type(**{name: parse_json_value(value) for name, value in values.items()})


@functools.cache
def _list_parameters(problem_type: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of all parameters of a problem, and of the required ones."""
    parameters = inspect.signature(problem_type).parameters
    return tuple(parameters), tuple(name for name, p in parameters.items() if p.default is p.empty)


def check_count(name: str, value: object, least: int, most: int = MOST) -> int:
    """Require an integer within the bounds."""
    found = value if type(value) is int else expect_integer(name, value)
    if not least <= found <= most:
        raise InvalidValueError(f"{name} is {found}, must be at least {least} and at most {most}")
    return found


def read_extents(name: str, value: object, least: int) -> Extents:
    """Extents from (28, 28), [28, 28], "28x28" or 28."""
    parts: Sequence[Any] = value if isinstance(value, Sequence) else [value]
    if isinstance(value, str):
        parts = value.split("x")
        if not all(is_digits(part) for part in parts):
            raise InvalidValueError(f"{name} must look like 28x28, got {format_value(value)}")
        parts = [int(part) for part in parts]
    if not parts:
        raise InvalidValueError(f"{name} needs at least one number, got {format_value(value)}")
    return tuple(check_count(name, part, least) for part in parts)


def repeat_extent(name: str, extents: Extents, ndim: int) -> Extents:
    """Extents for each of `ndim` dimensions. A single number stands for every dimension."""
    if len(extents) == 1:
        return extents * ndim
    if len(extents) != ndim:
        raise InvalidValueError(f"{name} needs one number, or {ndim} of them, got {format_value(extents)}")
    return extents


def format_problem_value(value: object) -> str:
    """A value as in files and on command lines: extents as 28x28, true and false."""
    if isinstance(value, bool):
        return str(value).lower()
    return "x".join(str(part) for part in value) if isinstance(value, tuple) else str(value)


def read_value(text: str) -> Any:
    """Parse a number, true or false. Other text is returned unchanged for the problem to read."""
    if text in ("true", "false"):
        return text == "true"
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text
