"""A problem as short text: the fields that the kernel does not fix and that differ from their defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import InvalidValueError
from tilewright.ops.fields import ConfigBase, dump_identity, list_fields
from tilewright.ops.problem_values import format_problem_value

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def find_fixed_names(config_type: type[ConfigBase], problem_type: type) -> tuple[str, ...]:
    """The names that a kernel fixes for its problems: config fields that problems have as fields or properties.

    Not newer fields: kernels that do not use them have their defaults, which problems need not have.
    """
    own = {f.name for f in dataclasses.fields(problem_type)}
    return tuple(
        name
        for name, field in list_fields(config_type).items()
        if not field.newer and (name in own or hasattr(problem_type, name))
    )


def list_problem_fields(problem: DataclassInstance, config: ConfigBase | None) -> dict[str, Any]:
    """The fields that define a problem for a kernel, without those that its config fixes and without defaults.

    With None for the config, the fields that define the problem independently of a kernel.
    """
    fields = {f.name: getattr(problem, f.name) for f in dataclasses.fields(problem)}
    needed = dict(fields)
    for f in dataclasses.fields(problem):
        if f.default is dataclasses.MISSING:
            continue
        rest = {name: value for name, value in needed.items() if name != f.name}
        if _is_same(type(problem), rest, problem):
            needed = rest
    fixed = {} if config is None else dump_identity(config)
    return {name: value for name, value in needed.items() if name not in fixed}


def _is_same(problem_type: Callable[..., object], fields: Mapping[str, object], problem: object) -> bool:
    try:
        return problem_type(**fields) == problem
    except InvalidValueError:
        return False  # this field cannot be left out


def format_problem(problem: DataclassInstance, config: ConfigBase | None) -> str:
    """A problem in the syntax of `--problem`: `m=64,n=64,k=32`."""
    return ",".join(
        f"{name}={format_problem_value(value)}" for name, value in list_problem_fields(problem, config).items()
    )


def format_short_problem(problem: object) -> str:
    """A problem for a message, in Python syntax: its fields that differ from their defaults."""
    if not dataclasses.is_dataclass(problem) or isinstance(problem, type):
        return repr(problem)  # not a problem, passed by mistake
    return f"{type(problem).__name__}({format_problem(problem, None).replace(',', ', ')})"
