"""Problems on a command line, `m=64,n=64,k=32`, and assigning the problems of a file to kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import InvalidValueError, choose

if TYPE_CHECKING:
    from tilewright.ops.fields import ConfigBase
    from tilewright.ops.kernel import Kernel
    from tilewright.ops.op import Op


def read_problem(op: Op, config: ConfigBase | None, text: str) -> Any:
    """The problem that a text describes. Fields that problem and config share come from the config.

    The text may repeat them with the same values. Without a config the text gives all fields.
    """
    from tilewright.ops.fields import list_fields
    from tilewright.ops.problem_list import find_missing_fields, list_parameters
    from tilewright.ops.problem_values import read_value

    names = list_parameters(op)
    fixed = {} if config is None else list_fields(type(config))
    shared = {name: getattr(config, name) for name in names if name in fixed}
    # Shorthands set fields of the config, which the text may only repeat.
    own = [name for name in names if name not in shared and (config is None or name not in op.shorthands)]
    given: dict[str, Any] = {}
    named: set[str] = set()
    for pair in filter(None, text.split(",")):
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            raise InvalidValueError(f"--problem takes FIELD=VALUE,…, got {pair!r} in {text!r}")
        if name in named:
            raise InvalidValueError(f"--problem {text} gives {name} twice")
        named.add(name)
        if name in names and name not in own:
            _check_fixed(op, shared, name, value)
            continue
        choose(f"field of a {op.name} problem{' that the kernel does not fix' if config else ''}", name, own)
        given[name] = read_value(value)
    missing = find_missing_fields(op, {**shared, **given})
    if missing:
        raise InvalidValueError(f"--problem {text} does not give {', '.join(missing)}")
    return op.problem_type(**shared, **given)


def _check_fixed(op: Op, shared: Mapping[str, Any], name: str, text: str) -> None:
    """Raise an error if a field or shorthand differs from the kernel's value."""
    from tilewright.ops.fields import list_fields

    if name in op.shorthands:
        values = op.shorthands[name].expand_value(text)
    else:
        values = {name: list_fields(op.config_type)[name].kind.read(name, text)}
    for field, value in values.items():
        if field in shared and shared[field] != value:
            raise InvalidValueError(f"--problem gives {name}={text}, but the kernel has {field}={shared[field]}")


@dataclasses.dataclass(frozen=True)
class AssignedProblems:
    """Problems by the kernels that they are for. `idle` kernels have no problem, `left` problems have no kernel."""

    tried: Mapping[Kernel, Sequence[Any]]
    idle: Sequence[Kernel]
    left: Sequence[Any]


def assign_problems(problems: Sequence[Any], kernels: Sequence[Kernel]) -> AssignedProblems:
    """Assign each kernel the problems of its kind: those with the same values in all fields that a kernel fixes."""
    found = {kernel: [problem for problem in problems if _is_for(kernel, problem)] for kernel in kernels}
    taken = {problem for own in found.values() for problem in own}
    left = [problem for problem in problems if problem not in taken]
    return AssignedProblems(
        {k: own for k, own in found.items() if own}, [k for k, own in found.items() if not own], left
    )


def get_fixed_fields(kernel: Kernel, problem: Any) -> dict[str, Any]:
    """The problem fields that a kernel fixes: the fields of its config that problems have too."""
    from tilewright.ops.problem_text import find_fixed_names

    return {name: getattr(kernel.config, name) for name in find_fixed_names(type(kernel.config), type(problem))}


def _is_for(kernel: Kernel, problem: Any) -> bool:
    return all(getattr(problem, name) == value for name, value in get_fixed_fields(kernel, problem).items())
