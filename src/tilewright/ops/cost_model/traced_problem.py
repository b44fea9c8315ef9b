"""The problem of a C program: fields are members of the argument struct, as expressions that are translated to C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.base.errors import InvalidValueError
from tilewright.ops.cost_model.expression import Expression, Trace, write_c_lines
from tilewright.ops.cost_model.model_inputs import CModelInputs
from tilewright.ops.fields import ConfigBase, list_fields
from tilewright.ops.problem_field import list_declared_fields


def write_problem_numbers(
    problem_numbers: Callable[[Any], Mapping[str, Any]], in_c: CModelInputs, config: ConfigBase
) -> list[str]:
    """C statements that compute the model inputs of a problem from `args`, into the members of `numbers`."""
    found = problem_numbers(TracedProblem(in_c, config))
    return write_c_lines({f"numbers.{name}": value for name, value in found.items()})


def list_known_values(in_c: CModelInputs, config: ConfigBase) -> tuple[Any, ...]:
    """The fields of a problem that only a kernel's config has. For equal ones, the C statements are equal."""
    fields = list_declared_fields(in_c.call.problem_type)
    names = [name for name in list_fields(type(config)) if name in fields and name not in in_c.members]
    return (*(getattr(config, name) for name in names), getattr(config, in_c.length, None))


class TracedProblem:
    """A problem with expressions. Properties and methods are those of the problem class."""

    def __init__(self, in_c: CModelInputs, config: ConfigBase) -> None:
        self._in_c = in_c
        self._config = config
        self._trace = Trace()

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__[name] = self._find(name)
        return found

    def _find(self, name: str) -> Any:
        in_c, config = self._in_c, self._config
        if name in in_c.replaced:
            return in_c.replaced[name]
        if name in in_c.members and name != in_c.length:
            return self._trace_member(name)
        if name in list_fields(type(config)):
            return getattr(config, name)
        owner = in_c.call.problem_type
        if name in list_declared_fields(owner) or not hasattr(owner, name):
            raise InvalidValueError(
                f"{name} of {in_c.call.op} problems is neither in {in_c.call.name} nor in configs, so model inputs "
                "cannot depend on it in C"
            )
        attribute = vars(owner)[name]
        # A cached property would need its name to be set; its function does not.
        compute = getattr(attribute, "func", None) or getattr(attribute, "fget", None)
        return compute(self) if compute is not None else attribute.__get__(self)

    def _trace_member(self, name: str) -> Any:
        member = self._in_c.members[name]
        if member.length:
            count: int = getattr(self._config, self._in_c.length)
            return tuple(self._trace.add_variable(f"(double)args->{member.name}[{i}]") for i in range(count))
        variable = self._trace.add_variable(f"(double)args->{member.name}")
        names = self._in_c.call.list_names(name)
        return TracedName(variable, names) if names else variable


class TracedName:
    """A field that takes names. Comparing it with a name is an expression."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, number: Expression, names: tuple[str, ...]) -> None:
        self._number = number
        self._names = names

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return self._number == self._names.index(str(other))

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return self._number != self._names.index(str(other))
