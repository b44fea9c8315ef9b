"""A problem as short text: the fields that the kernel does not fix and that differ from their defaults."""

from __future__ import annotations

import dataclasses
from typing import Any

from tilewright.base.errors import InvalidValueError
from tilewright.ops.fields import ConfigBase, fields_of
from tilewright.ops.problem_values import value_text


def fixed_names(config_type: type[ConfigBase], problem_type: type) -> tuple[str, ...]:
    """The names that a kernel fixes for its problems: config fields that problems have as fields or properties."""
    own = {f.name for f in dataclasses.fields(problem_type)}
    return tuple(name for name in fields_of(config_type) if name in own or hasattr(problem_type, name))


def problem_fields(problem: Any, config: ConfigBase | None) -> dict[str, Any]:
    """The fields that define a problem for a kernel, without those that its config fixes and without defaults.

    With None for the config, the fields that define the problem independently of a kernel.
    """
    fields = {f.name: getattr(problem, f.name) for f in dataclasses.fields(problem)}
    needed = dict(fields)
    for f in dataclasses.fields(problem):
        if f.default is dataclasses.MISSING:
            continue
        rest = {name: value for name, value in needed.items() if name != f.name}
        if _same(problem, rest):
            needed = rest
    fixed = {} if config is None else fields_of(type(config))
    return {name: value for name, value in needed.items() if name not in fixed}


def _same(problem: Any, fields: dict[str, Any]) -> bool:
    try:
        return bool(type(problem)(**fields) == problem)
    except InvalidValueError:
        return False  # this field cannot be left out


def problem_text(problem: Any, config: ConfigBase | None) -> str:
    """A problem in the syntax of `--problem`: `m=64,n=64,k=32`."""
    return ",".join(f"{name}={value_text(value)}" for name, value in problem_fields(problem, config).items())


def short_text(problem: Any) -> str:
    """A problem for a message, in Python syntax: its fields that differ from their defaults."""
    if not dataclasses.is_dataclass(problem):
        return repr(problem)  # not a problem, passed by mistake
    return f"{type(problem).__name__}({problem_text(problem, None).replace(',', ', ')})"
