"""Problems on a command line, `m=64,n=64,k=32`, and in files: completed from kernels, and assigned to them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import InvalidValueError, choose
from tilewright.cli.defaults import complete_fields

if TYPE_CHECKING:
    from tilewright.ops.fields import ConfigBase
    from tilewright.ops.kernel import Kernel
    from tilewright.ops.op import Op


class FixedFieldError(InvalidValueError):
    """A problem gives a field another value than the kernel that fixes it."""


def read_problem(op: Op, config: ConfigBase | None, text: str) -> Any:
    """The problem that a text describes. Fields that problem and config share come from the config.

    The text may repeat them with the same values. Without a config the text gives all fields.
    """
    from tilewright.ops.problem_list import find_missing_fields, list_fixed_values
    from tilewright.ops.problem_values import read_value

    fixed = {} if config is None else list_fixed_values(op, config)
    given: dict[str, Any] = {}
    for name, value in split_fields(op, text).items():
        if config is not None and (name in fixed or name in op.shorthands):
            _check_fixed(op, fixed, name, value)
        else:
            given[name] = read_value(value)
    missing = find_missing_fields(op, {**fixed, **given})
    if missing:
        raise InvalidValueError(f"--problem {text} does not give {', '.join(missing)}")
    return op.problem_type(**fixed, **given)


def split_fields(op: Op, text: str) -> dict[str, str]:
    """The fields of a problem in a text, `m=64,n=64,k=32`, each with its text."""
    from tilewright.ops.problem_list import list_parameters

    fields: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            raise InvalidValueError(f"--problem takes FIELD=VALUE,…, got {pair!r} in {text!r}")
        if name in fields:
            raise InvalidValueError(f"--problem {text} gives {name} twice")
        choose(f"field of a {op.name} problem", name, list_parameters(op))
        fields[name] = value
    return fields


def _check_fixed(op: Op, fixed: Mapping[str, Any], name: str, text: str) -> None:
    """Raise an error if a field or shorthand differs from the kernel's value."""
    from tilewright.ops.problem_list import find_conflict

    field = find_conflict(op, fixed, name, text)
    if field is not None:
        raise FixedFieldError(f"--problem gives {name}={text}, but the kernel has {field}={fixed[field]}")


def read_open_problem(op: Op, kernels: Sequence[Kernel], text: str) -> Any:
    """The one problem that a text describes. The kernels, then the project's defaults, give fields that it lacks."""
    from tilewright.ops.problem_list import complete_problem, find_conflict, find_missing_fields, list_fixed_values
    from tilewright.ops.problem_values import read_value

    given = {name: read_value(value) for name, value in split_fields(op, text).items()}
    fixed = [list_fixed_values(op, config) for _, config in _list_kinds(kernels)]
    try:
        found = complete_problem(op, given, fixed)
    except InvalidValueError as error:
        for name, value in given.items():
            if all(find_conflict(op, each, name, value) for each in fixed):
                _check_fixed(op, fixed[0], name, str(value))
        missing = find_missing_fields(op, {**fixed[0], **given})
        if missing:
            raise InvalidValueError(f"--problem {text} does not give {', '.join(missing)}") from error
        raise
    if len(found) > 1:
        found = complete_problem(op, given | complete_fields(op, given), fixed)
    if len(found) > 1:
        raise InvalidValueError(_explain_open_fields(found, text))
    return found[0]


def _explain_open_fields(found: Sequence[Any], text: str) -> str:
    """The message if kernels of several kinds could compute a problem."""
    from tilewright.ops.problem_values import format_problem_value, list_all_fields

    values = [list_all_fields(problem) for problem in found]
    differing = {
        name: dict.fromkeys(format_problem_value(each[name]) for each in values)
        for name in values[0]
        if len({each[name] for each in values}) > 1
    }
    parts = "; ".join(f"{name} {' or '.join(texts)}" for name, texts in differing.items())
    return f"--problem {text} does not give {', '.join(differing)}, and the kernels differ: {parts}"


def read_kernel_problems(kernels: Sequence[Kernel], texts: Sequence[str]) -> list[Any]:
    """The problems that texts describe for kernels, each once."""
    return list(dict.fromkeys(problem for text in texts for problem in _read_for_kernels(kernels, text)))


def _read_for_kernels(kernels: Sequence[Kernel], text: str) -> list[Any]:
    """The problems that a text describes, one for each kind of kernel that it agrees with. There must be one."""
    found, errors = [], []
    for op, config in _list_kinds(kernels):
        try:
            found.append(read_problem(op, config, text))
        except FixedFieldError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    return list(dict.fromkeys(found))


def _list_kinds(kernels: Iterable[Kernel]) -> list[tuple[Op, ConfigBase]]:
    """One config for each combination of values that the kernels fix."""
    from tilewright.ops import find_op
    from tilewright.ops.problem_list import list_fixed_values

    kinds: dict[Any, tuple[Op, ConfigBase]] = {}
    for kernel in kernels:
        op = find_op(kernel.op)
        fixed = list_fixed_values(op, kernel.config)
        kinds.setdefault((op.name, tuple(fixed.values())), (op, kernel.config))
    return list(kinds.values())


def read_listed_problems(op: Op, kernels: Sequence[Kernel], file: Path, file_format: str | None) -> list[Any]:
    """The problems of a file. The kernels give fields that the file does not have."""
    from tilewright.ops.problem_list import list_fixed_values, read_problems

    fixed = [list_fixed_values(op, config) for _, config in _list_kinds(kernels)]
    return read_problems(op, file, file_format, fixed)


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


def assign_texts(kernels: Sequence[Kernel], texts: Sequence[str]) -> AssignedProblems:
    """Assign each kernel the problems of texts that agree with the values that it fixes."""
    from tilewright.ops import find_op

    read_kernel_problems(kernels, texts)  # an error if a text agrees with none of them
    found: dict[Kernel, list[Any]] = {}
    for kernel in kernels:
        for text in texts:
            with contextlib.suppress(FixedFieldError):
                problem = read_problem(find_op(kernel.op), kernel.config, text)
                found.setdefault(kernel, []).append(problem)
    return AssignedProblems(found, [kernel for kernel in kernels if kernel not in found], [])


def get_fixed_fields(kernel: Kernel, problem: Any) -> dict[str, Any]:
    """The problem fields that a kernel fixes: the fields of its config that problems have too."""
    from tilewright.ops.problem_text import find_fixed_names

    return {name: getattr(kernel.config, name) for name in find_fixed_names(type(kernel.config), type(problem))}


def _is_for(kernel: Kernel, problem: Any) -> bool:
    return all(getattr(problem, name) == value for name, value in get_fixed_fields(kernel, problem).items())
